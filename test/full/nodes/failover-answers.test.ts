/**
 * What clients of two nodes are answered while a standby of PostgreSQL takes over: a database that exists is never said to be missing,
 * and each error has the form of settee's.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { startPostgres, startStandby } from '../../helpers/postgres-server.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'

const DATABASES = Array.from({ length: 12 }, (_, n) => `notes${n}`)
const ADMIN = 'boss:secret'

t.setTimeout(300_000)

t.test('two nodes, before, during and after a failover', async (t) => {
  const primary = await startPostgres(t)
  const network = await cuttableNetwork(t, primary.port)
  const address = new URL(await primary.createDatabase())
  const standby = await startStandby(t, primary)
  address.port = String(network.port)
  const env = { COUCHDB_USER: 'boss', COUCHDB_PASSWORD: 'secret', SETTEE_STORE: address.href }
  const nodes = [await startTestServer(t, { env }), await startTestServer(t, { env })]
  const [one] = nodes as [TestServer]
  for (const db of DATABASES) {
    t.equal((await one.request('PUT', `/${db}`, { auth: ADMIN })).status, 201)
    t.equal((await one.request('PUT', `/${db}/a`, { auth: ADMIN, body: {} })).status, 201)
  }
  await standby.caughtUp()

  const wrong: string[] = []
  let isOver = false
  let answered = 0
  const ask = async (node: TestServer, method: string, path: string, body?: unknown) => {
    const answer = await node.request(method, path, { auth: ADMIN, ...(body !== undefined && { body }) })
    const { status, text, json } = answer
    if (status < 400) answered += 1
    const isOurs =
      typeof json?.error === 'string' && typeof json.reason === 'string' && Object.keys(json).length === 2
    if (status >= 400 && !(status === 503 && isOurs)) wrong.push(`${method} ${path}: ${status} ${text}`)
  }
  const client = async (node: TestServer, place: number) => {
    for (let n = 0; !isOver; n++) {
      const db = DATABASES[(n + place) % DATABASES.length]
      await ask(node, 'GET', `/${db}`)
      await ask(node, 'GET', `/${db}/a`)
      await ask(node, 'POST', `/${db}`, { n })
      await ask(node, 'GET', `/${db}/_changes?limit=1`)
      await ask(node, 'PUT', `/${db}/_local/l${place}-${n}`, { n })
      await ask(node, 'POST', `/${db}/_revs_diff`, { a: ['1-x'] })
    }
  }
  const clients = nodes.flatMap((node) => [1, 4, 7].map((place) => client(node, place)))
  await sleep(500)
  await primary.stop('immediate')
  await standby.promote()
  network.redirect(standby.port)
  network.reset()
  // Until every client has met every database again.
  for (const before = answered; answered < before + 2000; ) await sleep(50)
  isOver = true
  await Promise.all(clients)
  t.same([...new Set(wrong)].slice(0, 10), [])
  t.comment(`${answered} requests were answered, ${wrong.length} wrongly`)
})
