/**
 * A server on each Node version that settee supports: garbage collection runs while native code uses threads,
 * connections and statements, databases are opened and closed, threads end and are replaced, and the process exits
 * normally.
 */
import { spawnSync } from 'node:child_process'
import t, { type Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'
import { memoryOf } from '../../helpers/memory.ts'
import { until } from '../../helpers/until.ts'

/** Paths of Node programs; if unset, this process's own, in the short form. */
const NODES = process.env.SETTEE_NODES?.split(',')
const [NOTES, DATABASES, DEATHS] = NODES === undefined ? [500, 16, 4] : [20_000, 200, 12]
const BATCH = 100
const HOW = ['throws', 'rejects', 'exits'] as const

t.setTimeout(120_000 + (NODES?.length ?? 0) * 300_000)

async function succeed(
  server: ServerProcess,
  method: string,
  path: string,
  body?: unknown,
): Promise<unknown> {
  const { status, json } = await server.ask(method, path, body)
  if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(json)}`)
  return json
}

async function pushNotes(server: ServerProcess): Promise<void> {
  await succeed(server, 'PUT', '/notes')
  for (let first = 0; first < NOTES; first += BATCH) {
    const docs = Array.from({ length: BATCH }, (_, n) => {
      const ids = [(first + n).toString(16).padStart(32, '0')]
      const text = `note ${first + n} `.repeat(60)
      return { _id: `note-${first + n}`, _rev: `1-${ids[0]}`, _revisions: { start: 1, ids }, text }
    })
    await succeed(server, 'POST', '/notes/_bulk_docs', { new_edits: false, docs })
  }
}

/** More databases than are kept open at once, so that each is closed and reopened. */
async function openAndClose(server: ServerProcess): Promise<void> {
  const names = Array.from({ length: DATABASES }, (_, n) => `d${n}`)
  for (const name of names) {
    await succeed(server, 'PUT', `/${name}`)
    await succeed(server, 'PUT', `/${name}/doc`, { name })
  }
  for (const name of names) await succeed(server, 'GET', `/${name}/doc`)
  for (const name of names) await succeed(server, 'DELETE', `/${name}`)
}

async function countNotes(server: ServerProcess): Promise<number | undefined> {
  return (await server.ask('GET', '/notes')).json.doc_count
}

async function killThreads(t: Test, server: ServerProcess): Promise<void> {
  const deaths = () => server.log().filter(({ msg }) => msg.startsWith('a thread died')).length
  for (let n = 1; n <= DEATHS; n += 1) {
    // Every fourth death is that of the thread with the list of databases.
    const database = n % 4 === 0 ? '_users' : 'notes'
    const { status } = await server.ask('GET', `/${database}/${HOW[n % 3]}-${n}`)
    t.ok(status === 404 || status === 503, `death ${n}: ${status}`)
    await until('a thread has died', () => deaths() === n)
    await until('another has taken its place', async () => (await countNotes(server)) === NOTES)
  }
}

function peakMemory(server: ServerProcess): string {
  if (process.platform !== 'linux') return 'unknown'
  return `${Math.round(memoryOf(server.pid(), 'VmHWM') / 1024 ** 2)} MiB`
}

for (const node of NODES ?? [process.execPath]) {
  const version = spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout.trim()
  t.test(`Node ${version}`, async (t) => {
    const server = await startServerProcess(t, {
      node,
      nodeFlags: ['--expose-gc'],
      ini: '[couchdb]\nmax_dbs_open = 8\n',
      preload: new URL('../../faults/deaths/collecting.mjs', import.meta.url),
      threadEntry: new URL('../../faults/deaths/collecting-thread.mjs', import.meta.url),
    })
    const begun = performance.now()
    await pushNotes(server)
    const pushed = performance.now()
    t.equal(await countNotes(server), NOTES)
    await openAndClose(server)
    await killThreads(t, server)
    const seconds = (ms: number) => (ms / 1000).toFixed(1)
    t.comment(
      `${version}: ${NOTES} notes in ${seconds(pushed - begun)} s, ${DATABASES} databases and ${DEATHS} deaths in`,
      `${seconds(performance.now() - pushed)} s, ${peakMemory(server)} at the most`,
    )
    t.match(await server.stop(), { code: 0, stderr: '' })
    await server.start()
    t.equal(await countNotes(server), NOTES, 'after a new start all is there')
    t.match(await server.stop(), { code: 0, stderr: '' })
  })
}
