/** What 500 continuous replications without news cost: memory, and requests to their remote. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { Peer } from '../../../bench/peer.ts'
import { startSettee } from '../../../bench/settee.ts'

const MB = 1024 * 1024
const JOBS = 500
/** The allowed memory of the process above that of an idle server with the same databases. */
const MAX_GROWTH = 60 * MB
const WATCHED_MS = 20_000
const SAMPLE_MS = 500
/** Requests at a time. */
const LANES = 50

t.setTimeout(300_000)

async function requests(peer: Peer): Promise<number> {
  const text = String(await peer.call('GET', '/_node/_local/_prometheus', 200))
  return Number(/^couchdb_httpd_requests_total(?:\{.*\})? (\d+)/m.exec(text)?.[1])
}

async function eventually(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await sleep(100)
}

/** @returns the least memory of the process within a while, in bytes: what is above it now and then is garbage */
async function leastMemory(peer: Peer): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let waited = 0; waited < WATCHED_MS; waited += SAMPLE_MS) {
    await sleep(SAMPLE_MS)
    least = Math.min(least, (await peer.memory()) ?? Number.NaN)
  }
  return least
}

async function has(peer: Peer, path: string): Promise<boolean> {
  const { status } = await fetch(peer.origin + path, { headers: peer.headers })
  return status === 200
}

const skip = process.platform !== 'linux' && 'reads /proc'
t.test('500 jobs, half of them pulls, half of them pushes', { skip }, async (t) => {
  const [remote, server] = [await startSettee(), await startSettee()]
  t.teardown(() => Promise.all([remote.close(), server.close()]))
  const names = Array.from({ length: JOBS }, (_, n) => `db${n}`)
  for (const name of names) for (const peer of [remote, server]) await peer.call('PUT', `/${name}`, 201)
  // An open database costs memory whoever uses it, about 0.25 MB, and so does a database thread, about 25 MB. As many threads
  // start here as when all jobs start at once.
  const opening = names.values()
  const openSome = async () => {
    for (const name of opening) {
      for (const path of ['', '/_local_docs', '/_changes?limit=1'])
        await server.call('GET', `/${name}${path}`, 200)
    }
  }
  await Promise.all(Array.from({ length: LANES }, openSome))
  // Memory at rest: docs/decisions/0038.
  const idle = await leastMemory(server)
  for (const [at, name] of names.entries()) {
    const there = new URL(name, `${remote.address}/`).href
    const [source, target] = at % 2 === 0 ? [there, name] : [name, there]
    const body = JSON.stringify({ source, target, continuous: true })
    await server.call('POST', '/_replicate', 202, body)
  }
  await eventually(async () => {
    const { jobs } = JSON.parse(String(await server.call('GET', `/_scheduler/jobs?limit=${JOBS}`, 200)))
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
  for (const { path, at } of news) await (at % 2 === 0 ? remote : server).call('PUT', path, 201, '{}')
  for (const { path, at } of news) await eventually(() => has(at % 2 === 0 ? server : remote, path))
  const seconds = (performance.now() - began) / 1000
  t.comment(`news of ${news.length} databases after ${seconds.toFixed(1)} s`)
  t.ok(seconds < 90)
})
