/** Limits of HTTP/2: long heads, many streams, answers that are not read, clients that vanish. */
import { once } from 'node:events'
import { constants } from 'node:http2'
import { getDefaultHighWaterMark, setDefaultHighWaterMark } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { openStream, type ResponseStream } from '../../../src/http/transport/json-stream.ts'
import { until } from '../../helpers/until.ts'
import { openSession, startSecureMemoryServer } from '../../http/http2-client.ts'
import {
  frame,
  framesOf,
  lastData,
  openFrames,
  requestHead,
  reset,
  wideWindows,
} from '../../http/http2-frames.ts'

const { NGHTTP2_CANCEL, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_NO_ERROR, NGHTTP2_PROTOCOL_ERROR } = constants
const MB = 1024 * 1024
const LARGE = 20 * MB
const PUBLIC = { config: { access: 'public' } } as const
/** Node's default before Node 22. */
const SMALL_MARK = 16 * 1024
const HEAD = { ':method': 'GET', ':scheme': 'https', ':authority': 'localhost' } as const

/** A server with a database, and an attachment larger than any window. */
async function startWithFile(t: Test, ...more: [] | [Record<string, string>]) {
  const server = await startSecureMemoryServer(t, ...more)
  const { ask, session } = await openSession(t, server.secureUrl, server.tls.cert)
  await ask('PUT /db')
  await ask('PUT /db/file/large', { body: Buffer.alloc(LARGE, 'settee ') })
  session.close()
  await until(() => server.app.connectionTally.counts().openConnections === 0)
  return server
}

t.test('a head that is too long', async (t) => {
  const { secureUrl, tls } = await startSecureMemoryServer(t)
  const { ask, open } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  const feed = open({ ':path': '/db/_changes?feed=continuous&heartbeat=20' })
  const half = 'x'.repeat(40_000)
  t.match(await ask('GET /', { headers: { 'x-long': 'x'.repeat(60_000) } }), { status: 200 })
  t.match(await ask('GET /', { headers: { 'x-a': half, 'x-b': half } }), {
    status: 431,
    json: { error: 'too_large' },
  })
  const longer = { 'x-a': half, 'x-b': half, 'x-c': half, 'x-d': half }
  const { status, code } = await ask('GET /', { headers: longer })
  t.same([status, code], [undefined, NGHTTP2_ENHANCE_YOUR_CALM], 'longer headers end the connection')
  const many = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`x-${at}`, 'x']))
  t.match(await ask('GET /', { headers: many }), { status: 200 }, 'many are as good as few')
  const before = feed.text().length
  await until(() => feed.text().length > before)
  t.pass('and the others of its connection go on')
})

t.test('more requests than a connection may have under way', async (t) => {
  const { secureUrl, tls, app } = await startSecureMemoryServer(t)
  const { ask } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  let most = 0
  const look = setInterval(() => {
    most = Math.max(most, app.requestTally.counts().underWay)
  }, 1)
  const asked = Array.from({ length: 600 }, (_, at) =>
    at % 2 === 0 ? ask('GET /db') : ask(`PUT /db/${at}`, { body: '{}' }),
  )
  const statuses = (await Promise.all(asked)).map(({ status }) => status)
  clearInterval(look)
  t.same(new Set(statuses), new Set([200, 201]), 'the others wait')
  t.ok(most <= 128, `${most} at once`)
})

t.test('answers that are read slowly', async (t) => {
  const { secureUrl, tls, app } = await startWithFile(t)
  const { ask, open, session } = await openSession(t, secureUrl, tls.cert)
  // A paused client takes a high-water mark and then a window (64 kB) of each stream. At Node's default, 64 kB since
  // Node 22, 100 streams take 12.4 MB; at 16 kB they take 6.3 MB. The mark of the server's streams changes neither.
  const mark = getDefaultHighWaterMark(false)
  setDefaultHighWaterMark(false, SMALL_MARK)
  const slow = Array.from({ length: 100 }, () => {
    const { stream } = open({ ':path': '/db/file/large' })
    stream.pause()
    return stream
  })
  setDefaultHighWaterMark(false, mark)
  await Promise.all(slow.map((stream) => once(stream, 'response')))
  t.match(await ask('GET /'), { status: 200 }, 'leave room for others of the same connection')
  t.ok(app.connectionTally.counts().sentBytes < 8 * MB, 'no more is sent than is taken')
  const [first, ...others] = slow
  for (const stream of others) stream.close(NGHTTP2_CANCEL)
  let length = 0
  first?.on('data', (chunk: Buffer) => {
    length += chunk.length
  })
  first?.resume()
  await once(first!, 'end')
  t.equal(length, LARGE, 'a reader that continues gets the whole answer')
  session.close()
})

