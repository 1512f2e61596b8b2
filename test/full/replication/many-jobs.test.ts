/** What 500 continuous replications without news cost: memory, and requests to their remote. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type ChildServer, startChildServer } from '../../helpers/child-server.ts'
import { memoryOf } from '../../helpers/memory.ts'
import { call as send } from '../../protocol/served.ts'

const MB = 1024 * 1024
const JOBS = 500
/** The allowed memory of the process above that of an idle server. */
const MAX_GROWTH = 60 * MB
const WATCHED_MS = 20_000

t.setTimeout(300_000)

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
async function call(server: ChildServer, method: string, path: string, body?: object): Promise<any> {
  return (await send(server, method, path, body && { body })).json
}

async function requests(server: ChildServer): Promise<number> {
  const { text } = await send(server, 'GET', '/_node/_local/_prometheus')
  return Number(/^couchdb_httpd_requests_total(?:\{.*\})? (\d+)/m.exec(text)?.[1])
}

async function eventually(what: string, isTrue: () => Promise<boolean>): Promise<void> {
  for (let n = 0; n < 1200; n++) {
    if (await isTrue()) return
    await sleep(100)
  }
  throw new Error(`never: ${what}`)
}

const skip = process.platform !== 'linux' && 'reads /proc'
t.test('500 jobs, half of them pulls, half of them pushes', { skip }, async (t) => {
  const [remote, server] = [await startChildServer(t), await startChildServer(t)]
  const names = Array.from({ length: JOBS }, (_, n) => `db${n}`)
  for (const name of names) for (const each of [remote, server]) await call(each, 'PUT', `/${name}`)
  const pid = server.pid()
  const idle = memoryOf(pid)
  for (const [at, name] of names.entries()) {
    const [source, target] = at % 2 === 0 ? [`${remote.url}/${name}`, name] : [name, `${remote.url}/${name}`]
    const json = await call(server, 'POST', '/_replicate', { source, target, continuous: true })
    if (json.ok !== true) throw new Error(JSON.stringify(json))
  }
  await eventually('all jobs run', async () => {
    const { jobs } = await call(server, 'GET', `/_scheduler/jobs?limit=${JOBS}`)
    return jobs.every((job: { info: unknown }) => job.info !== null)
  })
  // Each feed has had its turn.
  await sleep(WATCHED_MS)
  const before = await requests(remote)
  await sleep(WATCHED_MS)
  const perSecond = ((await requests(remote)) - before) / (WATCHED_MS / 1000)
  t.comment(`${perSecond} requests per second`)
  t.ok(perSecond < 12, `${perSecond} requests per second`)
  const growth = memoryOf(pid) - idle
  const told = `${Math.round(growth / MB)} MB above ${Math.round(idle / MB)} MB`
  t.comment(told)
  t.ok(growth <= MAX_GROWTH, told)
  const began = performance.now()
  for (const [at, name] of names.entries()) {
    if (at % 50 < 2) await call(at % 2 === 0 ? remote : server, 'PUT', `/${name}/news`, {})
  }
  for (const [at, name] of names.entries()) {
    if (at % 50 >= 2) continue
    const there = at % 2 === 0 ? server : remote
    await eventually('news arrives', async () => (await send(there, 'GET', `/${name}/news`)).status === 200)
  }
  const seconds = (performance.now() - began) / 1000
  t.comment(`news of 20 databases after ${seconds.toFixed(1)} s`)
  t.ok(seconds < 90)
})
