/** Documents of `_replicator` as real clients write them: nano, PouchDB, and the sessions of CouchDB's manual. */
import nano from 'nano'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'

PouchDB.plugin(memoryAdapter)

const auth = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

interface ReplicationDocument extends nano.MaybeDocument {
  readonly _replication_state?: string
  readonly _replication_stats?: { readonly docs_written: number }
  readonly source?: string
}

async function until<T>(find: () => Promise<T | undefined | false | null>): Promise<T> {
  for (;;) {
    const found = await find()
    if (found) return found
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function withPassword({ url }: TestServer): string {
  return url.replace('://', `://${auth}@`)
}

t.test('nano starts, asks for and ends replications', async (t) => {
  for (const isOpen of [false, true]) {
    const server = await startTestServer(t, isOpen ? {} : { env })
    const couch = nano(isOpen ? server.url : withPassword(server))
    for (const name of ['_replicator', 'notes', 'copy']) await couch.db.create(name)
    await couch.use('notes').insert({ text: 'first' } as nano.MaybeDocument, 'a')
    const { replication } = couch.db
    const enable = async (options: object) => {
      const { id } = (await replication.enable('notes', 'copy', options)) as unknown as { id: string }
      return id
    }
    const query = async (id: string) => (await replication.query(id, {})) as unknown as ReplicationDocument
    const id = await enable({})
    const done = await until(async () => {
      const doc = await query(id)
      return doc._replication_state === 'completed' && doc
    })
    t.equal(done._replication_stats?.docs_written, 1)
    if (!isOpen) t.match(done.source, /adm:\*{5}@/)
    const all = await enable({ continuous: true })
    await couch.use('notes').insert({ text: 'second' } as nano.MaybeDocument, 'b')
    await until(async () =>
      couch
        .use('copy')
        .get('b')
        .catch(() => null),
    )
    const { _rev = '' } = await query(all)
    await replication.disable(all, _rev, {})
    await until(async () => (await server.request('GET', '/_scheduler/jobs', { auth })).json.total_rows === 0)
  }
})

t.test('PouchDB carries replications to a server, which starts them', async (t) => {
  const server = await startTestServer(t, { env })
  for (const name of ['_replicator', 'notes', 'copy']) await server.request('PUT', `/${name}`, { auth })
  await server.request('PUT', '/notes/a', { auth, body: {} })
  const local = new PouchDB<ReplicationDocument>('replications', { adapter: 'memory' })
  t.teardown(() => local.destroy())
  await local.put({ _id: 'x', source: `${withPassword(server)}/notes`, target: 'copy' } as never)
  await local.put({ _id: 'bad', source: 7 } as never)
  const remote = `${withPassword(server)}/_replicator`
  t.match(await local.replicate.to(remote), { ok: true, doc_write_failures: 0 })
  await until(async () => (await server.request('GET', '/copy/a', { auth })).status === 200)
  const end = async (id: string) => {
    await local.replicate.from(remote)
    const doc = await local.get(id)
    return doc._replication_state !== undefined && doc
  }
  t.match(await until(() => end('x')), { owner: 'adm', _replication_state: 'completed', source: /\*{5}/ })
  t.match(await until(() => end('bad')), { _replication_state: 'failed' })
})

t.test("the sessions of CouchDB's manual", async (t) => {
  const server = await startTestServer(t, { env })
  const call = (method: string, path: string, body?: unknown) =>
    server.request(method, path, { auth, ...(body !== undefined && { body }) })
  for (const name of ['_replicator', 'foo', 'bar']) await call('PUT', `/${name}`)
  const my = {
    _id: 'my_rep',
    source: `${withPassword(server)}/foo`,
    target: { url: `${withPassword(server)}/bar` },
  }
  t.match(await call('POST', '/_replicator', { ...my, create_target: true, continuous: true }), {
    status: 201,
  })
  const running = await until(async () => {
    const { json } = await call('GET', '/_scheduler/docs/_replicator/my_rep')
    return json.state === 'running' && json
  })
  t.match(running, {
    database: '_replicator',
    doc_id: 'my_rep',
    id: /^[0-9a-f]{32}\+continuous\+create_target$/,
    node: 'nonode@nohost',
    source: `${server.url}/foo/`,
    error_count: 0,
    source_proxy: null,
    target_proxy: null,
  })
  const { json: doc } = await call('GET', '/_replicator/my_rep')
  t.match(doc, { owner: 'adm', continuous: true })
  const invalid = await call('PUT', '/_replicator/copy', { source: 'foo', target: 'bar', filter: 7 })
  t.match(invalid, { status: 403, json: { error: 'forbidden', reason: /`filter` must be a string/ } })
  t.match(await call('GET', '/_scheduler/docs/nothing'), { status: 400, json: { reason: 'Invalid path' } })
  t.match(await call('GET', '/_scheduler/docs/_replicator/none'), { status: 404 })
  t.match(await call('GET', '/_scheduler/docs/other/_replicator'), { status: 404 })
  const gone = await call('PUT', '/_replicator/my_rep', { _rev: doc._rev, _deleted: true })
  t.match(gone, { status: 200 })
  await until(async () => (await call('GET', '/_scheduler/docs')).json.total_rows === 0)
})
