import { medianOf } from '../load.ts'
import { makeNotes, newDocument, pushBodies } from '../seed.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

const PAGES = 200
const SAVES = 300
const PER_BATCH = 1000

export const depth: Trial = {
  name: 'depth',
  about: 'pages of 100 of the feed, and saves, in a database that grows',
  async run(bench) {
    const path = await bench.emptyDatabase()
    const figures: Figure[] = []
    let count = 0
    for (const size of bench.scale.sizes) {
      await grow(bench, path, count, size)
      count = size
      figures.push(...(await pages(bench, path, size)), ...(await saves(bench, path, size)))
    }
    return figures
  },
}

/** Small documents: the trial measures how the cost grows with their number. */
async function grow({ peer }: Bench, path: string, from: number, to: number): Promise<void> {
  const [note] = makeNotes(1)
  for (let first = from; first < to; first += PER_BATCH) {
    const count = Math.min(PER_BATCH, to - first)
    const docs = Array.from({ length: count }, (_, n) => ({
      ...(note as object),
      _id: `note:${((first + n) * 7919) % 1_000_003}`,
      body: 'short',
    }))
    const [body] = pushBodies(docs as ReturnType<typeof makeNotes>, PER_BATCH)
    await peer.call('POST', `${path}/_bulk_docs`, 201, body)
  }
}

async function pages({ peer }: Bench, path: string, size: number): Promise<Figure[]> {
  const times: number[] = []
  let since = '0'
  for (let page = 0; page < PAGES; page++) {
    const began = performance.now()
    const answer = await peer.call('GET', `${path}/_changes?limit=100&since=${since}`, 200)
    times.push(performance.now() - began)
    const { results, last_seq } = JSON.parse(answer.toString()) as { results: unknown[]; last_seq: string }
    since = results.length === 100 ? encodeURIComponent(last_seq) : '0'
  }
  return [{ name: `page at ${size}`, unit: 'ms', value: medianOf(times) }]
}

async function saves({ peer }: Bench, path: string, size: number): Promise<Figure[]> {
  const note = newDocument(makeNotes(1)[0] as ReturnType<typeof makeNotes>[0])
  const times: number[] = []
  for (let n = 0; n < SAVES; n++) {
    const began = performance.now()
    await peer.call('PUT', `${path}/save-${size}-${n}`, 201, note)
    times.push(performance.now() - began)
  }
  return [{ name: `save at ${size}`, unit: 'ms', value: medianOf(times) }]
}
