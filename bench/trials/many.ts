import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeLargeFolder, nameOf, OWN_FILES } from '../large-folder.ts'
import { inFlight, medianOf, megabytes } from '../load.ts'
import { type OwnServer, startOn } from '../own-server.ts'
import { ADMIN } from '../settee.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

const IN_FLIGHT = 8
const STARTS = 3

export const many: Trial = {
  name: 'many',
  about:
    'many small databases, created and then written to in turn; the start of a server with very many of them',
  isAlone: true,
  run: async (bench) => [...(await written(bench)), ...(await stored(bench.scale.stored))],
}

async function written({ peer, scale, emptyDatabase }: Bench): Promise<Figure[]> {
  const paths: string[] = []
  const make = Array.from({ length: scale.databases }, () => async () => {
    paths.push(await emptyDatabase())
  })
  const made = await inFlight(IN_FLIGHT, make)
  const save = paths.map((path) => () => peer.call('PUT', `${path}/doc`, 201, '{"a":1}'))
  const saved = await inFlight(IN_FLIGHT, save)
  const [bytes, files] = [await peer.memory(), await openFiles(peer.pid)]
  const figures = [
    { name: 'made', unit: 'dbs/s', value: paths.length / made },
    { name: 'written to in turn', unit: 'dbs/s', value: paths.length / saved },
  ]
  if (bytes === null || files === null) return figures
  return [
    ...figures,
    { name: 'memory', unit: 'MB', value: megabytes(bytes) },
    { name: 'open files', unit: '', value: files },
  ]
}

/** A server on a folder with so many databases and as many device tokens, and one on an empty folder beside it. */
async function stored(count: number): Promise<Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
  try {
    const empty = await started(join(folder, 'empty'))
    await empty.server.end('SIGTERM')
    const large = join(folder, 'large')
    const secret = await makeLargeFolder(large, count)
    const { server, startMs, memory } = await started(large)
    try {
      const first = await timed(server, `/${nameOf(OWN_FILES - 2)}`)
      const token = await asToken(server, secret)
      const listed = await timed(server, '/_all_dbs?limit=10')
      const last = await timed(server, `/_all_dbs?limit=10&startkey="${nameOf(count - 5)}"`)
      const all = await timed(server, '/_all_dbs')
      const read = Array.from(
        { length: OWN_FILES - 2 },
        (_, n) => () => server.peer.call('GET', `/${nameOf(n)}`, 200),
      )
      const seconds = await inFlight(IN_FLIGHT, read)
      return [
        { name: 'start on an empty folder', unit: 'ms', value: empty.startMs },
        { name: 'memory on an empty folder', unit: 'MB', value: empty.memory },
        { name: `start with ${count} databases and tokens`, unit: 'ms', value: startMs },
        { name: `memory with ${count} databases and tokens`, unit: 'MB', value: memory },
        { name: 'the first request of a database', unit: 'ms', value: first },
        { name: 'the first request with a token', unit: 'ms', value: token },
        { name: 'the first page of _all_dbs, after the whole folder was read', unit: 'ms', value: listed },
        { name: 'the last page', unit: 'ms', value: last },
        { name: 'all of _all_dbs', unit: 'ms', value: all },
        { name: 'databases opened in turn', unit: 'dbs/s', value: (OWN_FILES - 2) / seconds },
        { name: 'memory in the end', unit: 'MB', value: megabytes((await server.peer.memory()) ?? 0) },
      ]
    } finally {
      await server.end('SIGTERM')
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface Started {
  readonly server: OwnServer
  /** The median of several. */
  readonly startMs: number
  /** MB after the last one. */
  readonly memory: number
}

async function started(folder: string): Promise<Started> {
  const times: number[] = []
  for (let n = 1; n < STARTS; n++) {
    const server = await startOn(folder)
    times.push(server.startMs)
    await server.end('SIGTERM')
  }
  const server = await startOn(folder)
  return {
    server,
    startMs: medianOf([...times, server.startMs]),
    memory: megabytes((await server.peer.memory()) ?? 0),
  }
}

/** @returns milliseconds */
async function timed({ peer }: OwnServer, path: string): Promise<number> {
  const began = performance.now()
  await peer.call('GET', path, 200)
  return performance.now() - began
}

async function asToken({ url }: OwnServer, secret: string): Promise<number> {
  const began = performance.now()
  const authorization = `Basic ${Buffer.from(`${ADMIN}:${secret}`).toString('base64')}`
  const answer = await fetch(new URL(`/${nameOf(0)}`, url), { headers: { authorization } })
  if (answer.status !== 200) throw new Error(`settee answers ${answer.status} to a device token`)
  await answer.arrayBuffer()
  return performance.now() - began
}

async function openFiles(pid: number | undefined): Promise<number | null> {
  return pid === undefined ? null : (await readdir(`/proc/${pid}/fd`)).length
}
