/** Replications by the server, between listening servers; protocol.md 14, 16. */
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

const ODD = 'q"\\ü/😀'
const auth = 'anna:secret'
const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }

async function pair(t: Test): Promise<readonly [TestServer, TestServer]> {
  const first = await startTestServer(t, { env })
  const second = await startTestServer(t, { env })
  return [first, second]
}

function url(server: TestServer, name: string): string {
  return `${server.url.replace('://', `://${auth}@`)}/${name}`
}

async function call(server: TestServer, method: string, path: string, body?: unknown) {
  return server.request(method, path, { auth, ...(body !== undefined && { body }) })
}

async function write(server: TestServer, name: string, docs: readonly object[]): Promise<void> {
  const { status, text } = await call(server, 'POST', `/${name}/_bulk_docs`, { docs })
  if (status !== 201 || text.includes('"error"')) throw new Error(text)
}

/** Everything about a database that a replication must carry over. */
async function contents(server: TestServer, name: string): Promise<unknown> {
  const { json } = await call(server, 'GET', `/${name}/_changes?style=all_docs`)
  const rows = json.results as { id: string; changes: { rev: string }[]; deleted?: boolean }[]
  const docs = rows.flatMap(({ id, changes }) => changes.map(({ rev }) => ({ id, rev })).sort(byRev))
  const found = await call(server, 'POST', `/${name}/_bulk_get?revs=true&attachments=true`, { docs })
  return (found.json.results as { id: string }[]).sort((a, b) => (a.id < b.id ? -1 : 1))
}

function byRev(a: { rev: string }, b: { rev: string }): number {
  return a.rev < b.rev ? -1 : 1
}

t.test('a one-shot replication copies branches, tombstones and attachments', async (t) => {
  const [first, second] = await pair(t)
  await call(first, 'PUT', '/notes')
  await write(
    first,
    'notes',
    Array.from({ length: 1200 }, (_, n) => ({ _id: `n${n}`, text: `note ${n}` })),
  )
  // A number that JSON.parse would change, and an id that needs escapes everywhere.
  const odd = `/notes/${encodeURIComponent(ODD)}`
  await first.request('PUT', odd, { auth, body: '{"at":9007199254740993}' })
  await call(first, 'POST', '/notes/_bulk_docs', {
    new_edits: false,
    docs: [
      { _id: 'c', _rev: '2-b', _revisions: { start: 2, ids: ['b', 'a'] }, v: 1 },
      { _id: 'c', _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] }, v: 2 },
      { _id: 'gone', _rev: '2-d', _revisions: { start: 2, ids: ['d', 'x'] }, _deleted: true },
    ],
  })
  const large = randomBytes(700_000)
  await first.request('PUT', '/notes/pic/large.bin', {
    auth,
    body: large,
    headers: { 'content-type': 'image/png' },
  })
  await call(first, 'PUT', '/notes/small', {
    _attachments: { 'a.txt': { content_type: 'text/plain', data: 'aGVsbG8=' } },
  })
  const body = { source: 'notes', target: url(second, 'copy'), create_target: true }
  const { status, json } = await call(first, 'POST', '/_replicate', body)
  t.match({ status, json }, { status: 200, json: { ok: true, replication_id_version: 4 } })
  t.match(json.history[0], {
    docs_read: 1206,
    docs_written: 1206,
    doc_write_failures: 0,
    missing_found: 1206,
  })
  t.strictSame(await contents(second, 'copy'), await contents(first, 'notes'))
  const again = await call(first, 'POST', '/_replicate', body)
  t.match(again.json, { ok: true, no_changes: true, session_id: json.session_id })
  const copied = await call(second, 'GET', odd.replace('notes', 'copy'))
  t.match(copied.text, '"at":9007199254740993')

  await write(first, 'notes', [{ _id: 'later' }])
  await call(second, 'PUT', '/pulled')
  const pulled = await call(second, 'POST', '/_replicate', {
    source: { url: `${first.url}/notes`, auth: { basic: { username: 'anna', password: 'secret' } } },
    target: 'pulled',
  })
  t.match(pulled.json.history[0], { docs_written: 1207 })
  t.strictSame(await contents(second, 'pulled'), await contents(first, 'notes'))
  // An edit of a document whose attachments the target has sends stubs alone.
  const { json: pic } = await call(first, 'GET', '/notes/pic')
  await call(first, 'PUT', '/notes/pic', { ...pic, edited: true })
  t.match((await call(first, 'POST', '/_replicate', body)).json.history[0], { docs_written: 2 })
  t.strictSame(await contents(second, 'copy'), await contents(first, 'notes'))
})

