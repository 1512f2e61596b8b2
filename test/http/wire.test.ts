/** What holds for every answer; protocol.md 1, 17. */
import { connect as connectSocket } from 'node:net'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('headers of every answer', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  for (const [method, path] of [
    ['GET', '/'],
    ['GET', '/db/none'],
    ['PATCH', '/db'],
    ['PROPFIND', '/db'],
    ['GET', '/%zz'],
    ['GET', '/db?%zz'],
    ['GET', '/db/_all_docs'],
    ['GET', '/db/_changes'],
    ['HEAD', '/db'],
    ['PUT', '/db'],
  ] as const) {
    const { headers } = await call(method, path)
    t.match(
      headers,
      {
        server: /^settee\/\S+ CouchDB\/3\.5\.0$/,
        'x-couch-request-id': /^[0-9a-f]{10}$/,
        'x-couchdb-body-time': /^\d+$/,
        'cache-control': /^must-revalidate/,
        date: /GMT$/,
        'content-type': 'application/json',
      },
      `${method} ${path}`,
    )
  }
})

t.test("a client's proper request id comes back", async (t) => {
  const call = connect(t, await startTestServer(t))
  const echoed = async (id: string) =>
    (await call('GET', '/', { headers: { 'x-couch-request-id': id } })).headers['x-couch-request-id']
  t.equal(await echoed('My_own-id.1'.replace('.', '')), 'My_own-id1')
  t.equal(await echoed('x'.repeat(36)), 'x'.repeat(36))
  for (const id of ['x'.repeat(37), 'a b', 'a.b', '"']) t.match(await echoed(id), /^[0-9a-f]{10}$/)
})

t.test('methods that a path does not know', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const cases: [path: string, method: string, allow: string][] = [
    ['/', 'POST', 'GET,HEAD'],
    ['/_up', 'PUT', 'GET,HEAD'],
    ['/_uuids', 'POST', 'GET'],
    ['/_all_dbs', 'DELETE', 'GET,HEAD'],
    ['/_dbs_info', 'PUT', 'GET,HEAD,POST'],
    ['/_config', 'PUT', 'GET'],
    ['/_node/_local/_config/section', 'DELETE', 'GET'],
    ['/_node/_local/_config/section/key', 'POST', 'GET,PUT,DELETE'],
    ['/db', 'COPY', 'DELETE,GET,HEAD,POST'],
    ['/db', 'OPTIONS', 'DELETE,GET,HEAD,POST'],
    ['/db/_changes', 'PUT', 'GET,POST,HEAD'],
    ['/db/_all_docs', 'PUT', 'GET,HEAD,POST'],
    ['/db/_design_docs', 'DELETE', 'GET,HEAD,POST'],
    ['/db/_local_docs', 'PATCH', 'GET,HEAD,POST'],
    ['/db/_bulk_docs', 'GET', 'POST'],
    ['/db/_bulk_get', 'GET', 'POST'],
    ['/db/_revs_diff', 'HEAD', 'POST'],
    ['/db/_missing_revs', 'PUT', 'POST'],
    ['/db/_ensure_full_commit', 'GET', 'POST'],
    ['/db/_security', 'DELETE', 'PUT,GET'],
    ['/db/_revs_limit', 'POST', 'PUT,GET'],
    ['/db/doc', 'PATCH', 'DELETE,GET,HEAD,POST,PUT,COPY'],
    ['/db/_local/l', 'PATCH', 'DELETE,GET,HEAD,POST,PUT,COPY'],
  ]
  for (const [path, method, allow] of cases) {
    const answer = await call(method, path)
    t.equal(answer.status, 405, `${method} ${path}`)
    t.equal(answer.headers.allow, allow)
    const said = { error: 'method_not_allowed', reason: `Only ${allow} allowed` }
    if (method !== 'HEAD') t.strictSame(answer.json, said)
  }
})

t.test('whole answers of a kilobyte are compressed for those who ask', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const text = 'x'.repeat(2000)
  await call('PUT', '/db/large', { body: JSON.stringify({ text }) })
  await call('PUT', '/db/small', { body: '{}' })
  const get = (path: string, encoding: string) =>
    call('GET', path, { headers: { 'accept-encoding': encoding } })
  const gzipped = await get('/db/large', 'deflate, gzip')
  t.equal(gzipped.headers['content-encoding'], 'gzip')
  t.match(JSON.parse(gunzipSync(gzipped.bytes).toString()), { text })
  const brotli = await get('/db/large', 'br')
  t.equal(brotli.headers['content-encoding'], 'br')
  t.match(JSON.parse(brotliDecompressSync(brotli.bytes).toString()), { text })
  t.equal((await get('/db/large', 'identity')).headers['content-encoding'], undefined)
  t.equal((await get('/db/small', 'gzip')).headers['content-encoding'], undefined)
})

