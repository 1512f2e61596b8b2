/** Documents of `_replicator`, their life and their secrets; protocol.md 14.3, docs/replication.md. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const ADMIN = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

async function call(server: TestServer, method: string, path: string, body?: unknown, auth = ADMIN) {
  return server.request(method, path, { auth, ...(body !== undefined && { body }) })
}

let shared: TestServer | undefined

/** An admin, and the databases of the tests without earlier contents. @param own a server that the test may close */
async function prepared(own?: Test): Promise<TestServer> {
  if (own === undefined) shared ??= await startTestServer(t, { env })
  const server = own === undefined ? (shared as TestServer) : await startTestServer(own, { env })
  for (const name of ['_replicator', 'notes', 'copy']) {
    await call(server, 'DELETE', `/${name}`)
    await call(server, 'PUT', `/${name}`)
  }
  await until(async () => (await call(server, 'GET', '/_scheduler/jobs')).json.total_rows === 0)
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
  const server = await prepared()
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
  const server = await prepared()
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

t.test('a tombstone keeps members that are not about a replication', async (t) => {
  const server = await prepared()
  const { json } = await call(server, 'PUT', '/_replicator/gone', { _deleted: true, why: 'not needed' })
  const { json: stored } = await call(server, 'GET', `/_replicator/gone?rev=${json.rev}`)
  t.same(stored, { _id: 'gone', _rev: json.rev, _deleted: true, why: 'not needed' })
})

t.test('credentials are shown nowhere, and still work', async (t) => {
  const server = await prepared()
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
  const { docs } = (await call(server, 'GET', '/_scheduler/docs')).json
  t.match(docs, [{ source: `${server.url}/notes/`, target: `${server.url}/copy/` }])
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

t.test('no way of writing a document keeps its credentials readable', async (t) => {
  const server = await prepared(t)
  const secret = 'p4ssw0rd'
  const url = `http://u:${secret}@127.0.0.1:1/x`
  const text = (members: string) => `{${members},"target":"copy","_replication_state":"failed"}`
  const bodies = [
    text(`"source":"${url}","source":"notes"`),
    text(`"s\\u006furce":"${url}"`),
    text(`"source":"notes","s\\u006furce":{"url":"${url}","url":"${url}"}`),
    text(`"source":"notes","proxy":"${url}","source_proxy":"${url}"`),
  ]
  for (const [at, body] of bodies.entries()) {
    t.equal((await server.request('PUT', `/_replicator/put-${at}`, { auth: ADMIN, body })).status, 201, body)
    const replica = body.replace('{', `{"_id":"bulk-${at}","_rev":"1-a",`)
    const bulk = `{"new_edits":false,"docs":[${replica}]}`
    const headers = { 'content-type': 'application/json' }
    t.equal(
      (await server.request('POST', '/_replicator/_bulk_docs', { auth: ADMIN, body: bulk, headers })).status,
      201,
    )
  }
  const { json } = await call(server, 'GET', '/_replicator/put-0')
  const gone = { _id: 'put-0', _rev: json._rev, _deleted: true, source: url }
  t.match(await call(server, 'POST', '/_replicator', gone), { status: 201 })
  await server.close()
  for (const name of await readdir(server.dataDir, { recursive: true, withFileTypes: true })) {
    if (!name.isFile()) continue
    const bytes = await readFile(join(name.parentPath, name.name))
    t.notOk(bytes.includes(secret), name.name)
  }
})

t.test('requests that are not valid are refused when they are written', async (t) => {
  const server = await prepared()
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
  const long = [{ _id: 'long', _rev: '1-a', source: 'x:'.repeat(100_000) }]
  for (const doc of [...long, { ...long[0], _deleted: true }]) {
    const bulk = await call(server, 'POST', '/_replicator/_bulk_docs', { docs: [doc], new_edits: false })
    t.match(bulk, { status: 413, json: { error: 'document_too_large', reason: /`source` of a replication/ } })
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

t.test('documents belong to their owners, and have their rights', async (t) => {
  const server = await prepared()
  for (const name of ['anna', 'bob']) {
    const body = { name, password: 'secret', roles: ['writers'], type: 'user' }
    await call(server, 'PUT', `/_users/org.couchdb.user:${name}`, body)
  }
  const path = '/team%2F_replicator'
  await call(server, 'PUT', path)
  await call(server, 'PUT', `${path}/_security`, { members: { roles: ['writers'] }, admins: { names: [] } })
  await call(server, 'PUT', '/notes/_security', { members: { names: ['anna'] }, admins: { names: [] } })
  await call(server, 'PUT', '/copy/_security', { members: { names: ['anna'] }, admins: { names: [] } })
  const body = { source: 'notes', target: 'copy' }
  const as = (name: string, method: string, id: string, doc?: object) =>
    call(server, method, `${path}/${id}`, doc, `${name}:secret`)
  t.match((await call(server, 'PUT', `${path}/x`, body, '')).status, 401)
  const { json: saved } = await as('anna', 'PUT', 'own', body)
  t.match(await as('bob', 'PUT', 'own', { ...body, _rev: saved.rev }), { status: 403 })
  t.match(await as('bob', 'DELETE', `own?rev=${saved.rev}`), { status: 403 })
  t.match(await as('bob', 'PUT', 'annas', { ...body, owner: 'anna' }), {
    status: 403,
    json: { reason: "Can't update replication documents from other users." },
  })
  const docs = [{ _id: 'stolen', _rev: '1-a', owner: 'anna', ...body }]
  const bulk = await call(server, 'POST', `${path}/_bulk_docs`, { docs, new_edits: false }, 'bob:secret')
  t.match(bulk.status, 403)
  t.match(await inState(server, `${path}/own`, 'completed'), { owner: 'anna' })
  await as('bob', 'PUT', 'bobs', { ...body, continuous: true })
  const bobs = '/_scheduler/docs/team/_replicator/bobs'
  const shown = await until(async () => {
    const { json } = await call(server, 'GET', bobs)
    return json.state === 'crashing' && json
  })
  t.match(shown, { database: 'team/_replicator', info: { error: /forbidden/ }, error_count: 1 })
  const crashing = await call(server, 'GET', '/_scheduler/docs/team%2F_replicator?states=crashing')
  t.equal(crashing.json.docs.length, 1)
  const all = await call(server, 'GET', '/_scheduler/docs/team%2F_replicator')
  t.equal(crashing.json.total_rows, all.json.docs.length, 'total_rows counts documents in every state')
  t.equal((await call(server, 'GET', '/_scheduler/docs?states=odd')).status, 400)
  t.equal((await call(server, 'GET', '/_scheduler/docs?states=,crashing,')).status, 200, 'empty states')
  await as('bob', 'PUT', 'as-anna', { ...body, user_ctx: { name: 'anna' }, doc_ids: ['a'] })
  t.match(await inState(server, `${path}/as-anna`, 'failed'), {
    _replication_state_reason: /Only server admins/,
  })
  await call(server, 'PUT', `${path}/admins`, {
    ...body,
    user_ctx: { name: 'anna', roles: [] },
    doc_ids: ['b'],
  })
  t.match(await inState(server, `${path}/admins`, 'completed'), { owner: 'adm' })
  const { json: account } = await call(server, 'GET', '/_users/org.couchdb.user:bob')
  await call(server, 'DELETE', `/_users/org.couchdb.user:bob?rev=${account._rev}`)
  await as('anna', 'PUT', 'bobs', {})
  const { json: again } = await call(server, 'GET', `${path}/bobs`)
  await call(server, 'PUT', `${path}/bobs`, { ...again, doc_ids: ['c'] })
  t.match(await inState(server, `${path}/bobs`, 'failed'), { _replication_state_reason: /no account bob/ })
})

t.test('documents start again with the server, and one replication has one job', async (t) => {
  const server = await prepared(t)
  const body = { source: 'notes', target: 'copy', continuous: true }
  await call(server, 'PUT', '/_replicator/a', body)
  await until(async () => (await call(server, 'GET', '/copy/a')).status === 200)
  await call(server, 'PUT', '/_replicator/b', body)
  t.match(await inState(server, '/_replicator/b', 'failed'), {
    _replication_state_reason: /started by document `a`/,
  })
  const { json } = await call(server, 'POST', '/_replicate', body)
  t.match(await call(server, 'POST', '/_replicate', { cancel: true, id: json._local_id }), { status: 403 })
  await server.close()
  const next = await startTestServer(t, { env, dataDir: server.dataDir })
  await call(next, 'PUT', '/notes/later', {})
  await until(async () => (await call(next, 'GET', '/copy/later')).status === 200)
  t.match((await call(next, 'GET', '/_scheduler/docs')).json.docs, [
    { state: 'running' },
    { state: 'failed' },
  ])
  const { json: doc } = await call(next, 'GET', '/_replicator/a')
  await call(next, 'PUT', '/_replicator/a', { ...doc, doc_ids: ['only'] })
  await until(
    async () => (await call(next, 'GET', '/_scheduler/docs/_replicator/a')).json.info?.docs_read === 0,
  )
  await call(next, 'DELETE', '/_replicator')
  await until(async () => (await call(next, 'GET', '/_scheduler/jobs')).json.total_rows === 0)
})

t.test('with update_docs, documents say what goes on', async (t) => {
  const server = await prepared()
  await call(server, 'PUT', '/_node/_local/_config/replicator/update_docs', '"true"')
  await call(server, 'PUT', '/_replicator/x', { source: 'notes', target: 'none', continuous: true })
  const failing = await inState(server, '/_replicator/x', 'error')
  t.match(failing, { _replication_state_reason: /db_not_found/, _replication_id: /^[0-9a-f]{32}$/ })
  await call(server, 'PUT', '/none')
  await inState(server, '/_replicator/x', 'triggered')
  await call(server, 'DELETE', '/_node/_local/_config/replicator/update_docs')
  const left = { source: 'notes', target: 'copy', _replication_state: 'triggered', _replication_id: 'odd' }
  await call(server, 'PUT', '/_replicator/left', left)
  t.match(await inState(server, '/_replicator/left', 'completed'), { owner: 'adm' })
})
