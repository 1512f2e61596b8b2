/** The time of a save while the database is compacted, backed up and read completely, compared with an idle server. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { inFlight, medianOf, percentileOf } from '../load.ts'
import type { Peer } from '../peer.ts'
import { batches, makeNotes, newDocument } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'

const PER_BATCH = 500
const IN_FLIGHT = 4
const WRITERS = 4
const SAVES = 2000
const NOTES = 40_000

export const busy: Trial = {
  name: 'busy',
  about: `saves of ${WRITERS} writers on an idle server, and while their database is compacted, backed up or scanned`,
  isAlone: true,
  async run({ peer, emptyDatabase }) {
    const path = await emptyDatabase()
    await grow(peer, path)
    await saves(peer, path, async () => undefined)
    const quiet = await saves(peer, path, async () => undefined)
    const figures = figuresOf('quiet', quiet)
    for (const { name, prepare, run } of WORKS) {
      if (!(await prepare(peer, path))) continue
      const times = await saves(peer, path, () => run(peer, path))
      const late = percentileOf(times, 0.99) / percentileOf(quiet, 0.99)
      figures.push(...figuresOf(name, times), {
        name: `${name}, 99%, as many times as quiet`,
        unit: 'x',
        value: late,
      })
    }
    return figures
  },
}

interface Work {
  readonly name: string
  /** @returns whether the peer supports this work */
  prepare(peer: Peer, path: string): Promise<boolean>
  run(peer: Peer, path: string): Promise<unknown>
}

const WORKS: readonly Work[] = [
  {
    name: 'compaction',
    // Work for the compaction: every note is overwritten.
    prepare: async (peer, path) => {
      await edit(peer, path)
      return true
    },
    run: async (peer, path) => {
      await peer.call('POST', `${path}/_compact`, 202, '{}')
      while ((await infoOf(peer, path)).compact_running) await pause(20)
    },
  },
  {
    name: 'backup',
    prepare: async (peer) =>
      peer.call('GET', '/_settee/backups', 200).then(
        () => true,
        () => false,
      ),
    run: async (peer) => {
      await peer.call('POST', '/_settee/backups', 202, '{}')
      for (let is = await backupsOf(peer); is.running !== null; is = await backupsOf(peer)) await pause(20)
      const { last_failure: failure } = await backupsOf(peer)
      if (failure !== null) throw new Error(`the backup failed: ${failure.reason}`)
    },
  },
  {
    name: 'full scan',
    prepare: async () => true,
    // In a separate process, because reading so much here would delay the saves.
    run: async ({ address }, path) => {
      const url = `${address}${path}/_changes?include_docs=true`
      const [code] = await once(spawn('curl', ['--silent', '--output', '/dev/null', url]), 'close')
      if (code !== 0) throw new Error(`curl ended with code ${code}`)
    },
  },
]

interface Backups {
  readonly running: object | null
  readonly last_failure: { readonly reason: string } | null
}

async function backupsOf(peer: Peer): Promise<Backups> {
  return JSON.parse((await peer.call('GET', '/_settee/backups', 200)).toString()) as Backups
}

async function infoOf(peer: Peer, path: string): Promise<{ readonly compact_running: boolean }> {
  return JSON.parse((await peer.call('GET', path, 200)).toString()) as { compact_running: boolean }
}

async function grow(peer: Peer, path: string): Promise<void> {
  const notes = makeNotes(NOTES).map((note) => JSON.parse(newDocument(note)) as object)
  await inBatches(peer, path, notes)
}

async function edit(peer: Peer, path: string): Promise<void> {
  const answer = await peer.call('GET', `${path}/_all_docs`, 200)
  const { rows } = JSON.parse(answer.toString()) as { rows: { id: string; value: { rev: string } }[] }
  const docs = rows.map(({ id, value }) => ({ _id: id, _rev: value.rev, body: 'x'.repeat(1000) }))
  await inBatches(peer, path, docs)
}

async function inBatches(peer: Peer, path: string, docs: readonly object[]): Promise<void> {
  const jobs = batches(docs, PER_BATCH).map(
    (some) => () => peer.call('POST', `${path}/_bulk_docs`, 201, JSON.stringify({ docs: some })),
  )
  await inFlight(IN_FLIGHT, jobs)
}

/** Saves until the work is done; the work is repeated until there are enough saves. @returns milliseconds of each */
async function saves(peer: Peer, path: string, work: () => Promise<unknown>): Promise<number[]> {
  const note = newDocument(makeNotes(1)[0] as ReturnType<typeof makeNotes>[0])
  const times: number[] = []
  let isOver = false
  const writer = async () => {
    while (!isOver) {
      const since = performance.now()
      await peer.call('PUT', `${path}/${crypto.randomUUID()}`, 201, note)
      times.push(performance.now() - since)
    }
  }
  const writing = Promise.all(Array.from({ length: WRITERS }, writer))
  while (times.length < SAVES) {
    await work()
    await pause(10)
  }
  isOver = true
  await writing
  return times
}

function figuresOf(name: string, times: readonly number[]): Figure[] {
  return [
    { name: `${name}, median`, unit: 'ms', value: medianOf(times) },
    { name: `${name}, 99% within`, unit: 'ms', value: percentileOf(times, 0.99) },
  ]
}