t.test('a client that leaves', async (t) => {
  const { secureUrl, tls, app } = await startWithFile(t)
  const ways = [
    ['closes its side', (socket) => socket.end()],
    ['is gone', (socket) => socket.destroy()],
    ['cancels', (socket) => socket.write(reset(1, NGHTTP2_CANCEL))],
    ['cancels as if all were well', (socket) => socket.write(reset(1, NGHTTP2_NO_ERROR))],
  ] as const satisfies readonly (readonly [
    string,
    (socket: Awaited<ReturnType<typeof openFrames>>) => unknown,
  ])[]
  const paths = ['/db/file/large', '/db/_changes?feed=longpoll&since=now', '/db/_changes?feed=continuous']
  for (const [what, go] of ways) {
    for (const path of paths) {
      t.test(`${what}: ${path}`, async () => {
        const socket = await openFrames(secureUrl, tls.cert)
        socket.write(requestHead(1, { ...HEAD, ':path': path }, true))
        await until(() => app.requestTally.counts().underWay === 1)
        // Until an answer has begun, and waits for its client.
        await until(() => socket.bytesRead > 1000 || path.includes('_changes'))
        go(socket)
        await until(() => app.requestTally.counts().underWay === 0)
        await until(() => app.activeRequests.size === 0)
        socket.destroy()
        await until(() => app.connectionTally.counts().openConnections === 0)
      })
    }
  }
})

t.test('a connection that reads nothing is ended once it has no requests', async (t) => {
  let answer: ResponseStream | undefined
  const options = { idleMs: 100 }
  const begin = (app: Parameters<NonNullable<Parameters<typeof startSecureMemoryServer>[2]>>[0]) => {
    app.get('/_flood', PUBLIC, async (request, reply) => {
      answer = openStream(request, reply, { status: 200 })
      void answer.write(Buffer.alloc(64 * MB))
    })
  }
  const { secureUrl, tls, app } = await startSecureMemoryServer(t, {}, begin, options)
  const socket = await openFrames(secureUrl, tls.cert)
  socket.pause()
  socket.write(wideWindows())
  socket.write(requestHead(1, { ...HEAD, ':path': '/_flood' }, true))
  await until(() => answer !== undefined)
  answer?.fail(new Error('enough'))
  await until(() => app.connectionTally.counts().openConnections === 0)
  t.equal(app.requestTally.counts().underWay, 0)
})

t.test('requests that HTTP/2 forbids', async (t) => {
  const { secureUrl, tls, app } = await startSecureMemoryServer(t)
  const { ask } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  const before = app.requestTally.counts().underWay
  const put = { ...HEAD, ':method': 'PUT', ':path': '/db/a' }
  const forbidden = [
    [requestHead(1, { ...put, connection: 'close' }, true)],
    [requestHead(1, { ...put, 'transfer-encoding': 'chunked' }, true)],
    [requestHead(1, { ...put, 'X-Upper': 'x' }, true)],
    [requestHead(1, { ...put, 'content-length': '2' }, true)],
    [requestHead(1, { ...put, 'content-length': '5' }), lastData(1, '{}')],
    [requestHead(1, { ...put, 'content-length': '1' }), lastData(1, '{}')],
  ]
  const code = Buffer.from([0, 0, 0, NGHTTP2_PROTOCOL_ERROR])
  for (const frames of forbidden) {
    const socket = await openFrames(secureUrl, tls.cert)
    const chunks: Buffer[] = []
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.on('error', () => undefined)
    socket.write(Buffer.concat(frames))
    const heard = () => framesOf(Buffer.concat(chunks))
    // Newer versions of nghttp2 end the connection, older ones the stream.
    const isReset = () => heard().some(({ type, payload }) => type === 'reset' && payload.equals(code))
    await until(() => isReset() || socket.closed || socket.destroyed)
    t.notOk(
      heard().some(({ type }) => type === 'headers'),
      'is not answered',
    )
    socket.destroy()
  }
  await until(() => app.requestTally.counts().underWay === before)
  t.match(await ask('GET /db/a'), { status: 404 }, 'nothing of the requests is stored')
})

