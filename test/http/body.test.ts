import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, fstatSync, readdirSync, readSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { connect as connectSocket, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { constants, deflateSync, gzipSync } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { Body } from '../../src/documents/database.ts'
import { BodyCollector } from '../../src/http/transport/body-collector.ts'
import { BodyMemory, MAX_IN_MEMORY } from '../../src/http/transport/body-limits.ts'
import { type SizeLimit, withBody, withOptionalBody } from '../../src/http/transport/body-reader.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

const MB = 1024 * 1024
const LIMIT: SizeLimit = { bytes: 32 * MB, key: 'some/limit' }

interface Seen {
  kind: 'memory' | 'file' | 'none'
  length: number
  /** Bytes of the budget that were taken meanwhile. */
  used: number
  text: string
}

/** A server with one route that reads bodies and says what it saw of each. */
async function startReader(
  t: Test,
  settings: Record<string, string> = {},
  limit = LIMIT,
  options: Parameters<typeof startMemoryServer>[3] = {},
) {
  const seen: Seen[] = []
  const outcomes: unknown[] = []
  const addRoutes = (app: FastifyInstance) => {
    const note = (body: Body | null): Seen => ({ ...describe(body), used: app.bodyMemory.used })
    app.put('/_read', { config: { access: 'public' } }, async (request) => {
      try {
        seen.push(await withBody(request, limit, async (body) => note(body)))
        return { ok: true }
      } catch (error) {
        outcomes.push(error instanceof CouchError ? error.code : error)
        throw error
      }
    })
    app.put('/_optional', { config: { access: 'public' } }, async (request) => {
      seen.push(await withOptionalBody(request, limit, async (body) => note(body)))
      return { ok: true }
    })
    app.put('/_fail', { config: { access: 'public' } }, (request) =>
      withBody(request, limit, async () => {
        throw new CouchError('conflict')
      }),
    )
  }
  const server = await startMemoryServer(t, settings, addRoutes, options)
  return { ...server, call: connect(t, server), seen, outcomes }
}

function describe(body: Body | null): Omit<Seen, 'used'> {
  if (body === null) return { kind: 'none', length: 0, text: '' }
  if ('bytes' in body) {
    return {
      kind: 'memory',
      length: body.bytes.length,
      text: Buffer.from(body.bytes.subarray(0, 20)).toString(),
    }
  }
  const start = Buffer.alloc(20)
  readSync(body.file, start, 0, 20, 0)
  if (fstatSync(body.file).size !== body.length) throw new Error('another size')
  return { kind: 'file', length: body.length, text: start.toString() }
}

t.test('small bodies stay in memory, large ones go to a file without a name', async (t) => {
  const { call, seen, app, config } = await startReader(t)
  const folder = config.path.replace(/\/local\.ini$/, '')
  t.equal((await call('PUT', '/_read', { body: '{"a":1}' })).status, 200)
  t.equal((await call('PUT', '/_read', { body: Buffer.alloc(MAX_IN_MEMORY, 'x') })).status, 200)
  t.equal((await call('PUT', '/_read', { body: Buffer.alloc(MAX_IN_MEMORY + 1, 'y') })).status, 200)
  t.strictSame(
    seen.map(({ kind, length, used }) => ({ kind, length, used })),
    [
      { kind: 'memory', length: 7, used: 7 },
      { kind: 'memory', length: MAX_IN_MEMORY, used: MAX_IN_MEMORY },
      { kind: 'file', length: MAX_IN_MEMORY + 1, used: 0 },
    ],
  )
  t.equal(seen[2]?.text, 'y'.repeat(20))
  t.equal(app.bodyMemory.used, 0)
  t.strictSame(
    readdirSync(folder).filter((name) => name.startsWith('body-')),
    [],
  )
})

t.test('above the budget of the process bodies go to files, and the budget comes back', async (t) => {
  const { url, app, seen, call } = await startReader(t, { 'settee/body_memory': String(MB) })
  const slow = httpRequest(`${url}/_read`, { method: 'PUT', headers: { 'transfer-encoding': 'chunked' } })
  const answered = new Promise((resolve) =>
    slow.once('response', (answer) => resolve(answer.resume().statusCode)),
  )
  slow.write(Buffer.alloc(MB - 10))
  while (app.bodyMemory.used < MB - 10) await delay(5)
  await call('PUT', '/_read', { body: '0123456789' })
  await call('PUT', '/_read', { body: '0123456789a' })
  slow.end('more than there is')
  t.equal(await answered, 200)
  t.strictSame(
    seen.map(({ kind }) => kind),
    ['memory', 'file', 'file'],
  )
  t.equal(seen[2]?.length, MB - 10 + 18)
  t.equal(app.bodyMemory.used, 0)
  t.equal((await call('PUT', '/_fail', { body: 'x' })).status, 409)
  t.equal(app.bodyMemory.used, 0, 'also after a failure')
})

t.test('gzip is inflated on the way', async (t) => {
  const { call, seen, app } = await startReader(t)
  const gzip = { 'content-encoding': 'gzip' }
  t.equal((await call('PUT', '/_read', { body: gzipSync('{"a":1}'), headers: gzip })).status, 200)
  t.equal(seen[0]?.text, '{"a":1}')
  const padded = Buffer.concat([gzipSync('{"b":1}'), Buffer.alloc(100)])
  t.equal(
    (await call('PUT', '/_read', { body: padded, headers: { 'content-encoding': 'GZIP' } })).status,
    200,
  )
  t.equal(
    (await call('PUT', '/_read', { body: 'x', headers: { 'content-encoding': 'identity' } })).status,
    200,
  )
  const big = gzipSync(Buffer.alloc(9 * MB, 'z'))
  t.equal((await call('PUT', '/_read', { body: big, headers: gzip })).status, 200)
  t.match(seen[3], { kind: 'file', length: 9 * MB })
  for (const bad of [
    Buffer.from('no gzip'),
    gzipSync('{"a":1}').subarray(0, -4),
    gzipSync('x').fill(0, 10, 12),
  ]) {
    const answer = await call('PUT', '/_read', { body: bad, headers: gzip })
    t.strictSame(
      [answer.status, answer.json],
      [400, { error: 'bad_request', reason: 'Request body is not properly gzipped.' }],
    )
  }
  const other = await call('PUT', '/_read', {
    body: deflateSync('x'),
    headers: { 'content-encoding': 'deflate' },
  })
  t.strictSame(
    [other.status, other.json],
    [415, { error: 'bad_content_type', reason: 'deflate is not a supported content encoding.' }],
  )
  t.equal((await call('PUT', '/_read', { body: 'still here' })).status, 200)
  t.equal(app.bodyMemory.used, 0)
})

t.test('a small gzip body that is huge inflated is stopped at the limit', async (t) => {
  const { call, app, seen } = await startReader(t, {}, { bytes: 16 * MB, key: 'some/limit' })
  const piece = gzipSync(Buffer.alloc(64 * MB), { level: constants.Z_BEST_COMPRESSION })
  const bomb = Buffer.concat(Array.from({ length: 20 }, () => piece))
  const before = process.memoryUsage().rss
  const answer = await call('PUT', '/_read', { body: bomb, headers: { 'content-encoding': 'gzip' } })
  t.equal(answer.status, 413)
  t.match(answer.json, { error: 'too_large', reason: /16777216 bytes \(some\/limit\)/ })
  t.ok(process.memoryUsage().rss - before < 200 * MB)
  t.equal(seen.length, 0)
  t.equal(app.bodyMemory.used, 0)
})

/** Somebody who is no admin; his password is his name. */
const ANNA = `Basic ${Buffer.from('anna:anna').toString('base64')}`

t.test('a body that is inflated to hundreds of times its size is stopped on the way', async (t) => {
  const { call, seen, app } = await startReader(t)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const ask = (body: Buffer) =>
    call('PUT', '/_read', { body, headers: { 'content-encoding': 'gzip', authorization: ANNA } })
  const zeros = await ask(gzipSync(Buffer.alloc(20 * MB)))
  t.equal(zeros.status, 413)
  t.match(zeros.json, { error: 'too_large', reason: /more than 200 times its size/ })
  t.equal(seen.length, 0)
  t.equal((await ask(gzipSync(Buffer.alloc(MB)))).status, 200, 'a small one may be anything')
  const text = 'The same words in every note, again and again. '.repeat(20)
  const notes = Array.from({ length: 3000 }, (_, n) => ({ _id: `note-${n}`, _rev: `1-${n}`, text }))
  t.equal((await ask(gzipSync(JSON.stringify(notes)))).status, 200, 'and notes may be alike')
  t.equal(app.bodyMemory.used, 0)
})

t.test('gzip of strangers is refused before it is inflated', async (t) => {
  const { call, seen } = await startReader(t)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const headers = { 'content-encoding': 'gzip' }
  const answer = await call('PUT', '/_read', { body: gzipSync('{}'), headers })
  t.strictSame([answer.status, (answer.json as { error: string }).error], [415, 'bad_content_type'])
  t.equal((await call('PUT', '/_read', { body: '{}' })).status, 200)
  t.equal(
    (await call('PUT', '/_read', { body: gzipSync('{}'), headers: { ...headers, authorization: ANNA } }))
      .status,
    200,
  )
  t.equal(seen.length, 2)
})

t.test('too large a body is refused before it is read, when its length is told', async (t) => {
  const { url, call } = await startReader(t, {}, { bytes: 10, key: 'some/limit' })
  const answer = await call('PUT', '/_read', { body: '01234567890' })
  t.equal(answer.status, 413)
  t.equal(answer.headers.connection, 'close')
  t.equal(
    (answer.json as { reason: string }).reason,
    'the request entity is too large: the limit is 10 bytes (some/limit)',
  )
  t.equal((await call('PUT', '/_read', { body: '0123456789' })).status, 200)
  const { text, socket } = await speak(
    t,
    url,
    'PUT /_read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n',
  )
  t.match(text(), /^HTTP\/1.1 413 /, 'without a byte of it')
  t.match(text(), '(some/limit)')
  socket.destroy()
})

t.test('too large a body is refused while it is read, when its length is not told', async (t) => {
  const { url, seen } = await startReader(t, {}, { bytes: 100_000, key: 'some/limit' })
  const upload = httpRequest(`${url}/_read`, { method: 'PUT', headers: { 'transfer-encoding': 'chunked' } })
  upload.on('error', () => {})
  const answered = new Promise<number | undefined>((resolve) =>
    upload.once('response', (answer) => resolve(answer.statusCode)),
  )
  for (let i = 0; i < 40 && !upload.destroyed; i++) {
    upload.write(Buffer.alloc(10_000))
    await delay(5)
  }
  t.equal(await answered, 413, 'the client sees the answer although it went on sending')
  t.equal(seen.length, 0)
  upload.destroy()
})

t.test('a body that is cut off is never handed on', async (t) => {
  const { url, seen, outcomes, app } = await startReader(t)
  const head = 'PUT /_read HTTP/1.1\r\nHost: localhost\r\n'
  for (const start of [
    `${head}Content-Length: 100\r\n\r\n{"a":`,
    `${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":`,
    `${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\nrubbish`,
    `${head}Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n${gzipSync('{}').subarray(0, 9).toString('latin1')}`,
  ]) {
    const { socket } = await speak(t, url, start)
    socket.destroy()
  }
  while (outcomes.length < 4) await delay(5)
  t.strictSame(outcomes, ['incomplete_body', 'incomplete_body', 'incomplete_body', 'incomplete_body'])
  t.equal(seen.length, 0)
  t.equal(app.bodyMemory.used, 0)
})

t.test('no body is not an empty body', async (t) => {
  const { url, seen, call } = await startReader(t)
  const none = await speak(t, url, 'PUT /_read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  t.match(none.text(), '"Missing request body"')
  const empty = await call('PUT', '/_read', { body: '' })
  t.strictSame([empty.status, empty.json], [400, { error: 'bad_request', reason: 'invalid UTF-8 JSON' }])
  const chunked =
    'PUT /_read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
  t.match((await speak(t, url, chunked)).text(), '"invalid UTF-8 JSON"')
  t.equal((await call('PUT', '/_optional', { body: '' })).status, 200)
  t.match(seen, [{ kind: 'none' }])
})

t.test('a client that waits for 100-continue is refused without sending, or told to go on', async (t) => {
  const { url, seen } = await startReader(t, {}, { bytes: 10, key: 'some/limit' })
  const head = 'PUT /_read HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n'
  const refused = await speak(t, url, `${head}Content-Length: 11\r\n\r\n`)
  t.match(refused.text(), /^HTTP\/1.1 413 /)
  refused.socket.destroy()
  const accepted = await speak(t, url, `${head}Content-Length: 2\r\n\r\n`)
  t.match(accepted.text(), /^HTTP\/1.1 100 Continue\r\n\r\n$/)
  accepted.socket.write('{}')
  while (!accepted.text().includes('200 OK')) await delay(5)
  t.equal(seen[0]?.text, '{}')
  accepted.socket.destroy()
})

t.test(
  'who waits for 100-continue behind another request is told to go on before its own answer',
  async (t) => {
    let open = () => {}
    const opened = new Promise<void>((resolve) => {
      open = resolve
    })
    const { url } = await startMemoryServer(t, {}, (app) => {
      const config = { access: 'public' } as const
      app.get('/_slow', { config }, async () => opened.then(() => ({ slow: true })))
      app.put('/_read', { config }, async (request) => {
        await withBody(request, LIMIT, async () => {})
        // After the answer to this has been made, which must wait for that to the other.
        setImmediate(() => setImmediate(open))
        return { read: true }
      })
    })
    const first = 'GET /_slow HTTP/1.1\r\nHost: localhost\r\n\r\n'
    const second =
      'PUT /_read HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}'
    const { text } = await speak(t, url, first + second)
    while (!text().includes('"read"')) await delay(5)
    t.match(
      text(),
      /^HTTP\/1.1 200 OK\r\n(?:.+\r\n)+\r\n\{"slow":true\}HTTP\/1.1 200 OK\r\n(?:.+\r\n)+\r\n\{"read":true\}$/,
    )
  },
)

t.test('an upload that inflates to nothing is cut, one that is slow and steady is not', async (t) => {
  const { url, outcomes, seen } = await startReader(t, { 'settee/body_timeout': '1' })
  const send = async (bytesOf: (n: number) => Uint8Array, times: number) => {
    const upload = httpRequest(`${url}/_read`, { method: 'PUT', headers: { 'content-encoding': 'gzip' } })
    upload.on('error', () => {})
    let status: number | undefined
    upload.once('response', (answer) => {
      status = answer.resume().statusCode
    })
    for (let n = 0; n < times && status === undefined; n++) {
      upload.write(bytesOf(n))
      await delay(50)
    }
    upload.end(gzipSync(''))
    while (status === undefined) await delay(5)
    return status
  }
  const emptyBlock = Buffer.from([0, 0, 0, 255, 255])
  const start = gzipSync('').subarray(0, 10)
  const fast = Buffer.concat(Array.from({ length: 4 }, () => emptyBlock))
  const [empty, steady] = await Promise.all([
    send((n) => (n === 0 ? start : fast), 200),
    send(() => gzipSync(randomBytes(5)), 60),
  ])
  t.equal(empty, 408)
  t.equal(steady, 200)
  t.strictSame(outcomes, ['request_timeout'])
  t.equal(seen[0]?.length, 300)
})

t.test(
  'bodies in files of one caller leave room for others, and none is told how much that is',
  async (t) => {
    const space = { free: 200 * MB, floor: 120 * MB }
    const settings = { 'settee/body_disk_share': '50', 'settee/body_memory': String(MB) }
    const { url, app, call, outcomes, seen } = await startReader(t, settings, LIMIT, { space: () => space })
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const upload = (account: string, bytes: number) => {
      const authorization = `Basic ${Buffer.from(`${account}:${account}`).toString('base64')}`
      const headers = { 'transfer-encoding': 'chunked', authorization }
      const request = httpRequest(`${url}/_read`, { method: 'PUT', headers })
      request.on('error', () => {})
      request.write(Buffer.alloc(bytes))
      return request
    }
    const first = upload('anna', 12 * MB)
    while (app.bodyFiles.used < 12 * MB) await delay(5)
    const body = Buffer.alloc(9 * MB)
    const own = await call('PUT', '/_read', { body, auth: 'anna:anna' })
    t.match(own, { status: 507, json: { error: 'insufficient_storage', reason: /^[^0-9]+$/ } })
    t.equal((await call('PUT', '/_read', { body, auth: 'bert:bert' })).status, 200, 'others have room')
    t.equal((await call('PUT', '/_read', { body: 'x'.repeat(60_000), auth: 'anna:anna' })).status, 200)
    const second = upload('anna', 9 * MB)
    while (outcomes.length < 2) await delay(5)
    t.strictSame(outcomes, ['insufficient_storage', 'insufficient_storage'], 'also where no length is told')
    first.destroy()
    second.destroy()
    while (app.bodyFiles.used > 0) await delay(5)
    t.equal((await call('PUT', '/_read', { body, auth: 'anna:anna' })).status, 200)
    t.equal(seen.length, 3)
    space.free = space.floor - 1
    const full = await call('PUT', '/_read', { body, auth: 'anna:anna' })
    t.match(full, { status: 507, json: { reason: /^The server's disk is full\. [^0-9]+$/ } })
  },
)

t.test('the time of reading is told', async (t) => {
  const { url } = await startReader(t)
  const { socket, text } = await speak(
    t,
    url,
    'PUT /_read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{',
  )
  await delay(60)
  socket.write('}')
  while (!text().includes('200 OK')) await delay(5)
  const told = Number(/x-couchdb-body-time: (\d+)/i.exec(text())?.[1])
  t.ok(told >= 40 && told < 5000, `${told} ms`)
  socket.destroy()
})

t.test('a caller may take a quarter of the memory, and at least that of two long bodies', async (t) => {
  const memory = new BodyMemory(() => 100 * MB)
  const [anna, ben] = [memory.of('anna'), memory.of('ben')]
  t.ok(anna.reserve(25 * MB))
  t.notOk(memory.of('anna').reserve(1))
  t.ok(ben.reserve(1))
  anna.release(10)
  t.ok(anna.reserve(10))
  t.equal(memory.used, 25 * MB + 1)
  const small = new BodyMemory(() => 20 * MB).of('anna')
  t.ok(small.reserve(16 * MB))
  t.notOk(small.reserve(1))
})

t.test('a collector owns its bytes, and gives everything back once', async (t) => {
  const memory = new BodyMemory(() => 100)
  const pooled = Buffer.from('pooled')
  const collector = new BodyCollector(memory.of('anna'), t.testdir())
  collector.add(pooled.subarray(0, 3))
  collector.add(pooled.subarray(3))
  const body = collector.finish()
  if (!('bytes' in body)) throw new Error('spooled')
  t.equal(body.bytes.buffer.byteLength, 6)
  t.equal(
    Buffer.from(structuredClone(body.bytes, { transfer: [body.bytes.buffer as ArrayBuffer] })).toString(),
    'pooled',
  )
  t.equal(pooled.toString(), 'pooled')
  t.equal(memory.used, 6)
  await collector.close()
  await collector.close()
  t.equal(memory.used, 0)
})

t.test('what is said to be large goes to a file at once, and takes no memory from others', async (t) => {
  const memory = new BodyMemory(() => 64 * MAX_IN_MEMORY)
  const collector = new BodyCollector(memory.of('anna'), t.testdir(), () => null, MAX_IN_MEMORY + 1)
  await collector.add(Buffer.from('large'))
  t.equal(memory.used, 0)
  t.match(collector.finish(), { file: Number, length: 5 })
  await collector.close()
})

t.test('a folder that cannot be written is a fault of the server, and leaks nothing', async (t) => {
  const memory = new BodyMemory(() => 0)
  const absent = t.testdirName
  const collector = new BodyCollector(memory.of('anna'), absent)
  t.notOk(existsSync(absent))
  await t.rejects(Promise.resolve(collector.add(Buffer.from('x'))), { code: 'ENOENT' })
  await collector.close()
  t.equal(memory.used, 0)
  t.throws(() => closeSync(-1))
})

/** Says something over a socket of its own, and waits for the first of the answer or a moment. */
async function speak(t: Test, url: string, words: string): Promise<{ socket: Socket; text: () => string }> {
  const { port } = new URL(url)
  const socket = connectSocket(Number(port), '127.0.0.1')
  t.after(() => socket.destroy())
  const received: Buffer[] = []
  socket.on('data', (chunk) => received.push(chunk))
  socket.on('error', () => {})
  socket.write(Buffer.from(words, 'latin1'))
  const heard = new Promise((resolve) => socket.once('data', resolve))
  await Promise.race([heard, delay(300)])
  return { socket, text: () => Buffer.concat(received).toString('latin1') }
}
