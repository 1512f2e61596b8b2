/**
 * Texts of any characters and lengths in every place of a request, over both engines: no answer is 5xx, both engines answer
 * alike, and a document that was stored can be read, changed, deleted and compacted.
 */
import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { startPostgres } from '../helpers/postgres-server.ts'
import { startTestServer, type TestResponse, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

t.setTimeout(600_000)

const TEXTS: Readonly<Record<string, string>> = {
  NUL: '\0',
  'NUL inside': 'a\0b',
  'a control character': '\u0001\u0002',
  'a lone surrogate': 'a\ud800b',
  'an escape of NUL': '\\u0000',
  quotes: '"blob":-1}\'',
  'the last character': '\u{10FFFF}',
  'a long text': 'xyz'.repeat(2000),
  'a long text of NUL': '\0'.repeat(1900),
  'a long text that cannot be compressed': Array.from({ length: 50 }, (_, n) => {
    const digest = createHash('sha256').update(`${n}`).digest()
    return String.fromCodePoint(
      ...new Uint16Array(new Uint8Array(digest).buffer).map((code) => 0x4e00 + (code % 20_000)),
    )
  }).join(''),
}

const ADMIN = 'boss:secret'
/** What PostgreSQL cannot have: docs/compatibility.md, "document ids". What was refused is missing later. */
const IS_DECLARED = /at most 2600 bytes together|too long for this server/
const LONG_BYTES = 2500

type Send = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
) => Promise<TestResponse>

/** Escapes a text for a URL, a lone surrogate as the bytes that it would have. */
function escaped(text: string): string {
  return encodeURIComponent(text.replaceAll('\ud800', '\uE000')).replaceAll('%EE%80%80', '%ED%A0%80')
}

const attached = (name: string, type: string) => ({
  _attachments: { [name]: { content_type: type, data: 'aGVsbG8=' } },
})

