/** Documents of `_replicator`, their life and their secrets; protocol.md 14.3, docs/replication.md. */
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const ADMIN = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

async function call(server: TestServer, method: string, path: string, body?: unknown, auth = ADMIN) {
  return server.request(method, path, { auth, ...(body !== undefined && { body }) })
}

async function prepared(t: Test): Promise<TestServer> {
  const server = await startTestServer(t, { env })
  for (const name of ['_replicator', 'notes', 'copy']) await call(server, 'PUT', `/${name}`)
  await call(server, 'PUT', '/notes/a', { text: 'first' })
  return server
}

async function until<T>(find: () => Promise<T | undefined | false>): Promise<T> {
  for (;;) {
    const found = await find()
    if (found !== undefined && found !== false) return found
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function inState(server: TestServer, path: string, state: string) {
  return until(async () => {
    const { json } = await call(server, 'GET', path)
    return json._replication_state === state && json
  })
}

t.test('a document replicates once, and says so', async (t) => {
  const server = await prepared(t)
  t.match(await call(server, 'PUT', '/_replicator/once', { source: 'notes', target: 'copy' }), {
    status: 201,
  })
  const doc = await inState(server, '/_replicator/once', 'completed')
  t.match(doc, { owner: 'adm', _replication_stats: { docs_written: 1, start_time: /Z$/ } })
  t.match(doc._replication_state_time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  t.equal((await call(server, 'GET', '/copy/a')).json.text, 'first')
  t.match((await call(server, 'GET', '/_scheduler/docs')).json, {
    total_rows: 1,
    offset: 0,
    docs: [
      {
        database: '_replicator',
        doc_id: 'once',
        state: 'completed',
        info: { docs_written: 1 },
        error_count: 0,
      },
    ],
  })
})

t.test('a continuous document follows until it is deleted', async (t) => {
  const server = await prepared(t)
  const body = { source: 'notes', target: 'copy', continuous: true }
  const { json: saved } = await call(server, 'PUT', '/_replicator/all', body)
  await until(async () => (await call(server, 'GET', '/copy/a')).status === 200)
  const shown = (await call(server, 'GET', '/_scheduler/docs/_replicator/all')).json
  t.match(shown, { database: '_replicator', doc_id: 'all', state: 'running', info: { docs_written: 1 } })
  t.match((await call(server, 'GET', `/_scheduler/jobs/${encodeURIComponent(shown.id)}`)).json, {
    database: '_replicator',
    doc_id: 'all',
    user: 'adm',
  })
  t.match((await call(server, 'GET', '/_active_tasks')).json, [{ database: '_replicator', doc_id: 'all' }])
  const again = await call(server, 'PUT', '/_replicator/all', { ...body, _rev: saved.rev, note: 'the same' })
  t.equal((await call(server, 'GET', '/_scheduler/docs/_replicator/all')).json.start_time, shown.start_time)
  await call(server, 'DELETE', `/_replicator/all?rev=${again.json.rev}`)
  await until(async () => (await call(server, 'GET', '/_scheduler/jobs')).json.total_rows === 0)
  t.match(await call(server, 'GET', '/_scheduler/docs'), { json: { total_rows: 0 } })
})

t.test('credentials are shown nowhere, and still work', async (t) => {
  const server = await prepared(t)
  const address = `${server.url.replace('://', `://${ADMIN}@`)}/notes`
  const body = {
    source: address,
    target: { url: `${server.url}/copy`, auth: { basic: { username: 'adm', password: 'pass' } } },
  }
  const { json: saved } = await call(server, 'PUT', '/_replicator/x', body)
  const done = await inState(server, '/_replicator/x', 'completed')
  t.match(done.source, /adm:\*{5}@/)
  t.equal(done.target.auth.basic.password, '*****')
  for (const path of [
    '/_replicator/x',
    `/_replicator/x?rev=${saved.rev}`,
    '/_replicator/_changes?include_docs=true',
    '/_scheduler/docs',
  ]) {
    t.notMatch((await call(server, 'GET', path)).text, /pass(?!word)/, path)
  }
  const { _replication_state: _1, _replication_stats: _2, ...again } = done
  await call(server, 'PUT', '/notes/b', { text: 'second' })
  t.match(await call(server, 'PUT', '/_replicator/x', again), { status: 201 })
  await inState(server, '/_replicator/x', 'completed')
  t.equal((await call(server, 'GET', '/copy/b')).json.text, 'second')
  const { _rev } = await inState(server, '/_replicator/x', 'completed')
  for (const changed of [
    { source: `${done.source}2` },
    { proxy: 'http://other.example/' },
    { sealed_credentials: {} },
  ]) {
    const { status, json } = await call(server, 'PUT', '/_replicator/x', { ...again, _rev, ...changed })
    t.match({ status, json }, { status: 403, json: { error: 'forbidden', reason: /write them again/ } })
  }
})

t.test('requests that are not valid are refused when they are written', async (t) => {
  const server = await prepared(t)
  for (const [body, reason] of [
    [{}, /Missing replicator database/],
    [{ source: 'notes' }, /Missing replicator database/],
    [{ source: 'http://', target: 'copy' }, /invalid url/],
    [{ source: 'notes', target: 'copy', continuous: 1 }, /must be a boolean/],
    [{ source: 'notes', target: 'copy', user_ctx: { roles: 'x' } }, /user_ctx/],
  ] as const) {
    t.match(await call(server, 'PUT', '/_replicator/bad', body), {
      status: 403,
      json: { error: 'forbidden', reason },
    })
  }
  t.match(await call(server, 'PUT', '/_replicator/bad/file.txt', 'text'), { status: 403 })
  const docs = [
    { _id: 'from-elsewhere', _rev: '1-a', source: 'notes' },
    {
      _id: 'sealed-elsewhere',
      _rev: '1-a',
      source: 'http://a:*****@b/c',
      target: 'copy',
      sealed_credentials: { source: 'AAAA' },
    },
  ]
  await call(server, 'POST', '/_replicator/_bulk_docs', { docs, new_edits: false })
  t.match(await inState(server, '/_replicator/from-elsewhere', 'failed'), {
    _replication_state_reason: /Missing/,
  })
  t.match(await inState(server, '/_replicator/sealed-elsewhere', 'failed'), {
    _replication_state_reason: /write them again/,
  })
})
