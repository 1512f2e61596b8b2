/** The time to the first answer and to the first document after kill -9, with a large database and a large log. */
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { inFlight, medianOf, megabytes } from '../load.ts'
import { startOn } from '../own-server.ts'
import type { Peer } from '../peer.ts'
import type { Trial } from '../trial.ts'

const PER_BATCH = 200
const NOTE_BYTES = 8 * 1024
const IN_FLIGHT = 4
const KILLS = 5
/** Long enough for the log to reach its full size. */
const WRITING_MS = 2000

export const recovery: Trial = {
  name: 'recovery',
  about: 'kill -9 during writes to a large database, and the time to the first answers after it',
  isAlone: true,
  async run({ scale }) {
    const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
    const file = join(folder, 'databases', 'notes.sqlite')
    try {
      let server = await startOn(folder)
      await server.peer.call('PUT', '/notes', 201)
      await inFlight(IN_FLIGHT, fills(server.peer, scale.recovered / PER_BATCH, 'first'))
      const [starts, reads, logs]: number[][] = [[], [], []]
      for (let kill = 0; kill < KILLS; kill++) {
        const writing = inFlight(IN_FLIGHT, fills(server.peer, 1000, `kill${kill}`)).catch(() => 0)
        await pause(WRITING_MS)
        await server.end('SIGKILL')
        await writing
        logs?.push(megabytes(await size(`${file}-wal`)))
        server = await startOn(folder)
        const since = performance.now()
        await server.peer.call('GET', '/notes/_all_docs?limit=1&include_docs=true', 200)
        starts?.push(server.startMs)
        reads?.push(performance.now() - since)
      }
      await server.end('SIGTERM')
      return [
        { name: 'file', unit: 'MB', value: megabytes(await size(file)) },
        { name: 'log that was left', unit: 'MB', value: medianOf(logs as number[]) },
        { name: 'first answer', unit: 'ms', value: medianOf(starts as number[]) },
        { name: 'then its first document', unit: 'ms', value: medianOf(reads as number[]) },
      ]
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
}

function fills(peer: Peer, batches: number, prefix: string): (() => Promise<unknown>)[] {
  const text = 'x'.repeat(NOTE_BYTES)
  return Array.from({ length: batches }, (_, batch) => () => {
    const docs = Array.from({ length: PER_BATCH }, (_, n) => ({ _id: `${prefix}-${batch}-${n}`, text }))
    return peer.call('POST', '/notes/_bulk_docs', 201, JSON.stringify({ docs }))
  })
}

async function size(path: string): Promise<number> {
  return stat(path).then(
    (found) => found.size,
    () => 0,
  )
}
