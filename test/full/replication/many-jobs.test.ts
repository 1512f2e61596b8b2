/** What 500 continuous replications without news cost: memory, and requests to their remote. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { Peer } from '../../../bench/peer.ts'
import { startSettee } from '../../../bench/settee.ts'
import { residentBytes } from '../../faults/hostile/watch.ts'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'

const MB = 1024 * 1024
const JOBS = 500
/** The allowed memory of the process above that of an idle server with the same databases. */
const MAX_GROWTH = 60 * MB
const WATCHED_MS = 20_000
const SAMPLE_MS = 500
/**
 * Threads for databases. Without a limit, up to four start when the jobs do (threads/thread-pool.ts): each takes about 25 MB for
 * itself, and keeps up to 16 MB of garbage while it is never at rest, whatever the work is.
 */
const THREADS = 1

t.setTimeout(300_000)

async function requests(peer: Peer): Promise<number> {
  const text = String(await peer.call('GET', '/_node/_local/_prometheus', 200))
  return Number(/^couchdb_httpd_requests_total(?:\{.*\})? (\d+)/m.exec(text)?.[1])
}

async function eventually(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await sleep(100)
}

/** @returns the least memory of the process within a while, in bytes: what is above it now and then is garbage */
async function leastMemory(server: ServerProcess): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let waited = 0; waited < WATCHED_MS; waited += SAMPLE_MS) {
    await sleep(SAMPLE_MS)
    least = Math.min(least, residentBytes(server.pid()))
  }
  return least
}

/** @throws Error for another status */
async function call({ ask }: ServerProcess, method: string, path: string, expected: number, body?: unknown) {
  const { status, json } = await ask(method, path, body)
  if (status !== expected) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(json)}`)
  return json
}

const skip = process.platform !== 'linux' && 'reads /proc'
t.test('500 jobs, half of them pulls, half of them pushes', { skip }, async (t) => {
  const remote = await startSettee()
  t.teardown(() => remote.close())
  const server = await startServerProcess(t, { isBuilt: true, threads: THREADS })
  const names = Array.from({ length: JOBS }, (_, n) => `db${n}`)
  for (const name of names) {
    await remote.call('PUT', `/${name}`, 201)
    await call(server, 'PUT', `/${name}`, 201)
    // An open database costs memory whoever uses it, about 0.25 MB.
    for (const path of ['', '/_local_docs', '/_changes?limit=1'])
      await call(server, 'GET', `/${name}${path}`, 200)
  }
  // Memory at rest: docs/decisions/0038.
  const idle = await leastMemory(server)
  for (const [at, name] of names.entries()) {
    const there = new URL(name, `${remote.address}/`).href
    const [source, target] = at % 2 === 0 ? [there, name] : [name, there]
    await call(server, 'POST', '/_replicate', 202, { source, target, continuous: true })
  }
  await eventually(async () => {
    const { jobs } = await call(server, 'GET', `/_scheduler/jobs?limit=${JOBS}`, 200)
    return jobs.every(({ info }: { info: unknown }) => info !== null)
  })
  // Each feed has had its turn.
  await sleep(2 * WATCHED_MS)
  const [before, watchedFrom] = [await requests(remote), performance.now()]
  const used = await leastMemory(server)
  const perSecond = ((await requests(remote)) - before) / ((performance.now() - watchedFrom) / 1000)
  t.comment(`${perSecond} requests per second`)
  t.ok(perSecond < 12, `${perSecond} requests per second`)
  const growth = used - idle
  const told = `${Math.round(growth / MB)} MB above ${Math.round(idle / MB)} MB`
  t.comment(told)
  t.ok(growth <= MAX_GROWTH, told)
  const began = performance.now()
  const news = names.map((name, at) => ({ path: `/${name}/news`, at })).filter(({ at }) => at % 50 < 2)
  const arrived = async (path: string, at: number) =>
    at % 2 === 0
      ? (await server.ask('GET', path)).status === 200
      : (await fetch(remote.origin + path, { headers: remote.headers })).status === 200
  for (const { path, at } of news) {
    if (at % 2 === 0) await remote.call('PUT', path, 201, '{}')
    else await call(server, 'PUT', path, 201, {})
  }
  for (const { path, at } of news) await eventually(() => arrived(path, at))
  const seconds = (performance.now() - began) / 1000
  t.comment(`news of ${news.length} databases after ${seconds.toFixed(1)} s`)
  t.ok(seconds < 90)
})