/** Requests with a text where one can be; `n` tells databases apart. Their answers are compared one by one. */
async function requestsWith(send: Send, text: string, n: number): Promise<void> {
  const [db, inPath, json] = [`/db${n}`, escaped(text), encodeURIComponent(JSON.stringify(text))]
  await send('PUT', db)
  // Documents of replication, of which each text is in some place.
  const revisions = { start: 2, ids: [`2${text.slice(0, 500)}`, `1${text.slice(0, 500)}`] }
  const docs = [
    { _id: 'type', ...attached('file', text) },
    { _id: 'name', ...attached(text, 'text/plain') },
    { _id: `id ${text}`, text },
    { _id: 'member', [text]: text },
    { _id: 'design', filters: { [text]: text }, views: { [text]: { map: text } } },
  ]
  for (const doc of docs) {
    await send('POST', db, doc)
    await send('POST', `${db}/_bulk_docs`, { docs: [doc, { ...doc, _id: `${doc._id}2` }] })
    const _rev = `2-${revisions.ids[0]}`
    await send('POST', `${db}/_bulk_docs`, {
      docs: [{ ...doc, _rev, _revisions: revisions }],
      new_edits: false,
    })
    await send('PUT', `${db}/${escaped(doc._id)}-b`, doc)
  }
  await send('PUT', `${db}/plain`, {})
  await send('PUT', `${db}/of-path/${inPath}`, 'hello', { 'content-type': 'text/plain' })
  await send('PUT', `${db}/plain/file?rev=${inPath}`, 'hello', { 'content-type': 'text/plain' })
  await send('GET', `${db}/plain?rev=${inPath}`)
  await send('GET', `${db}/plain?open_revs=${encodeURIComponent(JSON.stringify([text, `1-${text}`]))}`)
  await send(
    'GET',
    `${db}/plain?attachments=true&atts_since=${encodeURIComponent(JSON.stringify([`1-${text}`]))}`,
  )
  await send('GET', `${db}/plain/${inPath}`)
  await send('GET', `${db}/${inPath}`)
  await send('PUT', `${db}/_local/${inPath}`, {
    text,
    [text]: text,
    session_id: text,
    history: [{ session_id: text }],
  })
  await send('GET', `${db}/_local/${inPath}`)
  await send('GET', `${db}/_local_docs?startkey=${json}`)
  await send('GET', `${db}/_all_docs?startkey=${json}&endkey=${json}`)
  await send('POST', `${db}/_all_docs`, { keys: [text, 'type'] })
  await send('POST', `${db}/_revs_diff`, { [text]: [`1-${text}`], type: [`1-${text}`] })
  await send('POST', `${db}/_missing_revs`, { [text]: [`1-${text}`] })
  await send('POST', `${db}/_bulk_get`, {
    docs: [{ id: text }, { id: 'type', rev: `1-${text}` }, { id: 'name' }],
  })
  await send('POST', `${db}/_bulk_get?attachments=true`, {
    docs: [{ id: 'type', atts_since: [`1-${text}`] }],
  })
  await send('POST', `${db}/_changes?filter=_doc_ids`, { doc_ids: [text, 'plain'] })
  await send('POST', `${db}/_changes?filter=_selector`, { selector: { [text]: text } })
  await send('GET', `${db}/_changes?since=${inPath}`)
  await send('GET', `${db}/_changes?filter=${inPath}`)
  await send('GET', `${db}/_changes?since=1-${inPath.slice(0, 900)}`)
  await send('POST', `${db}/_find`, { selector: { [text]: text }, fields: [text], bookmark: 'nil' })
  await send('POST', `${db}/_find`, { selector: { a: { $regex: text } }, use_index: text })
  await send('POST', `${db}/_find`, { selector: { _id: { $gt: text } }, bookmark: text })
  await send('POST', `${db}/_index`, {
    index: { fields: [text] },
    name: text.slice(0, 900),
    ddoc: `d${text}`.slice(0, 900),
  })
  await send('POST', `${db}/_index`, { index: { fields: [text, 'a'] } })
  await send('POST', `${db}/_find`, { selector: { [text]: { $gt: null } } })
  await send('PUT', `${db}/_design/${inPath}`, {
    views: { a: { map: 'function (doc) { emit(doc._id, doc) }' } },
  })
  await send('PUT', `${db}/_design/v`, {
    views: { a: { map: `function (doc) { emit([doc._id, doc.text], doc) }` } },
  })
  await send('GET', `${db}/_design/v/_view/a`)
  await send('GET', `${db}/_design/v/_view/a?key=${json}&startkey_docid=${inPath}`)
  await send('GET', `${db}/_design/v/_view/${inPath}`)
  await send('PUT', `${db}/_security`, {
    members: { names: [text], roles: [text] },
    admins: { names: [], roles: [] },
    [text]: 1,
  })
  await send('GET', `${db}/_security`)
  await send('POST', `${db}/_purge`, { [text]: [`1-${text}`], name2: [`1-${text}`] })
  await send('GET', `${db}/_purged_infos`)
  await send('GET', `/${inPath}`)
  await send('PUT', `/${inPath}`)
  await send('GET', `/_all_dbs?startkey=${json}`)
  await send('POST', '/_dbs_info', { keys: [text] })
  await send('GET', `/_db_updates?since=${inPath}`)
  await send('PUT', `/_users/${escaped(`org.couchdb.user:${text}`)}`, {
    ...{ _id: `org.couchdb.user:${text}`, name: text, password: text, roles: [text], type: 'user' },
  })
  await send('POST', '/_session', { name: text, password: text })
  await send('GET', '/_session', undefined, { cookie: `AuthSession=${inPath}` })
  await send('PUT', `/_node/_local/_config/${inPath}/${inPath}`, text)
  await send('GET', `/_node/_local/_config/${inPath}`)
  await send('POST', '/_settee/tokens', { name: text })
  await send('POST', `/_settee/tokens?account=${inPath}`, { name: `phone ${n}` })
  await send('GET', `/_settee/tokens?all=true&after=${inPath}`)
  await send('POST', '/_settee/accounts', { name: text, password: text })
  await send('GET', `/_settee/databases${db}/history?id=${inPath}`)
  await send('GET', `/_settee/databases${db}/version?id=${inPath}&rev=${inPath}`)
  await send('GET', `/_scheduler/docs/_replicator/${inPath}`)
  await send('GET', `/_scheduler/jobs/${inPath}`)
  await send('POST', '/_replicate', {
    source: `db${n}`,
    target: `other${n}`,
    create_target: true,
    doc_ids: [text, 'plain'],
  })
  await send('POST', '/_replicate', {
    source: `db${n}`,
    target: `third${n}`,
    create_target: true,
    selector: { [text]: text },
  })
  await send('POST', '/_replicate', {
    source: `db${n}`,
    target: `db${n}`,
    filter: text,
    query_params: { [text]: text },
  })
  await send('PUT', `/_replicator/${escaped(`r ${text}`)}`, {
    ...{
      source: `/db${n}`,
      target: `/db${n}`,
      filter: text,
      query_params: { [text]: text },
      selector: undefined,
    },
  })
  await send('PUT', `/_replicator/s${n}`, { source: text, target: `/db${n}`, selector: { [text]: text } })
}

