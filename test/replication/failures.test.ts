/** Replications with remotes that fail; each failure is scripted, and nothing may be lost. */
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { count, DOCS, DOWN, HTML, replicate, sceneMaker, status } from './failing-peers.ts'
import { type Incident, scriptedRemote } from './scripted-remote.ts'

const scene = sceneMaker(t)

const PULLS: readonly (readonly [what: string, match: RegExp, Incident])[] = [
  ['a source that hangs up', /_changes/, DOWN],
  ['changes that are cut', /_changes/, { type: 'cut', bytes: 700 }],
  ['changes that are HTML', /_changes/, HTML],
  ['documents that are cut', /_bulk_get/, { type: 'cut', bytes: 2000 }],
  ['documents with status 500', /_bulk_get/, status(500)],
  ['too many requests', /_bulk_get/, status(429, { 'retry-after': '0' })],
  ['a source that is starting', /^GET \/full\/$/, status(503, { 'retry-after': '0' })],
  ['a checkpoint that fails', /^PUT \/full\/_local/, status(500)],
  ['a checkpoint that was written without an answer', /^PUT \/full\/_local/, DOWN],
  ['a source without _bulk_get', /_bulk_get/, status(404)],
]

for (const [what, match, incident] of PULLS) {
  t.test(`a pull: ${what}`, async (t) => {
    const { server, remote } = await scene(t)
    remote.script(match, incident)
    const { json } = await replicate(server, {
      source: `${remote.url}/full`,
      target: 'empty',
    })
    t.match(json, { ok: true, history: [{ doc_write_failures: 0 }] })
    t.equal(await count(server, 'empty'), DOCS.length)
    t.match(await replicate(server, { source: `${remote.url}/full`, target: 'empty' }), {
      json: { ok: true, no_changes: true },
    })
  })
}

t.test(
  'a push goes on after 413 with smaller batches, and counts a document that is too large alone',
  async (t) => {
    const { server, remote } = await scene(t)
    await server.request('PUT', '/full/large', { body: { text: 'y'.repeat(9000) } })
    remote.judge((line, body) => (line.includes('_bulk_docs') && body.length > 8000 ? status(413) : null))
    const { json } = await replicate(server, { source: 'full', target: `${remote.url}/empty` })
    t.match(json.history[0], { docs_written: DOCS.length, doc_write_failures: 1 })
    t.equal(await count(server, 'empty'), DOCS.length)
  },
)

t.test('a push counts documents that the target forbids, and goes on', async (t) => {
  const { server, remote } = await scene(t)
  await server.request('PUT', '/empty/_design/no', {
    body: { validate_doc_update: 'function (doc) { if (doc._id === "n7") throw { forbidden: "not n7" } }' },
  })
  const { json } = await replicate(server, { source: 'full', target: `${remote.url}/empty` })
  t.match(json.history[0], { docs_written: DOCS.length - 1, doc_write_failures: 1 })
  t.equal((await server.request('GET', '/empty/n7')).status, 404)
})

t.test('a push whose target fails in each step', async (t) => {
  const { server, remote } = await scene(t)
  remote.script(/_revs_diff/, { type: 'cut', bytes: 100 })
  remote.script(/_bulk_docs/, status(429), { type: 'cut', bytes: 10 }, HTML)
  remote.script(/_ensure_full_commit/, status(503))
  remote.script(/^PUT \/empty\/_local/, DOWN)
  const body = { source: 'full', target: `${remote.url}/empty` }
  t.match((await replicate(server, body)).json, { ok: true, history: [{ doc_write_failures: 0 }] })
  t.equal(await count(server, 'empty'), DOCS.length)
  t.match((await replicate(server, body)).json, { ok: true, no_changes: true })
})

t.test('a push repeats a batch of which the target has refused a row for now', async (t) => {
  const { server, remote } = await scene(t)
  const body = JSON.stringify([{ id: 'n1', error: 'service_unavailable', reason: 'busy' }])
  remote.script(/_bulk_docs/, { type: 'answer', status: 201, body })
  const { json } = await replicate(server, { source: 'full', target: `${remote.url}/empty` })
  t.match(json.history[0], { docs_written: DOCS.length, doc_write_failures: 0 })
})

