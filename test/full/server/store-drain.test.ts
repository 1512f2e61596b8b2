/** A node that stops behind Caddy, which asks each node for /_up every second, loses no request. */
import t from 'tap'
import { Agent, request } from 'undici'
import { caddyOver } from '../../helpers/node-balancers.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer } from '../../helpers/server.ts'

t.setTimeout(120_000)

t.test('writes and reads through a load balancer all succeed while a node stops', async (t) => {
  const SETTEE_STORE = await (await startPostgres(t)).createDatabase()
  const env = { SETTEE_STORE, COUCHDB_USER: 'boss', COUCHDB_PASSWORD: 'secret' }
  const one = await startTestServer(t, { env })
  const two = await startTestServer(t, { env })
  const balancer = await caddyOver(t, [one.url, two.url], { hasAffinity: false })
  const dispatcher = new Agent({ connect: { ca: balancer.ca } })
  t.teardown(() => dispatcher.destroy())
  const headers = { authorization: `Basic ${btoa('boss:secret')}`, 'content-type': 'application/json' }
  const call = async (method: 'GET' | 'PUT' | 'POST', path: string, body: string | null = null) => {
    const answer = await request(balancer.url + path, { method, dispatcher, headers, body })
    await answer.body.dump()
    return answer.statusCode
  }
  t.equal(await call('PUT', '/notes'), 201)
  const statuses = new Map<string, number>()
  const note = (what: string) => void statuses.set(what, (statuses.get(what) ?? 0) + 1)
  let isOver = false
  const client = async (at: number) => {
    for (let n = 0; !isOver; n++) {
      note(`PUT ${await call('PUT', `/notes/${at}-${n}`, '{}')}`)
      note(`POST ${await call('POST', '/notes/_bulk_get', `{"docs":[{"id":"${at}-${n}"}]}`)}`)
      note(`GET ${await call('GET', `/notes/${at}-${n}`)}`)
    }
  }
  const clients = Array.from({ length: 8 }, (_, at) => client(at))
  await new Promise((resolve) => setTimeout(resolve, 1000))
  await two.close()
  await new Promise((resolve) => setTimeout(resolve, 500))
  isOver = true
  await Promise.all(clients)
  t.same([...statuses.keys()].toSorted(), ['GET 200', 'POST 200', 'PUT 201'], JSON.stringify([...statuses]))
})
