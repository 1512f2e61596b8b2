import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { createGunzip, gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { Agent, type Dispatcher, request } from 'undici'
import { startTestServer, type TestServer } from '../helpers/server.ts'

type Headers = Readonly<Record<string, string>>

interface Answer {
  readonly status: number
  readonly headers: Dispatcher.ResponseData['headers']
  readonly text: string
  readonly json: Record<string, unknown>
}

interface Client {
  /** The whole answer. */
  ask(method: string, path: string, body?: unknown, headers?: Headers): Promise<Answer>
  /** The answer when its head has come. */
  open(path: string, headers?: Headers): Promise<Dispatcher.ResponseData>
}

const JSON_TYPE = { 'content-type': 'application/json' }

/** A server for all tests that do not change it; each has its own database, which it calls `/db`. */
const shared = await startTestServer(t)
let databases = 0

async function connect(t: Test, { url }: TestServer = shared): Promise<Client> {
  const dispatcher = new Agent()
  const database = `/db${databases++}`
  t.teardown(() => dispatcher.destroy())
  const send = (method: string, path: string, body: unknown, headers: Headers) =>
    request(url + path.replace(/^\/db\b/, database), {
      dispatcher,
      method: method as Dispatcher.HttpMethod,
      headers: body === undefined ? headers : { ...JSON_TYPE, ...headers },
      body:
        body === undefined || typeof body === 'string'
          ? ((body as string | undefined) ?? null)
          : JSON.stringify(body),
    })
  return {
    open: (path, headers = {}) => send('GET', path, undefined, headers),
    async ask(method, path, body, headers = {}) {
      const { statusCode, headers: answered, body: sent } = await send(method, path, body, headers)
      const text = await sent.text()
      return { status: statusCode, headers: answered, text, json: parsed(text) }
    },
  }
}

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return {}
  }
}

/** Reads a stream until it contains this text. */
async function until(stream: Readable, text: string): Promise<string> {
  let read = ''
  while (!read.includes(text)) {
    const [chunk] = (await once(stream, 'data')) as [Buffer]
    read += chunk.toString()
  }
  return read
}

/** A server with the database of protocol.md 19.5: `a` at 6, `b` deleted at 7, `c` at 8. */
async function connectToVectors(t: Test, server?: TestServer): Promise<Client> {
  const client = await connect(t, server)
  await client.ask('PUT', '/db')
  let rev: unknown
  for (let n = 0; n < 5; n++)
    rev = (await client.ask('PUT', '/db/c', { n, ...(n > 0 && { _rev: rev }) })).json.rev
  await client.ask('PUT', '/db/a', {})
  const { status } = await client.ask('POST', '/db/_bulk_docs', {
    new_edits: false,
    docs: [{ _id: 'b', _rev: '2-bb', _deleted: true }],
  })
  t.equal(status, 201)
  await client.ask('PUT', '/db/c', { n: 5, _rev: rev })
  return client
}

function shortOf({ json }: Answer) {
  const rows = json.results as { seq: string | null }[]
  const number = (token: unknown) => (token === null ? null : Number.parseInt(String(token), 10))
  return { seqs: rows.map(({ seq }) => number(seq)), last: number(json.last_seq), pending: json.pending }
}

