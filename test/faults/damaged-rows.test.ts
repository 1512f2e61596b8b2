/** A note or a picture that the disk has changed, as clients meet it: its own error, while all others still work. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { startPostgres } from '../helpers/postgres-server.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

const PICTURE = Buffer.from('the bytes of a picture '.repeat(20_000))

async function startNotes(t: Test, store?: string): Promise<TestServer> {
  const server = await startTestServer(t, store === undefined ? {} : { env: { SETTEE_STORE: store } })
  await server.request('PUT', '/notes')
  for (const id of ['a', 'b', 'c']) {
    await server.request('PUT', `/notes/${id}`, { body: JSON.stringify({ text: `the text of ${id}` }) })
  }
  return server
}

/** How a test damages rows, of a database in a file or in PostgreSQL. */
interface Engine {
  readonly name: string
  start(t: Test): Promise<TestServer>
  damage(server: TestServer, sql: { readonly file: string; readonly postgres: string }): Promise<void>
}

const postgres = await startPostgres(t)
const stores = new WeakMap<TestServer, string>()

const ENGINES: readonly Engine[] = [
  { name: 'a file', start: (t) => startNotes(t), damage: (server, { file }) => damage(server, file) },
  {
    name: 'PostgreSQL',
    start: async (t) => {
      const store = await postgres.createDatabase()
      const server = await startNotes(t, store)
      stores.set(server, new URL(store).pathname.slice(1))
      return server
    },
    damage: async (server, sql) => {
      const changed = await postgres.query(`${sql.postgres} RETURNING 1`, [], stores.get(server))
      if (changed.length === 0) throw new Error(`${sql.postgres} changed nothing`)
    },
  },
]

/** Changes the file while the server is stopped. */
async function damage(server: TestServer, ...sql: readonly string[]): Promise<void> {
  await server.stop()
  const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
  for (const one of sql) if (file.prepare(one).run().changes === 0) throw new Error(`${one} changed nothing`)
  file.close()
  await server.start()
}

function inJson(body: unknown) {
  return { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
}

async function download({ url }: TestServer, id: string): Promise<{ status: number; bytes: Buffer }> {
  const answer = await fetch(`${url}/notes/${id}/picture`)
  return { status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) }
}

const BODY = {
  file: `UPDATE revision SET body = replace(body, 'text of b', 'text 0f b')`,
  postgres: `UPDATE settee.doc SET body = replace(body, 'text of b', 'text 0f b') WHERE id = 'b'`,
}
const ROW = {
  // With `leaves`, since the index of `seq` would prove the row.
  file: `UPDATE doc SET seq = 70, leaves = 3 WHERE id = 'b'`,
  // With the text, which would prove the row.
  postgres: `UPDATE settee.doc SET rev = replace(rev, '1-', '2-'), body = body || ' ' WHERE id = 'b'`,
}

t.test('PostgreSQL: a note whose row alone is damaged is whole again in a moment', async (t) => {
  const [, engine] = ENGINES as [Engine, Engine]
  const server = await engine.start(t)
  const before = (await server.request('GET', '/notes/b')).json
  await engine.damage(server, { file: '', postgres: ROW.postgres.replace(", body = body || ' '", '') })
  const broken = await server.request('GET', '/notes/b')
  t.match(broken.json, { error: 'file_corruption', reason: /it is made again in a moment/ })
  const read = async () => (await server.request('GET', '/notes/b')).json
  await until('it is made again', async () => (await read())._id === 'b')
  t.strictSame(await read(), before)
  const { json: changes } = await server.request('GET', '/notes/_changes')
  t.strictSame(
    changes.results.map(({ id }: { id: string }) => id),
    ['a', 'c', 'b'],
  )
  t.match((await server.request('GET', '/notes')).json, { doc_count: 3 })
})