/** @returns all answers to the requests with a text */
async function answersOf(server: TestServer, text: string, n: number) {
  const answers: { readonly call: string; readonly answer: TestResponse }[] = []
  const send: Send = async (method, path, body, headers = {}) => {
    const isRaw = headers['content-type'] === 'text/plain'
    const answer = await server.request(method, path, {
      auth: ADMIN,
      ...(body !== undefined && { body: isRaw ? body : JSON.stringify(body) }),
      headers: { ...(isRaw ? {} : { 'content-type': 'application/json' }), ...headers },
    })
    answers.push({
      call: `${method} ${path.slice(0, 100)} ${JSON.stringify(body ?? '').slice(0, 100)}`,
      answer,
    })
    return answer
  }
  await requestsWith(send, text, n)
  return answers
}

/** Every stored document of a database is read, replicated, changed, deleted and compacted. */
async function checkStored(t: Test, { request }: TestServer, n: number): Promise<void> {
  const call = async (method: string, path: string, body?: unknown) => {
    const answer = await request(method, path, { auth: ADMIN, ...(body !== undefined && { body }) })
    if (answer.status >= 400)
      t.fail(`${method} ${path.slice(0, 90)} was answered ${answer.status} ${answer.text.slice(0, 300)}`)
    return answer.json
  }
  const { rows } = await call('GET', `/db${n}/_all_docs?include_docs=true&attachments=true&conflicts=true`)
  t.ok(rows.length > 0)
  await call('POST', '/_replicate', { source: `db${n}`, target: `copy${n}`, create_target: true })
  for (const { id, doc } of rows) {
    if (id.startsWith('_design/')) continue
    const child = { ...doc, _rev: '9-a', _revisions: { start: 9, ids: ['a', 'b'] }, _conflicts: undefined }
    await call('POST', `/db${n}/_bulk_docs`, { docs: [child], new_edits: false })
    const dropped = { _id: id, _rev: '9-a', text: 'without attachments' }
    const [saved] = await call('POST', `/db${n}/_bulk_docs`, { docs: [dropped] })
    const [gone] = await call('POST', `/db${n}/_bulk_docs`, {
      docs: [{ _id: id, _rev: doc._rev, _deleted: true }],
    })
    for (const { error } of [saved, gone]) if (error !== undefined) t.fail(`${id} was answered ${error}`)
    await call('POST', `/db${n}/_purge`, { [id]: [saved.rev, gone.rev] })
  }
  await call('POST', `/db${n}/_compact`, {})
  await until(async () => (await call('GET', `/db${n}`)).compact_running === false)
  await call('GET', `/_settee/databases/db${n}/size`)
}

t.test('both engines take and refuse the same texts, and keep what they have taken', async (t) => {
  const postgres = await startPostgres(t)
  const env = { COUCHDB_USER: 'boss', COUCHDB_PASSWORD: 'secret' }
  const files = await startTestServer(t, { env })
  const shared = await startTestServer(t, { env: { ...env, SETTEE_STORE: await postgres.createDatabase() } })
  // Nodes share this setting, so it cannot be in a file.
  const rounds = await shared.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', {
    body: '"10"',
    auth: ADMIN,
  })
  t.equal(rounds.status, 200)
  for (const [n, [name, text]] of Object.entries(TEXTS).entries()) {
    t.comment(name)
    const one = await answersOf(files, text, n)
    const other = await answersOf(shared, text, n)
    const length = Buffer.byteLength(text) + text.split('\0').length
    for (const [place, { call, answer }] of one.entries()) {
      const { status, text } = other[place]!.answer
      const isRefused = IS_DECLARED.test(text) || (status === 404 && length > LONG_BYTES)
      const isAlike = status === answer.status || isRefused
      if (answer.status >= 500 || status >= 500 || !isAlike) {
        t.fail(
          `${name}: ${call} was answered ${answer.status} ${answer.text.slice(0, 200)} by SQLite, and ${status} ${text.slice(0, 200)} by PostgreSQL`,
        )
      }
    }
    await checkStored(t, files, n)
    await checkStored(t, shared, n)
  }
})