t.test('the vectors of protocol.md 19.5', async (t) => {
  const { ask } = await connectToVectors(t)
  const vectors: [query: string, seqs: (number | null)[], last: number, pending: number][] = [
    ['', [6, 7, 8], 8, 0],
    ['limit=1', [6], 6, 2],
    ['limit=0', [], 0, 3],
    ['since=now', [], 8, 0],
    ['descending=true', [8, 7, 6], 6, 0],
    ['descending=true&limit=1', [8], 8, 2],
    ['descending=true&limit=0', [], 8, 3],
    ['seq_interval=3', [null, 7, null], 8, 0],
    ['feed=longpoll', [6, 7, 8], 8, 0],
    ['feed=longpoll&since=now&timeout=10', [], 8, 0],
    ['style=all_docs&include_docs=true&conflicts=true&attachments=true&_nonce=1', [6, 7, 8], 8, 0],
    ['filter=_doc_ids&doc_ids=["c","a","zz"]', [6, 8], 8, 0],
  ]
  for (const [query, seqs, last, pending] of vectors) {
    t.same(
      shortOf(await ask('GET', `/db/_changes?${query.replaceAll('"', '%22')}`)),
      { seqs, last, pending },
      query,
    )
  }
  const limited = await ask('GET', '/db/_changes?feed=continuous&limit=3')
  t.match(limited.text, /^(\{"seq":[^\n]*\n){3}\{"last_seq":"8-[^"]*","pending":0\}\n$/)
  const waited = await ask('GET', '/db/_changes?feed=continuous&limit=4&timeout=50')
  t.match(waited.text, /^(\{"seq":[^\n]*\n){3}\{"last_seq":"8-[^"]*","pending":0\}\n$/)
})

t.test('bytes and headers, protocol.md 5.3', async (t) => {
  const { ask } = await connectToVectors(t)
  const { text, headers } = await ask('GET', '/db/_changes')
  t.match(
    text,
    /^\{"results":\[\n\{.*\},\r\n\{.*\},\r\n\{.*\}\n\],\n"last_seq":"8-[0-9A-Za-z_-]+","pending":0\}\n\n$/,
  )
  t.match(headers, {
    'content-type': 'application/json',
    'cache-control': 'must-revalidate, no-transform',
    'x-accel-buffering': 'no',
    'transfer-encoding': 'chunked',
    etag: /^"[^"]+"$/,
    server: /CouchDB/,
  })
  const longpoll = await ask('GET', '/db/_changes?feed=longpoll')
  t.equal(longpoll.text, text)
  t.notOk(longpoll.headers.etag)
  const events = await ask('GET', '/db/_changes?feed=eventsource&limit=2')
  t.match(events.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform' })
  t.match(events.text, /^(data: \{"seq":("[^"]+").*\}\nid: \2\n\n){2}$/)
})

t.test('ETag and 304 until something changes', async (t) => {
  const { ask } = await connectToVectors(t)
  const first = await ask('GET', '/db/_changes')
  const etag = String(first.headers.etag)
  const second = await ask('GET', '/db/_changes', undefined, { 'if-none-match': `"x", ${etag}` })
  t.match(second, { status: 304, text: '', headers: { etag } })
  t.equal((await ask('GET', '/db/_changes?limit=1', undefined, { 'if-none-match': etag })).status, 200)
  await ask('PUT', '/db/d', {})
  t.equal((await ask('GET', '/db/_changes', undefined, { 'if-none-match': etag })).status, 200)
})

t.test('HEAD gets only the head, also of a waiting feed', async (t) => {
  const { ask } = await connectToVectors(t)
  for (const query of ['', '?feed=longpoll&since=now&heartbeat=1000', '?feed=continuous&heartbeat=1000']) {
    const { status, text, headers } = await ask('HEAD', `/db/_changes${query}`)
    t.match({ status, text }, { status: 200, text: '' })
    t.equal(headers['content-type'], 'application/json')
  }
  t.equal((await ask('HEAD', '/db/_changes?since=rubbish')).status, 400)
})

t.test('POST', async (t) => {
  const { ask } = await connectToVectors(t)
  const listed = await ask('POST', '/db/_changes?filter=_doc_ids', { doc_ids: ['c', 'b'] })
  t.same(shortOf(listed), { seqs: [7, 8], last: 8, pending: 0 })
  t.same(shortOf(await ask('POST', '/db/_changes', { doc_ids: ['c'] })).seqs, [6, 7, 8], 'without a filter')
  t.same(shortOf(await ask('POST', '/db/_changes', '', JSON_TYPE)).seqs, [6, 7, 8], 'an empty body')
  const refusals: [body: unknown, headers: Headers, status: number, reason: string][] = [
    ['[]', {}, 400, 'Request body must be a JSON object'],
    ['{"doc_ids":', {}, 400, 'invalid UTF-8 JSON'],
    ['{}', { 'content-type': 'text/plain' }, 415, 'Content-Type must be application/json'],
  ]
  for (const [body, headers, status, reason] of refusals) {
    t.match(await ask('POST', '/db/_changes', body, headers), { status, json: { reason } }, reason)
  }
  const noList = await ask('POST', '/db/_changes?filter=_doc_ids', { doc_ids: 'a' })
  t.match(noList, { status: 400, json: { reason: '`doc_ids` filter parameter is not a list of doc ids.' } })
})

t.test('refusals', async (t) => {
  const { ask } = await connectToVectors(t)
  const cases: [method: string, path: string, status: number, reason: string | RegExp][] = [
    ['GET', '/absent/_changes', 404, 'Database does not exist.'],
    ['GET', '/db/_changes?since=rubbish', 400, "Malformed sequence supplied in 'since' parameter."],
    ['GET', '/db/_changes?feed=foo', 400, /^Supported `feed` types/],
    [
      'GET',
      '/db/_changes?heartbeat=-1',
      400,
      'The heartbeat value should be a positive integer (in milliseconds).',
    ],
    ['GET', '/db/_changes?heartbeat=foo', 400, /^Invalid heartbeat value/],
    ['GET', '/db/_changes?limit=-1', 400, 'The limit value should be a non-negative integer'],
    ['GET', '/db/_changes?seq_interval=0', 400, 'invalid_seq_interval'],
    ['GET', '/db/_changes?filter=_nothing', 400, 'unknown builtin filter name'],
    ['GET', '/db/_changes?filter=mobile/sync', 404, 'missing'],
    ['PUT', '/db/_changes', 405, 'Only GET,POST,HEAD allowed'],
  ]
  for (const [method, path, status, reason] of cases) {
    t.match(await ask(method, path), { status, json: { error: String, reason } }, path)
  }
})

t.test('a longpoll sends its head at once and wakes with a write', async (t) => {
  const { ask, open } = await connectToVectors(t)
  const { statusCode, body } = await open('/db/_changes?feed=longpoll&since=now&heartbeat=10000')
  t.equal(statusCode, 200)
  const text = body.text()
  await ask('PUT', '/db/_local/x', {})
  const { json } = await ask('PUT', '/db/d', {})
  t.match(JSON.parse(await text), { results: [{ id: 'd', changes: [{ rev: json.rev }] }], pending: 0 })
})

t.test('the requests of a live PouchDB replication', async (t) => {
  const { ask, open } = await connectToVectors(t)
  const known = await ask('GET', '/db/_changes?style=all_docs&since=0&limit=100')
  const since = String(known.json.last_seq)
  const query = `style=all_docs&feed=longpoll&heartbeat=10000&since=${since}&limit=100`
  const followers = await Promise.all([1, 2, 3].map(() => open(`/db/_changes?${query}`)))
  const texts = followers.map(({ body }) => body.text())
  await ask('POST', '/db/_bulk_docs', { docs: [{ _id: 'd' }, { _id: 'e' }] })
  for (const text of await Promise.all(texts))
    t.match(JSON.parse(text), { results: [{ id: 'd' }, { id: 'e' }] })
})

t.test('a continuous feed sends each line at once, also compressed', async (t) => {
  const { ask, open } = await connectToVectors(t)
  const plain = await open('/db/_changes?feed=continuous&since=now')
  const packed = await open('/db/_changes?feed=continuous&since=now', { 'accept-encoding': 'gzip, br' })
  t.equal(packed.headers['content-encoding'], 'gzip')
  const unpacked = packed.body.pipe(createGunzip())
  for (const id of ['d', 'e']) {
    const lines = [until(plain.body, '\n'), until(unpacked, '\n')]
    await ask('PUT', `/db/${id}`, {})
    for (const line of await Promise.all(lines)) t.match(JSON.parse(line), { id })
  }
  plain.body.on('error', () => {}).destroy()
  packed.body.on('error', () => {}).destroy()
})

t.test('heartbeats', async (t) => {
  const { open } = await connectToVectors(t)
  const continuous = await open('/db/_changes?feed=continuous&since=now&heartbeat=20')
  t.equal(await until(continuous.body, '\n\n').then((text) => text.replaceAll('\n', '')), '')
  const events = await open('/db/_changes?feed=eventsource&since=now&heartbeat=20')
  t.match(await until(events.body, 'heartbeat'), 'event: heartbeat\ndata: \n\n')
  continuous.body.on('error', () => {}).destroy()
  events.body.on('error', () => {}).destroy()
})

t.test('Last-Event-ID continues an event stream', async (t) => {
  const { ask } = await connectToVectors(t)
  const first = await ask('GET', '/db/_changes?feed=eventsource&limit=1')
  const [, id = ''] = /^id: (.*)$/m.exec(first.text) ?? []
  const next = await ask('GET', '/db/_changes?feed=eventsource&limit=1&since=0', undefined, {
    'last-event-id': id,
  })
  t.match(next.text, /^data: \{"seq":"7-/)
})

t.test('feeds end in order when their database is deleted', async (t) => {
  const { ask, open } = await connectToVectors(t)
  const longpoll = (await open('/db/_changes?feed=longpoll&since=now&heartbeat=1000')).body.text()
  const continuous = (await open('/db/_changes?feed=continuous&since=now&heartbeat=1000')).body.text()
  t.equal((await ask('DELETE', '/db')).status, 200)
  t.match(JSON.parse(await longpoll), { results: [], last_seq: /^8-/ })
  t.match(await continuous, /\{"last_seq":"8-[^"]*","pending":0\}\n$/)
  t.equal((await ask('GET', '/db/_changes')).status, 404)
})

t.test('feeds end when the server or their database is secured', async (t) => {
  const { ask, open } = await connectToVectors(t, await startTestServer(t))
  const everybody = (await open('/db/_changes?feed=continuous&since=now&heartbeat=1000')).body.text()
  await ask('PUT', '/_node/_local/_config/admins/anna', '"secret"')
  t.match(await everybody, /\{"last_seq":"8-[^"]*","pending":0\}\n$/)
  const anna = { authorization: `Basic ${Buffer.from('anna:secret').toString('base64')}` }
  t.equal((await ask('PUT', '/db/_security', { members: {} }, anna)).status, 200)
  const anybody = (await open('/db/_changes?feed=continuous&since=now&heartbeat=1000')).body.text()
  const annas = await open('/db/_changes?feed=continuous&since=now&heartbeat=1000', anna)
  t.equal((await ask('PUT', '/db/_security', { members: { names: ['bert'] } }, anna)).status, 200)
  t.match(await anybody, /\{"last_seq":"8-[^"]*","pending":0\}\n$/)
  const line = until(annas.body, '"id":"d"')
  await ask('PUT', '/db/d', {}, anna)
  t.ok(await line)
  t.equal((await ask('GET', '/db/_changes')).status, 401)
  annas.body.on('error', () => {}).destroy()
})

t.test('one answer from many pages', async (t) => {
  const { ask } = await connect(t)
  await ask('PUT', '/db')
  const docs = Array.from({ length: 1234 }, (_, i) => ({ _id: `d${i}`, text: 'x'.repeat(500) }))
  await ask('POST', '/db/_bulk_docs', { docs })
  const { json } = await ask('GET', '/db/_changes?include_docs=true')
  t.equal((json.results as unknown[]).length, 1234)
  const packed = await ask('GET', '/db/_changes?feed=continuous&timeout=0&include_docs=true')
  t.equal(packed.text.split('\n').length, 1236)
})

t.test('a compressed answer is whole', async (t) => {
  const { open } = await connectToVectors(t)
  const { headers, body } = await open('/db/_changes?include_docs=true', { 'accept-encoding': 'gzip' })
  t.match(headers, { 'content-encoding': 'gzip', etag: /^W\/"/ })
  const text = gunzipSync(Buffer.from(await body.arrayBuffer())).toString()
  t.equal((JSON.parse(text) as { results: unknown[] }).results.length, 3)
})

t.test('a server stops at once, even if clients reconnect', async (t) => {
  const server = await startTestServer(t)
  const { ask, open } = await connectToVectors(t, server)
  const follow = async () => {
    const { body } = await open('/db/_changes?feed=longpoll&since=now&heartbeat=60000')
    return body.text()
  }
  const rounds = async () => {
    let answered = 0
    for (;;) {
      const text = await follow().catch(() => null)
      if (text === null) return answered
      t.match(JSON.parse(text), { results: [], pending: 0 })
      answered++
    }
  }
  const followers = [rounds(), rounds(), rounds()]
  const continuous = (await open('/db/_changes?feed=continuous&since=now&heartbeat=60000')).body.text()
  await ask('GET', '/db/_changes')
  const start = performance.now()
  await server.close()
  t.ok(performance.now() - start < 3000)
  t.match(await continuous, /\{"last_seq":"8-[^"]*","pending":0\}\n$/)
  for (const answered of await Promise.all(followers)) t.ok(answered >= 1)
})