t.test('a source whose sequence goes back is compared again from the start', async (t) => {
  const { server, remote } = await scene(t)
  const body = { source: `${remote.url}/full`, target: 'empty' }
  t.match((await replicate(server, body)).json, { ok: true })
  const before = await server.request('GET', '/empty/n1')
  await server.request('DELETE', `/empty/n1?rev=${before.json._rev}`)
  await server.request('POST', '/empty/_purge', { body: { n1: [(await deletedRev(server)) ?? ''] } })
  const empty = JSON.stringify({ results: [], last_seq: '3-older', pending: 0 })
  remote.script(/_changes/, { type: 'answer', status: 200, body: empty })
  const { json } = await replicate(server, body)
  t.match(json, { ok: true, history: [{ start_last_seq: 0 }] })
  t.notHas(json, { no_changes: true })
  t.equal(await count(server, 'empty'), DOCS.length)
})

t.test('a run that was interrupted after a sequence went back leaves no checkpoint to rely on', async (t) => {
  const { server, remote } = await scene(t)
  const body = { source: `${remote.url}/full`, target: 'empty' }
  t.match((await replicate(server, body)).json, { ok: true })
  const older = JSON.stringify({ update_seq: '3-older', instance_start_time: '0' })
  remote.script(/^GET \/full\/$/, { type: 'answer', status: 200, body: older })
  remote.script(/_changes/, status(403))
  t.equal((await replicate(server, body)).status, 403)
  const { json } = await replicate(server, body)
  t.match(json, { ok: true, history: [{ start_last_seq: 0, missing_checked: DOCS.length }] })
  t.notHas(json, { no_changes: true })
})

async function deletedRev(server: TestServer): Promise<string | undefined> {
  const { json } = await server.request('GET', '/empty/_changes?doc_ids=["n1"]&filter=_doc_ids')
  return json.results[0]?.changes[0]?.rev as string | undefined
}

t.test('many conflicts at the target make no address too long', async (t) => {
  const { server, remote } = await scene(t)
  const leaf = (n: number) => n.toString(16).padStart(32, '0')
  const docs = Array.from({ length: 600 }, (_, n) => ({ _id: 'c', _rev: `1-${leaf(n)}` }))
  await server.request('POST', '/empty/_bulk_docs', { body: { new_edits: false, docs } })
  const { json } = await server.request('PUT', '/full/c', { body: {} })
  const data = { content_type: 'text/plain', data: 'aGVsbG8=' }
  await server.request('PUT', '/full/c', { body: { _rev: json.rev, _attachments: { a: data } } })
  const done = await replicate(server, { source: `${remote.url}/full`, target: 'empty' })
  t.match(done.json, { ok: true, history: [{ doc_write_failures: 0 }] })
  t.equal((await server.request('GET', '/empty/c/a')).text, 'hello')
})

t.test('what no further try helps ends a replication at once, in words', async (t) => {
  const { server, remote } = await scene(t)
  const source = `${remote.url}/full`
  t.match(await replicate(server, { source: `${remote.url}/none`, target: 'empty' }), {
    status: 500,
    json: { error: 'db_not_found', reason: `could not open ${remote.url}/none/` },
  })
  t.match(await replicate(server, { source: 'none', target: 'empty' }), {
    status: 500,
    json: { error: 'db_not_found' },
  })
  remote.script(/^GET \/full\/$/, status(401))
  t.match(await replicate(server, { source, target: 'empty' }), { status: 401 })
  remote.script(/_changes/, status(403))
  t.match(await replicate(server, { source, target: 'empty' }), { status: 403 })
  remote.script(/_changes/, DOWN, DOWN, DOWN, DOWN)
  t.match(await replicate(server, { source, target: 'empty', retries_per_request: 1 }), {
    status: 500,
    json: { error: 'replication_failed', reason: /could not be reached/ },
  })
})

t.test('a source that goes back again and again is not compared for ever', async (t) => {
  const { server, remote } = await scene(t)
  const page = (seq: string): Incident => ({
    type: 'answer',
    status: 200,
    body: JSON.stringify({ results: [{ id: 'n0', seq, changes: [] }], last_seq: seq, pending: 1 }),
  })
  let asked = 0
  remote.judge((line) => (line.includes('_changes') ? page(`${50 + (asked++ % 2)}-x`) : null))
  t.match(
    await replicate(server, { source: `${remote.url}/full`, target: 'empty', retries_per_request: 0 }),
    {
      status: 500,
      json: { reason: /goes back again/ },
    },
  )
  t.ok(asked < 10)
})

