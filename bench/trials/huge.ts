import { megabytes, percentileOf } from '../load.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Trial } from '../trial.ts'

const SAMPLE_MS = 50

export const huge: Trial = {
  name: 'huge',
  about: 'one _bulk_docs of 200 MB, and saves in another database meanwhile',
  isAlone: true,
  async run({ peer, scale, emptyDatabase }) {
    const [path, other] = [await emptyDatabase(), await emptyDatabase()]
    const note = newDocument(makeNotes(1)[0] as ReturnType<typeof makeNotes>[0])
    await peer.call('PUT', `${other}/first`, 201, note)
    const idle = await peer.memory()
    const docs = makeNotes(scale.huge).map(newDocument)
    const body = Buffer.from(`{"docs":[${docs.join(',')}]}`)
    docs.length = 0
    let isDone = false
    let peak = 0
    const watch = setInterval(
      () => void peer.memory().then((now) => (peak = Math.max(peak, now ?? 0))),
      SAMPLE_MS,
    )
    const times: number[] = []
    const saves = async () => {
      for (let n = 0; !isDone; n++) {
        const since = performance.now()
        await peer.call('PUT', `${other}/doc${n}`, 201, note)
        times.push(performance.now() - since)
      }
    }
    const since = performance.now()
    const bulk = peer.call('POST', `${path}/_bulk_docs`, 201, body).finally(() => (isDone = true))
    await Promise.all([bulk, saves()]).finally(() => clearInterval(watch))
    const figures = [
      { name: 'time', unit: 's', value: (performance.now() - since) / 1000 },
      { name: 'other saves, 99% within', unit: 'ms', value: percentileOf(times, 0.99) },
    ]
    return idle === null
      ? figures
      : [...figures, { name: 'memory above idle', unit: 'MB', value: megabytes(peak - idle) }]
  },
}