t.test('useless frames', async (t) => {
  const { secureUrl, tls } = await startSecureMemoryServer(t)
  const many = (one: Buffer) => Buffer.concat(Array<Buffer>(1000).fill(one))
  let id = 1
  const begunAndReset = () => {
    id += 2
    return Buffer.concat([requestHead(id, { ...HEAD, ':path': '/_up' }, true), reset(id, NGHTTP2_CANCEL)])
  }
  const floods: Record<string, () => Buffer> = {
    WINDOW_UPDATE: () => many(frame('window', 0, Buffer.from([0, 0, 0, 1]))),
    'empty DATA': () => many(frame('data', 1, Buffer.alloc(0))),
    'DATA of a byte': () => many(frame('data', 1, Buffer.from('x'))),
    PRIORITY: () => many(frame('priority', 1, Buffer.from([0, 0, 0, 0, 10]))),
    SETTINGS: () => many(frame('settings', 0, Buffer.alloc(0))),
    PING: () => many(frame('ping', 0, Buffer.alloc(8))),
    CONTINUATION: () => many(frame('continuation', 1, Buffer.alloc(0))),
    'streams that are reset': () => Buffer.concat(Array.from({ length: 200 }, begunAndReset)),
  }
  const cut = Object.entries(floods).map(async ([name, make]) => {
    const socket = await openFrames(secureUrl, tls.cert)
    socket.on('error', () => undefined)
    const put = requestHead(1, { ...HEAD, ':method': 'PUT', ':path': '/db' })
    if (name === 'CONTINUATION') put.writeUInt8(0, 4)
    socket.write(put)
    const flood = () => {
      while (!socket.destroyed && socket.write(make()));
    }
    socket.on('drain', flood)
    flood()
    await new Promise((resolve) => socket.once('close', resolve))
    t.pass(name)
  })
  await Promise.all(cut)
})

t.test('a busy client is no flood', async (t) => {
  const { secureUrl, tls } = await startSecureMemoryServer(t)
  const { ask, open, session } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  const feed = open({ ':path': '/db/_changes?feed=continuous&heartbeat=20' })
  const body = JSON.stringify({ text: 'x'.repeat(50_000) })
  const until = performance.now() + 2500
  for (let round = 0; performance.now() < until; round += 1) {
    const puts = Array.from({ length: 100 }, (_, at) => ask(`PUT /db/${round}-${at}`, { body }))
    t.same(new Set((await Promise.all(puts)).map(({ status }) => status)), new Set([201]))
    const gets = Array.from({ length: 100 }, (_, at) => ask(`GET /db/${round}-${at}`))
    t.same(new Set((await Promise.all(gets)).map(({ status }) => status)), new Set([200]))
    // Refused while its body is being received.
    const refused = Array.from({ length: 20 }, () => ask('PUT /db/_unknown', { body }))
    await Promise.all(refused)
  }
  t.notOk(session.closed)
  t.ok(feed.text().length > 0)
})

t.test('an unknown method is refused as over HTTP/1', async (t) => {
  const { secureUrl, tls, app, lines } = await startSecureMemoryServer(t)
  const { ask } = await openSession(t, secureUrl, tls.cert)
  for (const body of [undefined, '{}']) {
    const answer = await ask('BREW /db', { headers: { origin: 'app://obsidian.md' }, ...(body && { body }) })
    t.match(answer, { status: 400, isWhole: true, json: { error: 'bad_request', reason: /not valid HTTP/ } })
  }
  t.match(await ask('PROPFIND /db'), { status: 405 })
  t.equal(app.requestTally.counts().invalid, 2)
  t.notOk(lines.some((line) => /"level":[456]0/.test(line)))
})

t.test('a connection on which the protocol is broken', async (t) => {
  const options = { checkMs: 100, idleMs: 500 }
  const { secureUrl, tls, app } = await startSecureMemoryServer(t, {}, undefined, options)
  const good = await openSession(t, secureUrl, tls.cert)
  await good.ask('PUT /db')
  const path = '/db/_changes?feed=longpoll&since=now'
  const feed = good.open({ ':path': path })
  for (const isAsked of [true, false]) {
    const bad = await openFrames(secureUrl, tls.cert)
    if (isAsked) {
      bad.write(requestHead(1, { ...HEAD, ':path': path }, true))
      await until(() => app.requestTally.counts().underWay === 2)
    }
    // For a stream that was never opened: RFC 9113 5.1.
    bad.write(lastData(99, 'x'))
    await once(bad, 'data')
    bad.destroy()
    await until(() => app.connectionTally.counts().openConnections === 1)
    t.pass(isAsked ? 'what was asked on it ends' : 'and so does it without')
  }
  // More requests than on the broken connection.
  await sleep(1000)
  t.notOk(feed.stream.closed, 'a connection that answers pings stays open')
  t.match(await good.ask('GET /db'), { status: 200 })
})