t.test('a redirect takes no header of the user to another server', async (t) => {
  const { server, remote } = await scene(t)
  const headers: object[] = []
  const other = createServer((request, answer) => {
    headers.push(request.headers)
    answer.end('{}')
  })
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  t.teardown(() => other.close())
  const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/full`
  remote.script(/^GET \/full\/$/, status(307, { location }))
  const secret = { 'X-Api-Key': 'hidden-word', Cookie: 'hidden-word', Authorization: 'Basic aDp4' }
  await replicate(server, { source: { url: `${remote.url}/full`, headers: secret }, target: 'empty' })
  t.ok(headers.length > 0)
  t.notMatch(JSON.stringify(headers), /hidden-word|aDp4/)
})

t.test('redirects are followed, but take no credentials to another server', async (t) => {
  const { server, remote } = await scene(t)
  const other = await scriptedRemote(t, server.url)
  const seen: string[] = []
  other.judge((line) => {
    seen.push(line)
    return status(401)
  })
  remote.script(/^GET \/full\/$/, status(302, { location: '/full' }))
  const source = remote.url.replace('://', '://anna:secret@')
  await server.request('PUT', '/_users/org.couchdb.user:anna', {
    body: { name: 'anna', password: 'secret', roles: [], type: 'user' },
  })
  t.match((await replicate(server, { source: `${source}/full`, target: 'empty' })).json, { ok: true })
  remote.script(/^GET \/full\/$/, status(307, { location: `${other.url}/full` }))
  t.match(await replicate(server, { source: `${source}/full`, target: 'empty' }), { status: 401 })
  t.equal(seen.length, 1)
})

t.test('the checkpoint of a filtered replication reaches the end of the feed', async (t) => {
  const { server, remote } = await scene(t)
  const { update_seq } = (await server.request('GET', '/full')).json
  // In batches of 25; the rows without a match behind the last batch are a page of their own.
  for (const matches of [1, 25, 26, 50]) {
    // The end of the feed is read before the last documents are copied.
    remote.script(/_bulk_get/, { type: 'slow', pieces: 2, pauseMs: 200 })
    const selector = { _id: { $in: DOCS.slice(0, matches).map(({ _id }) => _id) } }
    const body = { source: `${remote.url}/full`, target: 'empty', selector }
    t.equal((await replicate(server, body)).json.source_last_seq, update_seq, `${matches} matches`)
    t.match((await replicate(server, body)).json, { no_changes: true })
  }
})

t.test('a source that sends its documents a byte at a time fails like one that is silent', async (t) => {
  const { server, remote } = await scene(t)
  remote.script(/_bulk_get/, { type: 'slow', pieces: 50_000, pauseMs: 50 })
  const once = { retries_per_request: 0, connection_timeout: 1000 }
  const { status, json } = await replicate(server, { source: `${remote.url}/full`, target: 'empty', ...once })
  t.match({ status, ...json }, { status: 500, reason: /too long|less than 30 bytes a second/ })
})

t.test('the parameters of a filter may be numbers and other plain values', async (t) => {
  const { server, remote } = await scene(t)
  const filter = `function (doc, req) {
    return doc._id === 'n' + req.query.n && req.query.yes === 'true' && req.query.none === 'null'
  }`
  t.equal((await server.request('PUT', '/full/_design/d', { body: { filters: { f: filter } } })).status, 201)
  for (const source of ['full', `${remote.url}/full`]) {
    await server.request('DELETE', '/empty')
    const body = { source, target: 'empty', create_target: true, filter: 'd/f' }
    const { json } = await replicate(server, { ...body, query_params: { n: 1, yes: true, none: null } })
    t.match(json, { ok: true, history: [{ docs_written: 1 }] }, source)
    const { rows } = (await server.request('GET', '/empty/_all_docs')).json
    t.match(rows, [{ id: 'n1' }])
    t.equal(rows.length, 1)
  }
})

t.test(
  'a replication of named documents has the numbers of its session at the top, as in CouchDB',
  async (t) => {
    const { server } = await scene(t)
    for (const n of [1, 2]) {
      const { json } = await replicate(server, { source: 'full', target: 'empty', doc_ids: ['n1'] })
      const { start_time, end_time, docs_read, docs_written, doc_write_failures } = json.history[0]
      t.match(json, { start_time, end_time, docs_read, docs_written, doc_write_failures }, `run ${n}`)
    }
    t.notHas((await replicate(server, { source: 'full', target: 'empty' })).json, { docs_read: Number })
  },
)

t.test('a replication is over once it is cancelled, although its last checkpoint takes long', async (t) => {
  const { server, remote } = await scene(t)
  const body = { source: `${remote.url}/full`, target: 'empty', continuous: true }
  await replicate(server, body)
  await until(async () => (await count(server, 'empty')) === DOCS.length)
  remote.script(/^PUT \/full\/_local/, { type: 'slow', pieces: 2, pauseMs: 500 })
  t.match(await replicate(server, { ...body, cancel: true }), { status: 200 })
  t.match(await replicate(server, { ...body, cancel: true }), { status: 404 })
  t.match(await replicate(server, body), { status: 202 })
  await server.request('PUT', '/full/later', { body: {} })
  await until(async () => (await server.request('GET', '/empty/later')).status === 200)
  t.match(await replicate(server, { ...body, cancel: true }), { status: 200 }, 'the new one goes on')
})

t.test('a local database is shown with the port of the server', async (t) => {
  const { server } = await scene(t)
  await server.request('PUT', '/_node/_local/_config/chttpd/port', { body: '"15984"' })
  const { json } = await replicate(server, { source: 'full', target: 'empty', continuous: true })
  const here = 'http://127.0.0.1:15984'
  t.match(await job(server, json._local_id), { source: `${here}/full/`, target: `${here}/empty/` })
  await replicate(server, { source: 'full', target: 'empty', continuous: true, cancel: true })
  await server.request('PUT', '/_node/_local/_config/chttpd/port', { body: '"5984"' })
  const again = await replicate(server, { source: 'full', target: 'empty', continuous: true })
  t.equal(again.json._local_id, json._local_id, 'the id does not depend on it')
  await replicate(server, { source: 'full', target: 'empty', continuous: true, cancel: true })
})

t.test('a database that was deleted and made again is replicated again from the start', async (t) => {
  const server = await startTestServer(t)
  const remote = await scriptedRemote(t, server.url)
  await server.request('PUT', '/full')
  await server.request('PUT', '/empty')
  await server.request('POST', '/full/_bulk_docs', { body: { docs: DOCS } })
  const body = { source: `${remote.url}/full`, target: 'empty' }
  t.match((await replicate(server, body)).json, { ok: true })
  await server.request('DELETE', '/full')
  await server.request('PUT', '/full')
  await server.request('PUT', '/full/new', { body: {} })
  t.match((await replicate(server, body)).json.history[0], { start_last_seq: 0, docs_written: 1 })
  // While it runs: the checkpoint sees it.
  const started = await replicate(server, { ...body, continuous: true, checkpoint_interval: 100 })
  await until(async () => (await job(server, started.json._local_id)).info !== null)
  await server.request('DELETE', '/empty')
  await server.request('PUT', '/empty')
  await server.request('PUT', '/full/more', { body: {} })
  await until(async () => (await count(server, 'empty')) === 2)
})

async function job(server: TestServer, id: string) {
  return (await server.request('GET', `/_scheduler/jobs/${id}`)).json
}

t.test('what fails at the other server is no error of this one', async (t) => {
  const logFile = join(t.testdir(), 'log')
  const server = await startTestServer(t, { logFile, logLevel: 'warning' })
  const target = 'copy'
  await server.request('PUT', `/${target}`)
  for (const source of ['http://127.0.0.1:1/notes', 'none']) {
    t.match(await replicate(server, { source, target, retries_per_request: 0 }), { status: 500 }, source)
  }
  const failed = async () => {
    const lines = (await readFile(logFile, 'utf8')).split('\n').filter((line) => line !== '')
    return lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'a request failed')
  }
  await until('both are logged', async () => (await failed()).length === 2)
  t.strictSame(
    (await failed()).map(({ level, err }) => [level, err.code]),
    [
      ['warn', 'replication_failed'],
      ['warn', 'replication_no_database'],
    ],
  )
})
