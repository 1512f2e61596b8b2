/** How long a save takes while the database is compacted, backed up and read whole, beside when all is quiet. */
import { setTimeout as pause } from 'node:timers/promises'
import { inFlight, medianOf, percentileOf } from '../load.ts'
import type { Peer } from '../peer.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

const PER_BATCH = 500
const IN_FLIGHT = 4
const WRITERS = 4
/** What goes on meanwhile is begun again until so many saves were measured. */
const SAVES = 2000
const NOTES = 40_000

export const busy: Trial = {
  name: 'busy',
  about: `saves of ${WRITERS} writers when all is quiet, and while their database is compacted, backed up, scanned`,
  isAlone: true,
  async run(bench) {
    const path = await bench.emptyDatabase()
    await grow(bench.peer, path)
    await savesDuring(bench, path, null)
    const quiet = await savesDuring(bench, path, null)
    const figures = told('quiet', quiet, quiet)
    for (const [name, work] of Object.entries(WORKS)) {
      const canBe = await work(bench.peer, path).then(
        () => true,
        () => false,
      )
      if (canBe) figures.push(...told(name, await savesDuring(bench, path, work), quiet))
    }
    return figures
  },
}

type Work = (peer: Peer, path: string) => Promise<unknown>

const WORKS: Readonly<Record<string, Work>> = {
  compaction: async (peer, path) => {
    // Something to clear away.
    await edit(peer, path)
    await peer.call('POST', `${path}/_compact`, 202, '{}')
    while ((await infoOf(peer, path)).compact_running) await pause(20)
  },
  backup: async (peer, path) => {
    await peer.call('POST', '/_settee/backups', 202, JSON.stringify({ databases: [path.slice(1)] }))
    // Of its kind there is one at a time: the next is refused until it is over.
    await pause(500)
  },
  'full scan': (peer, path) => peer.call('GET', `${path}/_changes?include_docs=true`, 200),
}

async function infoOf(peer: Peer, path: string): Promise<{ readonly compact_running: boolean }> {
  return JSON.parse((await peer.call('GET', path, 200)).toString()) as { compact_running: boolean }
}

async function grow(peer: Peer, path: string): Promise<void> {
  const notes = makeNotes(NOTES).map((note) => JSON.parse(newDocument(note)) as object)
  const jobs = Array.from({ length: NOTES / PER_BATCH }, (_, batch) => async () => {
    const docs = notes
      .slice(batch * PER_BATCH, (batch + 1) * PER_BATCH)
      .map((note, n) => ({ ...note, _id: `note${batch}-${n}` }))
    await peer.call('POST', `${path}/_bulk_docs`, 201, JSON.stringify({ docs }))
  })
  await inFlight(IN_FLIGHT, jobs)
}

async function edit(peer: Peer, path: string): Promise<void> {
  const answer = await peer.call('GET', `${path}/_all_docs?limit=${PER_BATCH * 8}&startkey=%22note%22`, 200)
  const { rows } = JSON.parse(answer.toString()) as { rows: { id: string; value: { rev: string } }[] }
  const docs = rows.map(({ id, value }) => ({ _id: id, _rev: value.rev, body: 'x'.repeat(1000) }))
  await peer.call('POST', `${path}/_bulk_docs`, 201, JSON.stringify({ docs }))
}

/** @returns milliseconds of each save */
async function savesDuring({ peer }: Bench, path: string, work: Work | null): Promise<number[]> {
  const note = newDocument(makeNotes(1)[0] as ReturnType<typeof makeNotes>[0])
  const times: number[] = []
  let isOver = false
  const working = (async () => {
    while (!isOver && work !== null) await work(peer, path)
  })()
  const save = async () => {
    const since = performance.now()
    await peer.call('PUT', `${path}/${crypto.randomUUID()}`, 201, note)
    times.push(performance.now() - since)
  }
  await inFlight(
    WRITERS,
    Array.from({ length: SAVES }, () => save),
  )
  isOver = true
  await working
  return times
}

function told(name: string, times: readonly number[], quiet: readonly number[]): Figure[] {
  const p99 = percentileOf(times, 0.99)
  return [
    { name: `${name}, median`, unit: 'ms', value: medianOf(times) },
    { name: `${name}, 99% within`, unit: 'ms', value: p99 },
    ...(times === quiet
      ? []
      : [
          { name: `${name}, 99%, as many times as quiet`, unit: 'x', value: p99 / percentileOf(quiet, 0.99) },
        ]),
  ]
}