t.test('conflicts that were left out are copied later, also where PouchDB was', async (t) => {
  const [server] = [await startTestServer(t, { env })]
  await call(server, 'PUT', '/notes')
  await call(server, 'POST', '/notes/_bulk_docs', {
    new_edits: false,
    docs: [
      { _id: 'c', _rev: '1-a', v: 1 },
      { _id: 'c', _rev: '1-b', v: 2 },
    ],
  })
  const body = { source: 'notes', target: 'copy', create_target: true }
  const winners = await call(server, 'POST', '/_replicate', { ...body, winning_revs_only: true })
  t.match(winners.json.history[0], { docs_written: 1 })
  const all = await call(server, 'POST', '/_replicate', body)
  t.match(all.json.history[0], { docs_written: 1 })
  t.strictSame(await contents(server, 'copy'), await contents(server, 'notes'))

  // Only PouchDB's checkpoint is left.
  const { json } = await call(server, 'GET', '/copy/_local_docs')
  const ids = (json.rows as { id: string }[]).map(({ id }) => id).filter((id) => !id.endsWith('=='))
  for (const id of ids) {
    const { _rev } = (await call(server, 'GET', `/copy/${id}`)).json
    t.equal((await call(server, 'DELETE', `/copy/${id}?rev=${_rev}`)).status, 200)
  }
  const again = await call(server, 'POST', '/_replicate', body)
  t.match(again.json, { no_changes: true, replication_id_version: 4, history: [{ docs_read: 0 }] })
})

t.test('a continuous replication follows, is shown, and is cancelled', async (t) => {
  const [first, second] = await pair(t)
  await call(first, 'PUT', '/notes')
  await call(second, 'PUT', '/notes')
  const jobs = [
    { source: 'notes', target: url(second, 'notes'), continuous: true, checkpoint_interval: 100 },
    { source: url(second, 'notes'), target: 'notes', continuous: true, checkpoint_interval: 100 },
  ]
  const ids: string[] = []
  for (const job of jobs) {
    const { status, json } = await call(first, 'POST', '/_replicate', job)
    t.equal(status, 202)
    t.match(json._local_id, /^[0-9a-f]{32}\+continuous$/)
    ids.push(json._local_id)
  }
  await write(first, 'notes', [{ _id: 'a' }])
  await write(second, 'notes', [{ _id: 'b' }])
  await until(async () => (await call(second, 'GET', '/notes/a')).status === 200)
  await until(async () => (await call(first, 'GET', '/notes/b')).status === 200)
  const { json } = await call(first, 'GET', '/_scheduler/jobs')
  t.match(json, { total_rows: 2, offset: 0 })
  t.match(
    json.jobs.find(({ id }: { id: string }) => id === ids[0]),
    {
      database: null,
      doc_id: null,
      user: 'anna',
      target: `${second.url}/notes/`,
      history: [{ type: 'started' }, { type: 'added' }],
      node: 'nonode@nohost',
    },
  )
  t.notMatch(JSON.stringify(json), /secret/)
  const tasks = (await call(first, 'GET', '/_active_tasks')).json as { type: string }[]
  t.equal(tasks.filter(({ type }) => type === 'replication').length, 2)
  t.notMatch(JSON.stringify(tasks), /secret/)
  for (const id of ids) {
    t.match((await call(first, 'POST', '/_replicate', { cancel: true, id })).json, {
      ok: true,
      _local_id: id,
    })
  }
  await until(async () => (await call(first, 'GET', '/_scheduler/jobs')).json.total_rows === 0)
  t.equal((await call(first, 'POST', '/_replicate', { cancel: true, id: ids[0] })).status, 404)
  t.equal((await call(first, 'GET', `/_scheduler/jobs/${ids[0]}`)).status, 404)
})

t.test('nothing is compressed between servers of one machine', async (t) => {
  const server = await startTestServer(t, { env })
  const accepted: unknown[] = []
  const remote = createServer((request, answer) => {
    accepted.push(request.headers['accept-encoding'])
    answer.writeHead(404, { 'content-type': 'application/json' }).end('{}')
  })
  await new Promise<void>((resolve) => remote.listen(0, '127.0.0.1', resolve))
  t.teardown(() => remote.close())
  const source = `http://127.0.0.1:${(remote.address() as AddressInfo).port}/notes`
  t.match(await call(server, 'POST', '/_replicate', { source, target: 'copy' }), {
    status: 500,
    json: { error: 'db_not_found', reason: `could not open ${source}/` },
  })
  t.strictSame(accepted, ['identity'])
})

t.test('a since_seq that the source refuses is no checkpoint of later replications', async (t) => {
  const server = await startTestServer(t, { env })
  for (const name of ['notes', 'copy']) await call(server, 'PUT', `/${name}`)
  await write(server, 'notes', [{ _id: 'a' }])
  const [source, target] = [url(server, 'notes'), url(server, 'copy')]
  const replicate = (more: object) => call(server, 'POST', '/_replicate', { source, target, ...more })
  t.match(await replicate({ since_seq: 'x' }), { status: 500, json: { error: 'replication_failed' } })
  t.match(await replicate({}), { status: 200, json: { ok: true, history: [{ docs_written: 1 }] } })
})

t.test('a since_seq of 0 from an empty source changes nothing and is no checkpoint', async (t) => {
  const server = await startTestServer(t, { env })
  for (const name of ['notes', 'copy']) await call(server, 'PUT', `/${name}`)
  const [source, target] = [url(server, 'notes'), url(server, 'copy')]
  for (const since_seq of ['0', 0])
    t.same((await call(server, 'POST', '/_replicate', { source, target, since_seq })).json, {
      ok: true,
      no_changes: true,
    })
  t.same((await call(server, 'GET', '/copy/_local_docs')).json.rows, [])
})