t.test('what is no HTTP gets one answer in JSON', async (t) => {
  const server = await startTestServer(t)
  const cases: [words: string, status: number, error: string][] = [
    ['rubbish\r\n\r\n', 400, 'bad_request'],
    ['GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'bad_request'],
    ['GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n', 400, 'bad_request'],
    [`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'y'.repeat(70_000)}\r\n\r\n`, 431, 'too_large'],
    // Node would leave out the last ones, such as those of a proxy, if it took them (since Node 22.23 and 24.21 it does not).
    [`GET / HTTP/1.1\r\nHost: localhost\r\n${'a: b\r\n'.repeat(1000)}\r\n`, 431, 'too_large'],
    [`GET /${'y'.repeat(70_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 431, 'too_large'],
  ]
  for (const [words, status, error] of cases) {
    const heard = await speak(server.url, words)
    t.match(heard, new RegExp(`^HTTP/1.1 ${status} `), words.slice(0, 40))
    const [head = '', body = ''] = heard.split('\r\n\r\n')
    t.match(head, /^content-type: application\/json\r?$/im)
    t.match(JSON.parse(body), { error, reason: String })
  }
})

t.test('addresses of other forms', async (t) => {
  const server = await startTestServer(t)
  const heard = await speak(
    server.url,
    'GET http://anna:secret@elsewhere/_up HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
  )
  t.match(heard, '{"status":"ok"')
  t.match(await speak(server.url, 'GET /_up HTTP/1.0\r\n\r\n'), /^HTTP\/1.1 200 /)
  const expecting = 'GET /_up HTTP/1.1\r\nHost: localhost\r\nExpect: miracles\r\nConnection: close\r\n\r\n'
  t.match(await speak(server.url, expecting), /^HTTP\/1.1 200 /)
  const starred = await speak(
    server.url,
    'OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
  )
  t.match(starred, /^HTTP\/1.1 405 /)
})

t.test('a GET may carry a body, and the connection goes on', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  for (let i = 0; i < 3; i++) {
    t.equal((await call('GET', '/db', { body: Buffer.alloc(100_000) })).status, 200)
    t.equal((await call('PUT', '/db', { body: Buffer.alloc(100_000) })).status, 412)
  }
})

t.test('one line a request at debug, without the query and the headers', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  await call('GET', '/db/x?token=hunter2', { auth: 'anna:hunter2', headers: { 'x-couch-request-id': 'me' } })
  const lines = requestLines(server.lines)
  t.equal(lines.length, 2)
  t.match(lines[1], {
    id: 'me',
    method: 'GET',
    path: '/db/x',
    database: 'db',
    account: null,
    status: 404,
    ms: Number,
    bytes: Number,
  })
  t.ok(Number(lines[1]?.bytes) > 100)
  t.notMatch(server.lines.join(''), 'hunter2')
  server.app.services.logger.level = 'info'
  await call('GET', '/db')
  t.equal(requestLines(server.lines).length, 2)
})

function requestLines(lines: readonly string[]): Record<string, unknown>[] {
  return lines
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ msg }) => msg === 'request')
}

/** Says something over a socket and listens until it is closed. */
function speak(url: string, words: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connectSocket(Number(new URL(url).port), '127.0.0.1', () => socket.write(words))
    const heard: Buffer[] = []
    socket.on('data', (chunk) => heard.push(chunk))
    socket.on('error', () => {})
    socket.on('close', () => resolve(Buffer.concat(heard).toString()))
  })
}

t.test('a 304 says nothing of a length', async (t) => {
  const { url } = await startMemoryServer(t)
  await fetch(`${url}/db`, { method: 'PUT' })
  const etag = (await fetch(`${url}/db/a`, { method: 'PUT', body: '{}' })).headers.get('etag')
  for (const method of ['GET', 'HEAD']) {
    const head = `${method} /db/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-None-Match: ${etag}\r\n\r\n`
    const answer = await speak(url, head)
    t.match(answer, /^HTTP\/1.1 304 .*\r\n\r\n$/s)
    t.notMatch(answer, /content-length|transfer-encoding/i)
  }
})
