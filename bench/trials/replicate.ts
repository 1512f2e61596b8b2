import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startOn } from '../own-server.ts'
import type { Peer } from '../peer.ts'
import { makeNotes } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'
import { pushNotes, requireDocuments } from './push.ts'

export const replicate: Trial = {
  name: 'replicate',
  about:
    'one-shot replications of notes, within the server, and between it and a settee beside it by either of them',
  async run({ peer, scale, emptyDatabase }) {
    const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
    const beside = await startOn(folder)
    try {
      const server = await endOf(peer, scale.notes, emptyDatabase)
      const settee = await endOf(beside.peer, scale.notes, newDatabases(beside.peer))
      return [
        ...(await measured('within the server', peer, server, server)),
        ...(await measured('to settee, by the server', peer, server, settee)),
        ...(await measured('to settee, by settee', beside.peer, server, settee)),
        ...(await measured('from settee, by the server', peer, settee, server)),
        ...(await measured('from settee, by settee', beside.peer, settee, server)),
      ]
    } finally {
      await beside.end('SIGTERM')
      await rm(folder, { recursive: true, force: true })
    }
  },
}

interface SourceDatabase {
  /** `/name`. */
  readonly path: string
  readonly count: number
}

/** A server at one end of the replications. */
interface End {
  readonly peer: Peer
  /** For the replication before the measured one, as the trial `push` has it. */
  readonly few: SourceDatabase
  readonly all: SourceDatabase
  emptyDatabase(): Promise<string>
}

async function endOf(peer: Peer, count: number, emptyDatabase: () => Promise<string>): Promise<End> {
  const filled = async (notes: number) => {
    const path = await emptyDatabase()
    await pushNotes(peer, path, makeNotes(notes))
    return { path, count: notes }
  }
  return { peer, few: await filled(count / 10), all: await filled(count), emptyDatabase }
}

/** @param by the server that replicates, at one of the ends */
async function measured(name: string, by: Peer, source: End, target: End): Promise<Figure[]> {
  const { all, few } = source
  await replication(by, source, few, target)
  const ends = source === target ? [source] : [source, target]
  const before = cpuSecondsOf(ends)
  const seconds = await replication(by, source, all, target)
  const cpu = cpuSecondsOf(ends) - before
  return [
    { name, unit: 'doc/s', value: all.count / seconds },
    ...(cpu > 0 ? [{ name: `${name}, CPU of both`, unit: 'us/doc', value: (cpu * 1e6) / all.count }] : []),
  ]
}

/** @returns NaN if a server runs elsewhere */
function cpuSecondsOf(ends: readonly End[]): number {
  return ends.reduce((sum, { peer }) => sum + (peer.cpuSeconds() ?? Number.NaN), 0)
}

/** @returns seconds @throws when documents are missing at the target */
async function replication(by: Peer, from: End, { path, count }: SourceDatabase, to: End): Promise<number> {
  const empty = await to.emptyDatabase()
  const nameOf = (end: End, database: string) =>
    end.peer === by ? database.slice(1) : `${end.peer.address}${database}`
  const body = JSON.stringify({ source: nameOf(from, path), target: nameOf(to, empty) })
  const since = performance.now()
  await by.call('POST', '/_replicate', 200, body)
  const seconds = (performance.now() - since) / 1000
  await requireDocuments(to.peer, empty, count)
  return seconds
}

/** @returns a function that makes an empty database at each call */
function newDatabases(peer: Peer): () => Promise<string> {
  let made = 0
  return async () => {
    made += 1
    const path = `/bench-${made}`
    await peer.call('PUT', path, 201)
    return path
  }
}
