/** A server over a PostgreSQL that fails, and starts that cannot succeed. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'

t.setTimeout(180_000)
const server = await startPostgres(t, { settings: { max_connections: '40' } })

async function startNode(t: Test, store?: string): Promise<TestServer> {
  const SETTEE_STORE = store ?? (await server.createDatabase())
  return startTestServer(t, { env: { SETTEE_STORE } })
}

const nameOf = (store: string) => new URL(store).pathname.slice(1)

const write = async ({ request }: TestServer, id: string) => {
  const { status, headers } = await request('PUT', `/notes/${id}`, { body: {} })
  return { status, retryAfter: headers['retry-after'] }
}

async function deep({ request }: TestServer) {
  const { status, json } = await request('GET', '/_up?deep=1')
  const { facts } = json as { facts: { name: string; ok: boolean; reason?: string }[] }
  return { status, store: facts.find(({ name }) => name === 'store') }
}

for (const how of ['fast', 'immediate'] as const) {
  t.test(
    `PostgreSQL stops (${how}): 503 until it is back, and everything goes on without a restart`,
    async (t) => {
      const node = await startNode(t)
      await node.request('PUT', '/notes')
      t.equal((await write(node, 'before')).status, 201)
      const answer = await fetch(`${node.url}/notes/_changes?feed=continuous&since=now&heartbeat=1000`)
      const feed = { text: '', hasEnded: false }
      const read = async () => {
        for await (const chunk of answer.body ?? []) feed.text += Buffer.from(chunk).toString()
        feed.hasEnded = true
      }
      const reading = read()
      await server.stop(how)
      t.same(await write(node, 'refused'), { status: 503, retryAfter: '5' })
      t.match(await node.request('GET', '/notes/before'), {
        status: 503,
        json: { error: 'service_unavailable' },
      })
      t.match(await node.request('GET', '/_up'), { status: 200 })
      t.match(await deep(node), { status: 503, store: { ok: false, reason: /cannot be reached/ } })
      await server.start()
      await until(async () => (await write(node, 'again')).status === 201)
      await until(async () => (await deep(node)).status === 200)
      t.match(await node.request('GET', '/notes/before'), { status: 200 })
      t.match(await node.request('GET', '/notes/refused'), { status: 404 })
      t.equal((await write(node, 'after')).status, 201)
      await until(() => feed.text.includes('"id":"after"') || feed.hasEnded)
      t.comment(feed.hasEnded ? 'the feed has ended in order' : 'the feed went on')
      await answer.body?.cancel().catch(() => undefined)
      await node.close()
      await reading
    },
  )
}

t.test('all connections are taken: 503, and on again when some are free', async (t) => {
  const store = await server.createDatabase()
  const node = await startNode(t, store)
  await node.request('PUT', '/notes')
  t.equal((await write(node, 'before')).status, 201)
  const others: Client[] = []
  t.teardown(() => Promise.all(others.map((client) => client.end())))
  const endOwn = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'settee %'`
  // The connections of the node are ended, and others take their places.
  const take = async () => {
    for (;;) {
      const client = new Client({ connectionString: store })
      client.on('error', () => undefined)
      try {
        await client.connect()
        others.push(client)
      } catch {
        return
      }
    }
  }
  await until(async () => {
    await server.query(endOwn)
    await take()
    const [row] = await server.query(
      `SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name LIKE 'settee %'`,
    )
    return row?.n === 0
  })
  t.same(await write(node, 'refused'), { status: 503, retryAfter: '5' })
  await Promise.all(others.splice(0).map((client) => client.end()))
  await until(async () => (await write(node, 'again')).status === 201)
  t.match(await node.request('GET', '/notes/before'), { status: 200 })
})

t.test(
  'a node that starts before PostgreSQL waits for it, and ends at once if it is stopped meanwhile',
  async (t) => {
    const store = await server.createDatabase()
    const folder = await temporaryFolder(t)
    const logFile = join(folder, 'log')
    await server.stop('fast')
    const ending = new AbortController()
    const start = (signal?: AbortSignal) =>
      startTestServer(t, {
        env: { SETTEE_STORE: store },
        logLevel: 'warning',
        logFile,
        ...(signal && { ending: signal }),
      })
    const ended = t.rejects(start(ending.signal), { name: 'AbortError' })
    const log = () => readFile(logFile, 'utf8').catch(() => '')
    await until(async () => (await log()).includes('tried again for 60 s'))
    ending.abort()
    await ended
    const node = start()
    await until(async () => (await log()).split('tried again').length === 3)
    await server.start()
    t.equal((await (await node).request('PUT', '/notes')).status, 201)
  },
)

t.test('a start that cannot succeed says why in one line', async (t) => {
  const store = await server.createDatabase()
  const refusal = (address: string) =>
    startNode(t, address).then(
      () => 'it started',
      (error: Error) => `${error.name}: ${error.message}`,
    )
  const absent = startTestServer(t, {
    env: { SETTEE_STORE: store.replace(/:\d+\//, ':1/') },
    storeWaitMs: 600,
  })
  await t.rejects(absent, {
    name: 'StartError',
    message:
      /^The store postgres:\/\/settee@127\.0\.0\.1:1\/test_\d+ cannot be reached: connect ECONNREFUSED[^\n]*$/,
  })
  t.match(
    await refusal(store.replace('settee@', 'nobody@')),
    /cannot be reached: role "nobody" does not exist/,
  )
  await server.query(`CREATE DATABASE latin OWNER settee ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
  t.match(await refusal(store.replace(/\/[^/]+$/, '/latin')), /has the encoding LATIN1 instead of UTF8/)
  const newer = await server.createDatabase()
  await (await startNode(t, newer)).close()
  await server.query(
    'UPDATE settee.schema_version SET version = 99, oldest_compatible = 98',
    [],
    nameOf(newer),
  )
  t.match(
    await refusal(newer),
    /: The tables in PostgreSQL have the schema 99 of a newer settee, which works with settees from the schema 98 on\. This one knows \d+\.$/,
  )
  await server.query('UPDATE settee.schema_version SET oldest_compatible = 1', [], nameOf(newer))
  t.equal(await refusal(newer), 'it started')
  const shared = await temporaryFolder(t)
  await startTestServer(t, { env: { SETTEE_STORE: store }, dataDir: shared })
  await t.rejects(startTestServer(t, { env: { SETTEE_STORE: store }, dataDir: shared }), {
    name: 'StartError',
    message: /is in use by another settee process/,
  })
})