t.test('bodies and answers of other kinds', async (t) => {
  const settings = { 'chttpd/max_http_request_size': '100000' }
  const { secureUrl, tls, lines } = await startSecureMemoryServer(t, settings)
  const { ask, session } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  const gzip = { 'content-encoding': 'gzip' }

  t.test('a body with trailers', async (t) => {
    const stream = session.request({ ':method': 'PUT', ':path': '/db/trailers' }, { waitForTrailers: true })
    stream.once('wantTrailers', () => stream.sendTrailers({ 'x-checksum': 'none' }))
    stream.end('{"text":"ä"}')
    stream.resume()
    const [head] = await once(stream, 'response')
    t.equal(head[':status'], 201)
    t.match(await ask('GET /db/trailers'), { json: { text: 'ä' } })
  })

  t.test('a body that is compressed, cut, or inflates a lot', async (t) => {
    const packed = gzipSync('{"text":"packed"}')
    t.match(await ask('PUT /db/packed', { body: packed, headers: gzip }), { status: 201 })
    t.match(await ask('GET /db/packed'), { json: { text: 'packed' } })
    const cut = await ask('PUT /db/cut', { body: packed.subarray(0, 20), headers: gzip })
    t.match(cut, { status: 400, json: { error: 'bad_request' } })
    const bomb = gzipSync(`{"text":"${'x'.repeat(MB)}"}`)
    t.match(await ask('PUT /db/bomb', { body: bomb, headers: gzip }), { status: 413 })
  })

  t.test('compressed answers, whole and streamed', async (t) => {
    await ask('PUT /db/long', { body: JSON.stringify({ text: 'x'.repeat(5000) }) })
    for (const path of ['/db/long', '/db/_all_docs?include_docs=true', '/db/_changes?include_docs=true']) {
      const { headers, isWhole } = await ask(`GET ${path}`, { headers: { 'accept-encoding': 'gzip' } })
      t.match({ headers, isWhole }, { headers: { 'content-encoding': 'gzip' }, isWhole: true }, path)
    }
  })

  t.test('heads and parts of answers that come in pieces', async (t) => {
    const picture = 'settee '.repeat(10_000)
    t.match(await ask('PUT /db/file/picture', { body: picture }), { status: 201 })
    for (const path of ['/db/file/picture', '/db/_all_docs', '/db/_changes']) {
      const [whole, head] = [await ask(`GET ${path}`), await ask(`HEAD ${path}`)]
      t.match(head, { status: 200, text: '', code: 0 }, path)
      t.equal(head.headers['content-type'], whole.headers['content-type'])
      t.equal(head.headers['content-length'], whole.headers['content-length'])
    }
    const part = await ask('GET /db/file/picture', { headers: { range: 'bytes=7-12' } })
    t.match(part, { status: 206, text: 'settee', headers: { 'content-range': 'bytes 7-12/70000' } })
    const { headers } = await ask('GET /db/file/picture')
    const again = { 'if-none-match': headers.etag as string }
    const same = await ask('GET /db/file/picture', { headers: again })
    t.match(same, { status: 304, text: '', code: 0, isWhole: true })
    t.notOk('content-length' in same.headers, 'whose length would be that of the answer with 200')
  })

  t.test('log lines of a request', async (t) => {
    const { text } = await ask('GET /db/long?attachments=true')
    const line = lines.map((each) => JSON.parse(each)).findLast(({ path }) => path === '/db/long')
    t.match(line, { method: 'GET', address: '127.0.0.1', status: 200, bytes: text.length })
  })

  t.test('an answer without a body', async (t) => {
    const asked = { origin: 'app://obsidian.md', 'access-control-request-method': 'PUT' }
    const answer = await ask('OPTIONS /db', { headers: asked })
    t.match(answer, { status: 204, text: '', isWhole: true })
    t.match(answer.headers, { 'access-control-allow-origin': 'app://obsidian.md' })
  })

  t.test('a useless frame is ignored', async (t) => {
    const socket = await openFrames(secureUrl, tls.cert)
    socket.write(frame('settings', 0, Buffer.alloc(0)))
    socket.write(requestHead(1, { ...HEAD, ':path': '/_up', te: 'trailers' }, true))
    const [chunk] = await once(socket, 'data')
    t.ok((chunk as Buffer).length > 0)
    socket.destroy()
  })
})