for (const engine of ENGINES) {
  t.test(`${engine.name}: a damaged note is an error, and lists go on without it`, async (t) => {
    const server = await engine.start(t)
    await engine.damage(server, BODY)
    const json = async (method: string, path: string, body?: unknown) => {
      const answer = await server.request(method, path, body === undefined ? {} : inJson(body))
      return { status: answer.status, body: JSON.parse(answer.text) }
    }
    const one = await json('GET', '/notes/b')
    t.match(one, {
      status: 500,
      body: { error: 'file_corruption', reason: /The document b of the database notes/ },
    })
    t.equal((await json('GET', '/notes/a')).status, 200)
    const error = 'file_corruption'
    const all = await json('GET', '/notes/_all_docs?include_docs=true')
    t.match(all, {
      status: 200,
      body: { rows: [{ doc: { _id: 'a' } }, { id: 'b', doc: null, error }, { id: 'c' }] },
    })
    const keys = await json('POST', '/notes/_all_docs?include_docs=true', { keys: ['b', 'c'] })
    t.match(keys.body, { rows: [{ id: 'b', doc: null, error }, { doc: { _id: 'c' } }] })
    const changes = await json('GET', '/notes/_changes?include_docs=true')
    t.match(changes.body, { results: [{ doc: { _id: 'a' } }, { id: 'b', error }, { doc: { _id: 'c' } }] })
    const filtered = await json('POST', '/notes/_changes?filter=_selector', {
      selector: { _id: { $gt: 'a' } },
    })
    t.match(filtered.body, { results: [{ id: 'b' }, { id: 'c' }] })
    const got = await json('POST', '/notes/_bulk_get?revs=true', { docs: [{ id: 'a' }, { id: 'b' }] })
    t.match(got.body, {
      results: [{ docs: [{ ok: { _id: 'a' } }] }, { docs: [{ error: { id: 'b', error } }] }],
    })
    const found = await json('POST', '/notes/_find', { selector: { text: { $exists: true } } })
    t.strictSame(
      found.body.docs.map(({ _id }: { _id: string }) => _id),
      ['a', 'c'],
    )
    t.match(found.body.warning, /^No matching index.*\n1 document, which is damaged, was left out\.$/)
    const map = 'function (doc) { emit(doc._id) }'
    await json('PUT', '/notes/_design/d', { views: { v: { map } } })
    t.match((await json('GET', '/notes/_design/d/_view/v?include_docs=true')).body, {
      total_rows: 2,
      rows: [{ id: 'a' }, { id: 'c' }],
    })
    const rev = changes.body.results[1].changes[0].rev
    t.equal(
      (await json('PUT', `/notes/b?rev=${rev}`, { text: 'again' })).status,
      201,
      'it can be saved again',
    )
    t.match((await json('GET', '/notes/b')).body, { text: 'again' })
    t.equal((await json('GET', `/notes/b?rev=${rev}`)).status, 500, 'the damaged revision stays an error')
  })

  t.test(`${engine.name}: a note whose row is damaged is an error, and lists leave it out`, async (t) => {
    const server = await engine.start(t)
    await engine.damage(server, ROW)
    t.match((await server.request('GET', '/notes/b')).json, { error: 'file_corruption' })
    t.match((await server.request('GET', '/notes/_all_docs')).json, { rows: [{ id: 'a' }, { id: 'c' }] })
    t.match((await server.request('GET', '/notes/_changes')).json, { results: [{ id: 'a' }, { id: 'c' }] })
    const selected = await server.request(
      'POST',
      '/notes/_find',
      inJson({ selector: { text: { $exists: true } } }),
    )
    t.match(selected.json.warning, /1 document, which is damaged, was left out/)
    const asked = inJson({ docs: [{ id: 'b' }, { id: 'c' }] })
    t.match((await server.request('POST', '/notes/_bulk_get', asked)).json, {
      results: [{ docs: [{ error: { error: 'file_corruption' } }] }, { docs: [{ ok: { _id: 'c' } }] }],
    })
  })
}

for (const change of [
  `rev = '2-ab'`,
  'deleted = 1',
  'leaves = 3',
  'winner = 99',
  `rev = CAST(rev AS BLOB)`,
]) {
  t.test(`a note whose row is damaged, ${change}, is read from its revisions`, async (t) => {
    const server = await startNotes(t)
    const before = await server.request('GET', '/notes/b')
    await damage(server, `UPDATE doc SET ${change} WHERE id = 'b'`)
    t.same((await server.request('GET', '/notes/b')).json, before.json)
    const ids = ({ json }: { json: unknown }) =>
      (json as { results: { id: string }[] }).results.map(({ id }) => id)
    for (const query of ['', '?include_docs=true'])
      t.same(ids(await server.request('GET', `/notes/_changes${query}`)), ['a', 'b', 'c'])
    const rev = (before.json as { _rev: string })._rev
    t.equal((await server.request('PUT', `/notes/b?rev=${rev}`, { body: '{"text":"new"}' })).status, 201)
    t.match((await server.request('GET', '/notes/b')).json, { text: 'new' })
    t.match((await server.request('GET', '/notes')).json, { doc_count: 3, doc_del_count: 0 })
  })
}

t.test('a damaged picture is an error, and another upload of it mends it everywhere', async (t) => {
  const server = await startNotes(t)
  const rev = (id: string) =>
    server.request('GET', `/notes/${id}`).then(({ json }) => (json as { _rev: string })._rev)
  const upload = async (id: string) =>
    server.request('PUT', `/notes/${id}/picture?rev=${await rev(id)}`, {
      body: PICTURE,
      headers: { 'content-type': 'image/jpeg' },
    })
  t.equal((await upload('a')).status, 201)
  await damage(server, `UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1`)
  await t.rejects(
    download(server, 'a').then(({ status, bytes }) => {
      if (status !== 200 || !PICTURE.equals(bytes)) throw new Error('not the picture')
    }),
  )
  t.equal((await upload('b')).status, 201)
  for (const id of ['a', 'b']) {
    const { status, bytes } = await download(server, id)
    t.equal(status, 200)
    t.ok(PICTURE.equals(bytes), `the picture of ${id} is whole`)
  }
})

t.test(
  'a damaged checkpoint counts as missing, and a damaged security object lets only admins in',
  async (t) => {
    const server = await startNotes(t)
    await server.request('PUT', '/notes/_local/checkpoint', { body: '{"last_seq":"3-x"}' })
    await server.request('PUT', '/notes/_security', { body: '{"members":{"names":["ben"]}}' })
    await damage(
      server,
      `UPDATE local SET body = replace(body, '3-x', '9-x')`,
      `UPDATE security SET body = replace(body, 'ben', 'eve')`,
    )
    t.equal((await server.request('GET', '/notes/_local/checkpoint')).status, 404)
    t.equal(
      (await server.request('PUT', '/notes/_local/checkpoint', { body: '{"last_seq":"1-x"}' })).status,
      201,
    )
    t.match((await server.request('GET', '/notes/_local/checkpoint')).json, { last_seq: '1-x' })
    t.notMatch((await server.request('GET', '/notes/_security')).text, /eve/)
  },
)
