/** Filters of `_changes` through a listening server; protocol.md 5.5, 5.6, 9.2. */
import t, { type Test } from 'tap'
import { Agent, type Dispatcher, request } from 'undici'
import { startTestServer } from '../helpers/server.ts'

interface Answer {
  readonly status: number
  readonly headers: Dispatcher.ResponseData['headers']
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

type Headers = Readonly<Record<string, string>>

interface Client {
  /** A string goes as it is, anything else as JSON. */
  ask(method: string, path: string, body?: unknown, headers?: Headers): Promise<Answer>
  open(path: string): Promise<Dispatcher.ResponseData>
  readonly database: string
}

const server = await startTestServer(t)
let databases = 0

/** A client with a database of its own, which it calls `/db`. */
async function connect(t: Test): Promise<Client> {
  const dispatcher = new Agent()
  const database = `filtered${databases++}`
  t.teardown(() => dispatcher.destroy())
  const send = (method: string, path: string, body: unknown, headers: Headers) =>
    request(server.url + path.replace(/^\/db\b/, `/${database}`), {
      dispatcher,
      method: method as Dispatcher.HttpMethod,
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    })
  const ask: Client['ask'] = async (method, path, body, headers = {}) => {
    const { statusCode, headers: answered, body: sent } = await send(method, path, body, headers)
    const text = await sent.text()
    return { status: statusCode, headers: answered, text, json: parsed(text) }
  }
  await ask('PUT', '/db')
  return { ask, open: (path) => send('GET', path, undefined, {}), database }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** As Inkdrop's documentation has its users write it, clients.md 1.3. */
const SYNC = `function (doc, req) {
  return doc._id.indexOf('file:') === -1
}`

const MOBILE = {
  _id: '_design/mobile',
  filters: {
    sync: SYNC,
    tell: '(doc, req) => { throw { told: [doc._id, req] } }',
    ofType: '(doc, req) => doc.type === req.query.type',
    fails: "() => { throw new Error('no') }",
    broken: '(doc) => {',
  },
  views: { notes: { map: "(doc) => { if (doc._id.startsWith('note:')) emit(doc._id) }" }, lib: {} },
}

/** Notes and files, of which some are deleted. */
async function withNotes(t: Test): Promise<Client> {
  const client = await connect(t)
  const { ask } = client
  await ask('PUT', '/db/_design/mobile', MOBILE)
  await ask('POST', '/db/_bulk_docs', {
    docs: ['note:1', 'file:1', 'xfile:2', 'note:2', 'file:3'].map((_id) => ({ _id, type: 'a' })),
  })
  for (const id of ['file:1', 'xfile:2', 'note:2']) await remove(client, id)
  return client
}

async function remove({ ask }: Client, id: string): Promise<void> {
  const { json } = await ask('GET', `/db/${id}`)
  await ask('DELETE', `/db/${id}?rev=${json._rev}`)
}

const idsIn = (text: string) => [...text.matchAll(/"id":"([^"]*)"/g)].map(([, id]) => id)

async function until(body: Dispatcher.ResponseData['body'], needle: string): Promise<string> {
  let text = ''
  for await (const chunk of body) {
    text += String(chunk)
    if (text.includes(needle)) break
  }
  return text
}

t.test('mobile/sync passes notes and drops files, tombstones too, in every feed', async (t) => {
  const { ask } = await withNotes(t)
  const expected = ['_design/mobile', 'note:1', 'note:2']
  for (const [method, body] of [['GET'], ['POST'], ['POST', {}]] as const) {
    for (const feed of ['normal', 'longpoll', 'continuous&timeout=0', 'eventsource&timeout=0']) {
      const path = `/db/_changes?filter=mobile/sync&feed=${feed}`
      const { status, text, json } = await ask(method, path, body ?? (method === 'POST' ? '' : undefined))
      t.equal(status, 200)
      t.same(idsIn(text), expected, `${method} ${feed}`)
      if (json !== undefined) t.match(json, { last_seq: /^9-/, pending: 0 })
    }
  }
  const { json } = await ask(
    'GET',
    '/db/_changes?filter=mobile/sync&include_docs=true&since=2&style=all_docs',
  )
  t.match(json.results[0], { id: 'note:2', deleted: true, doc: { _id: 'note:2', _deleted: true } })
})

t.test('waiting feeds get only matching changes', async (t) => {
  const client = await withNotes(t)
  const query = 'filter=mobile/sync&since=now&heartbeat=60000'
  const longpoll = client.open(`/db/_changes?feed=longpoll&${query}`)
  const continuous = client.open(`/db/_changes?feed=continuous&${query}`)
  const bodies = [(await longpoll).body, (await continuous).body] as const
  const [one, many] = [until(bodies[0], 'last_seq'), until(bodies[1], '"deleted":true')]
  await client.ask('PUT', '/db/file:9', {})
  await remove(client, 'file:9')
  await client.ask('PUT', '/db/note:9', {})
  t.same(idsIn(await one), ['note:9'])
  await remove(client, 'note:9')
  t.same(idsIn(await many), ['note:9', 'note:9'])
  bodies[1].on('error', () => {}).destroy()
})

t.test('_design, _view, _selector', async (t) => {
  const { ask } = await withNotes(t)
  const ids = async (method: string, query: string, body?: unknown) =>
    idsIn((await ask(method, `/db/_changes?${query}`, body)).text)
  t.same(await ids('GET', 'filter=_design'), ['_design/mobile'])
  t.same(await ids('GET', 'filter=_view&view=mobile/notes'), ['note:1', 'note:2'])
  t.same(await ids('GET', 'filter=_view&view=mobile/notes&limit=1&descending=true'), ['note:2'])
  const selector = { _id: { $regex: '^note:' }, _deleted: { $exists: false } }
  t.same(await ids('POST', 'filter=_selector', { selector }), ['note:1'])
  t.same(await ids('POST', 'filter=_selector&feed=longpoll', { selector }), ['note:1'])
  t.same(await ids('POST', 'filter=_selector', { selector: { type: { $ne: 'leaf' } } }), ['note:1', 'file:3'])
  const fields = ['_id', 'type']
  const { json } = await ask('POST', '/db/_changes?filter=_selector&include_docs=true', { selector, fields })
  t.strictSame(json.results[0].doc, { _id: 'note:1', type: 'a' })
})

t.test(
  'a selector’s answer has a validator that depends on the selector, a function’s has none',
  async (t) => {
    const { ask } = await withNotes(t)
    const path = '/db/_changes?filter=_selector'
    const first = await ask('POST', path, { selector: { type: 'a' } })
    const etag = String(first.headers.etag)
    const again = { 'if-none-match': etag }
    t.equal((await ask('POST', path, { selector: { type: 'a' } }, again)).status, 304)
    t.equal((await ask('POST', path, { selector: { type: 'b' } }, again)).status, 200)
    t.equal((await ask('GET', '/db/_changes?filter=mobile/sync')).headers.etag, undefined)
  },
)

t.test('refusals, protocol.md 5.6', async (t) => {
  const client = await withNotes(t)
  const { ask } = client
  const wrong = { $foo: 1 }
  const cases: [method: string, query: string, body: unknown, status: number, reason: unknown][] = [
    ['GET', 'filter=nowhere/sync', undefined, 404, 'missing'],
    ['GET', 'filter=mobile/nothing', undefined, 404, 'missing json key: nothing'],
    ['GET', 'filter=_view&view=nowhere/notes', undefined, 404, 'missing'],
    ['GET', 'filter=_view&view=mobile/nothing', undefined, 404, 'missing json key: nothing'],
    ['GET', 'filter=mobile', undefined, 400, '`filter` must be of the form `designname/filtername`'],
    ['GET', 'filter=a/b/c', undefined, 400, '`filter` must be of the form `designname/filtername`'],
    ['GET', 'filter=_nothing', undefined, 400, 'unknown builtin filter name'],
    ['GET', 'filter=_view', undefined, 400, '`view` filter parameter is not provided.'],
    ['GET', 'filter=_doc_ids', undefined, 400, '`doc_ids` filter parameter is not a list of doc ids.'],
    ['GET', 'filter=_selector', undefined, 400, 'Selector must be specified in POST payload'],
    ['POST', 'filter=_selector', { selector: 1 }, 400, 'Selector error: expected a JSON object'],
    [
      'POST',
      'filter=_selector',
      { selector: {}, fields: 1 },
      400,
      'Selector error: fields must be JSON array',
    ],
    ['POST', 'filter=_selector', { selector: { a: wrong } }, 400, 'Invalid operator: $foo'],
    ['POST', 'filter=_selector', { selector: { a: { $in: 1 } } }, 400, 'Bad argument for operator $in: 1'],
    ['POST', 'filter=_selector', { selector: { a: { $regex: '(?=x)' } } }, 400, /\$regex/],
    ['POST', 'filter=_selector', '[]', 400, 'Request body must be a JSON object'],
    ['GET', 'filter=mobile/fails', undefined, 500, /no/],
    ['GET', 'filter=mobile/broken', undefined, 500, String],
  ]
  for (const feed of ['normal', 'longpoll', 'continuous']) {
    for (const [method, query, body, status, reason] of cases) {
      const answer = await ask(method, `/db/_changes?feed=${feed}&${query}`, body)
      t.match(answer, { status, json: { error: String, reason } }, `${feed} ${query}`)
    }
  }
  const text = { 'content-type': 'text/plain' }
  t.equal((await ask('POST', '/db/_changes?filter=_selector', '{}', text)).status, 415)
  await ask('PUT', '/db/_design/empty', {})
  t.match(await ask('GET', '/db/_changes?filter=empty/x'), {
    status: 404,
    json: { error: 'not_found', reason: 'missing json key: filters' },
  })
  await remove(client, '_design/empty')
  t.match(await ask('GET', '/db/_changes?filter=empty/x'), {
    status: 404,
    json: { error: 'not_found', reason: 'deleted' },
  })
})

t.test('the object req, protocol.md 9.2', async (t) => {
  const { ask, database } = await withNotes(t)
  const told = async (method: string, query: string, body?: unknown, headers: Headers = {}) => {
    const { json } = await ask(method, `/db/_changes?${query}&filter=mobile/tell`, body, headers)
    const reason = typeof json.reason === 'string' ? json.reason : JSON.stringify(json.reason)
    return JSON.parse(reason.slice(reason.indexOf('{'))).told[1]
  }
  const headers = { 'X-My-Header': 'x', Cookie: 'a=b' }
  const query = 'Type=book&descending=true&startkey=%5B1%5D&a=b+c&ä=%C3%B6'
  const req = await told('GET', encodeURI(query).replaceAll('%25', '%'), undefined, headers)
  t.same(Object.keys(req).sort(), [
    'body',
    'cookie',
    'form',
    'headers',
    'id',
    'info',
    'method',
    'path',
    'peer',
    'query',
    'raw_path',
    'requested_path',
    'secObj',
    'userCtx',
    'uuid',
  ])
  t.match(req, {
    info: { db_name: database, doc_count: 3, update_seq: /^9-/ },
    uuid: /^[0-9a-f]{32}$/,
    id: null,
    method: 'GET',
    requested_path: [database, '_changes'],
    path: [database, '_changes'],
    raw_path: /^\/filtered\d+\/_changes\?Type=book&.*&filter=mobile\/tell$/,
    body: 'undefined',
    peer: '127.0.0.1',
    userCtx: { db: database, name: null, roles: ['_admin'] },
  })
  t.same(req.secObj, { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } })
  t.same(req.form, {})
  t.same(req.cookie, {})
  t.same(req.query, {
    Type: 'book',
    descending: true,
    startkey: [1],
    a: 'b c',
    ä: 'ö',
    filter: 'mobile/tell',
  })
  t.match(req.headers, { 'X-My-Header': 'x', Host: /^127/ })
  t.equal(req.headers.Cookie, undefined)
  t.match(await told('POST', 'a=b', { x: 1 }), { method: 'POST', body: { x: 1 } })
})

t.test('a filter reads its own parameters', async (t) => {
  const { ask } = await withNotes(t)
  const ids = async (query: string) => idsIn((await ask('GET', `/db/_changes?${query}`)).text)
  t.same(await ids('filter=mobile/ofType&type=a'), ['note:1', 'file:3'])
  t.same(await ids('filter=mobile/ofType&type=b'), [])
})

t.test('a filter that throws, loops or runs out of memory fails only its own request', async (t) => {
  const { ask, open } = await withNotes(t)
  const filters = {
    sync: SYNC,
    notes: "(doc) => doc._id.split(':')[0] === 'note'",
    throws: "(doc) => { throw new Error('no') }",
    loops: '() => { for (;;); }',
    eats: '() => { const all = []; for (;;) all.push(new Array(10000).fill(1)) }',
    nests: '(doc) => { const f = () => f() + 1; return f() }',
  }
  await ask('PUT', '/db/_design/bad', { filters })
  const watch = (name: string) =>
    open(`/db/_changes?filter=bad/${name}&feed=continuous&since=now&heartbeat=60000`)
  const healthy = [await watch('sync'), await watch('notes')]
  const cases: [name: string, error: string | RegExp][] = [
    ['throws', 'unknown_error'],
    ['loops', 'timeout'],
    ['eats', 'out_of_memory'],
    ['nests', 'unknown_error'],
  ]
  const feeds = ['normal', 'longpoll', 'continuous', 'eventsource']
  const all = feeds.flatMap((feed) =>
    cases.map(async ([name, error]) => {
      const answer = await ask('GET', `/db/_changes?filter=bad/${name}&feed=${feed}`)
      t.match(answer, { status: 500, json: { error, reason: String } }, `${feed} ${name}`)
    }),
  )
  const other = ask('GET', '/db/_changes?filter=bad/notes&since=0')
  t.same(
    idsIn((await other).text),
    ['note:1', 'note:2'],
    'another function of the same design document goes on',
  )
  await Promise.all(all)
  const lines = healthy.map(({ body }) => until(body, 'note:7'))
  await ask('PUT', '/db/note:7', {})
  for (const line of lines) t.same(idsIn(await line), ['note:7'], 'open feeds continue')
  for (const { body } of healthy) body.on('error', () => {}).destroy()
})

t.test('a filter that fails later cuts only its own feed', async (t) => {
  const { ask, open } = await withNotes(t)
  const filters = { picky: "(doc) => { if (doc.bad) throw new Error('no'); return true }", sync: SYNC }
  await ask('PUT', '/db/_design/bad', { filters })
  const [picky, sync] = await Promise.all(
    ['picky', 'sync'].map((name) =>
      open(`/db/_changes?filter=bad/${name}&feed=continuous&since=now&heartbeat=60000`),
    ),
  )
  const cut = picky?.body.text().then(
    () => 'ended in order',
    () => 'cut',
  )
  const line = until((sync as Dispatcher.ResponseData).body, 'note:bad')
  await ask('PUT', '/db/note:bad', { bad: true })
  t.equal(await cut, 'cut')
  t.same(idsIn(await line), ['note:bad'])
  sync?.body.on('error', () => {}).destroy()
})

t.test(
  'while a slow filter lets nothing through, the heart beats, and a longpoll’s end is a place to go on',
  async (t) => {
    const { ask, open } = await withNotes(t)
    const filters = { slow: '() => { const end = Date.now() + 20; while (Date.now() < end); return false }' }
    await ask('PUT', '/db/_design/slow', { filters })
    await ask('POST', '/db/_bulk_docs', {
      docs: Array.from({ length: 60 }, (_, i) => ({ _id: `file:${i + 10}` })),
    })
    for (const feed of ['continuous', 'longpoll']) {
      const { body } = await open(`/db/_changes?filter=slow/slow&feed=${feed}&heartbeat=100`)
      const text = await until(body, '\n\n\n')
      t.match(text, /^(\{"results":\[)?\n+$/, feed)
      body.on('error', () => {}).destroy()
    }
    const { json } = await ask('GET', '/db/_changes?filter=slow/slow&feed=longpoll&timeout=0')
    t.match(json, { results: [], last_seq: /^70-/, pending: 0 })
    const again = await ask('GET', `/db/_changes?filter=slow/slow&since=${json.last_seq}`)
    t.match(again.json, { results: [], last_seq: json.last_seq, pending: 0 })
  },
)

t.test('a changed filter applies to open feeds, a removed one cuts them', async (t) => {
  const client = await withNotes(t)
  const { ask, open } = client
  const { body } = await open('/db/_changes?filter=mobile/sync&feed=continuous&since=now&heartbeat=60000')
  const lines = body[Symbol.asyncIterator]()
  const nextIds = async () => idsIn(String((await lines.next()).value))
  await ask('PUT', '/db/note:8', {})
  t.same(await nextIds(), ['note:8'])
  const change = async (sync: string) => {
    const { json } = await ask('GET', '/db/_design/mobile')
    await ask('PUT', '/db/_design/mobile', { ...json, filters: { sync } })
  }
  // From one that needs no sandbox to one that does, and back.
  await change("(doc) => doc._id.split(':')[0] === 'file'")
  await ask('POST', '/db/_bulk_docs', { docs: [{ _id: 'note:9' }, { _id: 'file:9' }] })
  t.same(await nextIds(), ['file:9'])
  await change("(doc) => doc._id.startsWith('note:')")
  await ask('POST', '/db/_bulk_docs', { docs: [{ _id: 'file:10' }, { _id: 'note:10' }] })
  t.same(await nextIds(), ['note:10'])
  const rest = nextIds().then(
    () => 'another line',
    () => 'cut',
  )
  await remove(client, '_design/mobile')
  t.equal(await rest, 'cut')
})
