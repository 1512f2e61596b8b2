/**
 * A node that stops loses no request: behind Caddy, which asks each node for /_up every second, and behind nginx, which
 * asks nobody.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { caddyOver, nginxOver } from '../../helpers/node-balancers.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

t.setTimeout(120_000)

const ADMIN = { COUCHDB_USER: 'boss', COUCHDB_PASSWORD: 'secret' }
const CLIENTS = Number(process.env.SETTEE_DRAIN_CLIENTS ?? 8)
/** Between the requests of a client, in ms. */
const PAUSE_MS = 5

const postgres = await startPostgres(t)

async function startNodes(t: Test, drainSeconds: string): Promise<readonly [TestServer, TestServer]> {
  const env = { SETTEE_STORE: await postgres.createDatabase(), ...ADMIN }
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), `[settee]\ndrain_seconds = ${drainSeconds}\n`)
  return [await startTestServer(t, { env }), await startTestServer(t, { env, dataDir })]
}

/**
 * Reads and writes until a node has stopped, and for some time after that.
 * @param afterMs that time
 * @returns how often each request had each status
 */
async function answersWhile(
  t: Test,
  balancer: { readonly url: string; readonly ca: string },
  stop: () => Promise<void>,
  afterMs: number,
): Promise<Readonly<Record<string, number>>> {
  const dispatcher = new Agent({ connect: { ca: balancer.ca } })
  t.teardown(() => dispatcher.destroy())
  const headers = { authorization: `Basic ${btoa('boss:secret')}`, 'content-type': 'application/json' }
  const answers: Record<string, number> = {}
  const call = async (
    method: 'GET' | 'PUT' | 'POST' | 'DELETE',
    path: string,
    body: string | null = null,
  ) => {
    const answer = await request(balancer.url + path, { method, dispatcher, headers, body })
    const text = await answer.body.text()
    const what = `${method} ${answer.statusCode}`
    answers[what] = (answers[what] ?? 0) + 1
    return text.startsWith('{') ? (JSON.parse(text) as { rev?: string }).rev : undefined
  }
  await call('PUT', '/notes')
  let isOver = false
  const client = async (at: number) => {
    for (let n = 0; !isOver; n++) {
      const id = `${at}-${n}`
      const rev = await call('PUT', `/notes/${id}`, '{}')
      await call('POST', '/notes/_bulk_get', `{"docs":[{"id":"${id}"}]}`)
      await call('GET', `/notes/${id}`)
      await call('DELETE', `/notes/${id}?rev=${rev}`)
      await call('GET', '/notes/_changes?limit=1')
      await sleep(PAUSE_MS)
    }
  }
  const clients = Array.from({ length: CLIENTS }, (_, at) => client(at))
  await sleep(500)
  await stop()
  await sleep(afterMs)
  isOver = true
  await Promise.all(clients)
  t.comment(JSON.stringify(answers))
  return answers
}

const ALL = ['DELETE 200', 'GET 200', 'POST 200', 'PUT 201']

t.test('behind Caddy', async (t) => {
  const [one, two] = await startNodes(t, '3')
  const balancer = await caddyOver(t, [one.url, two.url], { hasAffinity: false })
  const answers = await answersWhile(t, balancer, () => two.close(), 500)
  t.same(Object.keys(answers).toSorted(), ALL)
})

t.test('behind nginx', async (t) => {
  const [one, two] = await startNodes(t, '1')
  const balancer = await nginxOver(t, [one.url, two.url], { hasAffinity: false, failSeconds: 2 })
  // nginx tries the node again meanwhile, and finds nobody there.
  const answers = await answersWhile(t, balancer, () => two.close(), 3000)
  t.same(Object.keys(answers).toSorted(), ALL)
})
