/** The connections of `_changes`: feeds that wait, compression, ends; protocol.md 5. The rest is in test/surface. */
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

t.test('a compressed answer is whole, and a short one is not compressed', async (t) => {
  const { ask, open } = await connectToVectors(t)
  const path = '/db/_changes?include_docs=true'
  const short = await open(path, { 'accept-encoding': 'gzip' })
  const bytes = Buffer.from(await short.body.arrayBuffer())
  t.notOk('content-encoding' in short.headers)
  t.match(short.headers, { etag: /^"/, vary: /Accept-Encoding/ })
  t.equal((JSON.parse(bytes.toString()) as { results: unknown[] }).results.length, 3)
  await ask('PUT', '/db/long', { text: 'some words '.repeat(100) })
  const { headers, body } = await open(path, { 'accept-encoding': 'gzip' })
  t.match(headers, { 'content-encoding': 'gzip', etag: /^W\/"/ })
  const text = gunzipSync(Buffer.from(await body.arrayBuffer())).toString()
  t.equal((JSON.parse(text) as { results: unknown[] }).results.length, 4)
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
