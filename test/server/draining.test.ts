/** What a node that is about to stop tells load balancers, and what it still does. */
import { Agent, request } from 'node:http'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'

interface Answer {
  readonly status: number
  readonly connection: string | undefined
  readonly text: string
}

t.test(
  '_up says that the node stops while it serves as before; then feeds end in order, and it is gone',
  async (t) => {
    const server = await startTestServer(t)
    const agent = new Agent({ keepAlive: true })
    t.teardown(() => agent.destroy())
    const call = (method: string, path: string, body?: string) =>
      new Promise<Answer>((resolve, reject) => {
        const sent = request(`${server.url}${path}`, { method, agent }, (response) => {
          let text = ''
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
          const { statusCode = 0, headers } = response
          response.on('end', () => resolve({ status: statusCode, connection: headers.connection, text }))
          response.on('error', reject)
        })
        sent.on('error', reject).setHeader('Content-Type', 'application/json').end(body)
      })
    t.match(await call('PUT', '/_config/settee/drain_seconds', '"4"'), { status: 200 })
    await call('PUT', '/notes')
    t.match(await call('GET', '/_up'), { status: 200, connection: 'keep-alive' })
    const feed = call('GET', '/notes/_changes?feed=longpoll')
    const closed = server.close()
    // At once: on a busy machine, one after the other would take longer than the node serves.
    const [up, list, offered, saved] = await Promise.all([
      call('GET', '/_up'),
      call('GET', '/notes/_all_docs'),
      fetch(`${server.url}/notes/_changes`, { headers: { 'x-settee-next-node': '502' } }),
      call('PUT', '/notes/a', '{}'),
    ])
    t.match(up, { status: 404, connection: 'close' })
    t.same(JSON.parse(up.text), { status: 'maintenance_mode' })
    t.match(list, { status: 200, connection: 'close' })
    t.equal(offered.status, 502, 'a load balancer may offer a read to another node')
    t.match(saved, { status: 201, connection: 'close' })
    t.match(JSON.parse((await feed).text), { results: [{ id: 'a' }] }, 'a feed goes on meanwhile')
    const last = call('GET', '/notes/_changes?feed=longpoll&since=now')
    t.match(JSON.parse((await last).text), { results: [] }, 'the feed ends in order')
    await closed
    await t.rejects(call('GET', '/_up'), { code: 'ECONNREFUSED' })
  },
)
