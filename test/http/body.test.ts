/** Request bodies: reading, limits, and the shares of callers. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, existsSync, fstatSync, readdirSync, readSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { connect as connectSocket, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { constants, deflateSync, gzipSync } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { Space, UserCtx } from '../../src/core/types.ts'
import { BodyCollector, MAX_IN_MEMORY } from '../../src/documents/body-collector.ts'
import { BodyFiles } from '../../src/documents/body-files.ts'
import type { Body } from '../../src/documents/database.ts'
import { BodyMemory, LargeBodies } from '../../src/http/transport/body-limits.ts'
import { type SizeLimit, withBody, withOptionalBody } from '../../src/http/transport/body-reader.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('reading', async (t) => {
  const MB = 1024 * 1024
  const LIMIT: SizeLimit = { bytes: 32 * MB, key: 'some/limit' }

  interface Seen {
    kind: 'memory' | 'file' | 'none'
    length: number
    /** Bytes of the budget that were taken meanwhile. */
    used: number
    text: string
  }

  /** A server with one route that reads bodies and reports them. */
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

  t.test('small bodies stay in memory, large ones go to an unlinked file', async (t) => {
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

  t.test('above the budget bodies go to files, and the budget is released', async (t) => {
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
    t.equal(app.bodyMemory.used, 0, 'memory is released after a failure')
  })

  t.test('gzip is inflated', async (t) => {
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

  /** A user without admin rights, whose password is the name. */
  const ANNA = `Basic ${Buffer.from('anna:anna').toString('base64')}`

  t.test('a body that inflates to hundreds of times its size is stopped', async (t) => {
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
    t.equal((await ask(gzipSync(JSON.stringify(notes)))).status, 200, 'similar notes are accepted')
    t.equal(app.bodyMemory.used, 0)
  })

  t.test('gzip of anonymous callers is refused before it is inflated', async (t) => {
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

  t.test('a body that is too large is refused before it is read if its length is known', async (t) => {
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

  t.test('a body that is too large is refused while it is read if its length is unknown', async (t) => {
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

  t.test('a cut body is never passed on', async (t) => {
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

  t.test('a client that waits for 100-continue is refused without sending, or gets it', async (t) => {
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

  t.test('an upload that inflates to nothing is cut, a slow and steady one is not', async (t) => {
    const { url, outcomes, seen } = await startReader(t, { 'settee/body_timeout': '5' })
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
      // It takes longer than the timeout, and no pause in it does, also on a busy machine.
      send(() => gzipSync(randomBytes(5)), 120),
    ])
    t.equal(empty, 408)
    t.equal(steady, 200)
    t.strictSame(outcomes, ['request_timeout'])
    t.equal(seen[0]?.length, 600)
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
      t.strictSame(
        outcomes,
        ['insufficient_storage', 'insufficient_storage'],
        'bodies without Content-Length are refused',
      )
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

  t.test('the answer states the time of reading', async (t) => {
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

  t.test('a caller may take a quarter of the memory, and at least two long bodies', async (t) => {
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

  t.test('a collector owns its bytes, and releases everything once', async (t) => {
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

  t.test('a body announced as large goes to a file at once', async (t) => {
    const memory = new BodyMemory(() => 64 * MAX_IN_MEMORY)
    const collector = new BodyCollector(memory.of('anna'), t.testdir(), undefined, MAX_IN_MEMORY + 1)
    await collector.add(Buffer.from('large'))
    t.equal(memory.used, 0)
    t.match(collector.finish(), { file: Number, length: 5 })
    await collector.close()
  })

  t.test('an unwritable folder is a fault of the server, and nothing leaks', async (t) => {
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
})

/** Bodies that are parsed on the HTTP thread. Large, encoded or unauthorized ones are not read. */
t.test('small JSON', async (t) => {
  const ADMIN = `Basic ${Buffer.from('s:s').toString('base64')}`
  const ANNA = `Basic ${Buffer.from('anna:anna').toString('base64')}`
  const JSON_TYPE = 'application/json'

  async function setUp(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, settings)
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const asking = (method: string, path: string, body: string, authorization = ADMIN) =>
      call(method, path, { body, headers: { authorization, 'content-type': JSON_TYPE } })
    await asking('PUT', '/notes', '')
    return { ...server, asking }
  }

  t.test('the largest body of each call', async (t) => {
    const { asking } = await setUp(t)
    const calls: [method: string, path: string, bytes: number][] = [
      ['PUT', '/_config/cors/origins', 8192],
      ['POST', '/_session', 8192],
      ['POST', '/_settee/tokens', 8192],
      ['POST', '/_settee/backups/x/restore', 8192],
      ['PUT', '/notes/_revs_limit', 8192],
      ['PUT', '/notes/_purged_infos_limit', 8192],
      ['POST', '/_dbs_info', 32_768],
      ['POST', '/_cluster_setup', 32_768],
      ['PUT', '/notes/_security', 65_536],
      ['POST', '/_settee/databases/notes/rewind', 65_536],
    ]
    for (const [method, path, bytes] of calls) {
      const fits = await asking(method, path, `"${'x'.repeat(bytes - 2)}"`)
      t.not(fits.status, 413, `${path}, ${bytes} bytes`)
      const larger = await asking(method, path, `"${'x'.repeat(bytes - 1)}"`)
      t.equal(larger.status, 413, `${path}, one more`)
      t.match(larger.json, { error: 'too_large', reason: `${bytes} bytes` })
    }
  })

  t.test('ordinary bodies fit', async (t) => {
    const { asking } = await setUp(t)
    const keys = Array.from({ length: 100 }, (_, n) => `a${n}`.padEnd(238, '-'))
    t.equal((await asking('POST', '/_dbs_info', JSON.stringify({ keys }))).status, 200, 'a hundred databases')
    const names = Array.from({ length: 3000 }, (_, n) => `member-${n}`)
    const security = { admins: { names: [], roles: [] }, members: { names, roles: ['team'] } }
    t.equal((await asking('PUT', '/notes/_security', JSON.stringify(security))).status, 200)
    const member = `Basic ${Buffer.from('member-2999:member-2999').toString('base64')}`
    t.equal((await asking('GET', '/notes', '', member)).status, 200)
    t.equal((await asking('GET', '/notes', '', ANNA)).status, 403)
    const many = { members: { names: Array.from({ length: 4001 }, () => 'a') } }
    const refused = await asking('PUT', '/notes/_security', JSON.stringify(many))
    t.match(refused, {
      status: 400,
      json: { error: 'bad_request', reason: 'names must be a list of no more than 4000' },
    })
  })

  t.test('callers without the right are refused before they send the body', async (t) => {
    const { port, config, asking } = await setUp(t, { 'settee/mode': 'hosted' })
    const refused = async (line: string, authorization?: string) => {
      const head = [line, 'Host: localhost', `Content-Type: ${JSON_TYPE}`, 'Content-Length: 100']
      if (authorization !== undefined) head.push(`Authorization: ${authorization}`)
      const socket = connectSocket(port, '127.0.0.1')
      socket.write(`${head.join('\r\n')}\r\n\r\n`)
      const [answer] = (await once(socket, 'data')) as [Buffer]
      socket.destroy()
      return answer.toString('latin1')
    }
    t.match(await refused('PUT /_config/log/level HTTP/1.1', ANNA), /^HTTP\/1.1 403 /, 'a key of the server')
    t.match(await refused('PUT /_config/admins/anna HTTP/1.1', ANNA), /^HTTP\/1.1 403 /, 'an admin')
    t.match(await refused('POST /_dbs_info HTTP/1.1'), /^HTTP\/1.1 401 /)
    t.match(await refused('POST /_settee/sign-up HTTP/1.1'), /^HTTP\/1.1 403 /, 'where there is none')
    await config.set('settee', 'sign_up', 'true')
    for (let n = 0; n < 5; n++) await asking('POST', '/_settee/sign-up', '{}')
    t.match(
      await refused('POST /_settee/sign-up HTTP/1.1'),
      /^HTTP\/1.1 429 /,
      'sign-ups beyond the limit are refused',
    )
  })
})

t.test('disk space for files', async (t) => {
  const MB = 1024 * 1024
  const USER: UserCtx = { name: 'anna', roles: [] }

  function files(space: () => Space, share = 1): BodyFiles {
    return new BodyFiles(space, () => share, '')
  }

  t.test('all files together take a share of the free space', async (t) => {
    let space: Space = { free: 300 * MB, floor: 100 * MB }
    const all = files(() => space, 0.5)
    t.equal(all.size, 100 * MB)
    all.allocation('a', USER).resize(50 * MB)
    t.equal(all.size, 100 * MB, 'the budget is unchanged until the next check of the disk')
    space = { free: 250 * MB, floor: 100 * MB }
    t.equal(all.size, 100 * MB, 'the budget is unchanged after the check')
    space = { free: 50 * MB, floor: 100 * MB }
    t.equal(all.size, 16 * MB, 'bulks of deletions come in all the same')
    t.equal(files(() => ({ free: Infinity, floor: 0 })).size, Infinity)
  })

  t.test('each caller may take as much as is left for others', async (t) => {
    const space = { free: 120 * MB, floor: 0 }
    const all = files(() => space)
    const one = all.allocation('a', USER)
    t.throws(() => one.resize(61 * MB), { code: 'insufficient_storage' })
    one.resize(60 * MB)
    t.throws(() => all.allocation('a', USER).resize(MB), { code: 'insufficient_storage' })
    const other = all.allocation('b', USER)
    t.equal(other.refusalOf(30 * MB), null)
    t.not(other.refusalOf(31 * MB), null)
    t.equal(all.allocation('a', USER).refusalOf(64 * 1024), null, 'small ones are always taken')
    one.release()
    one.release()
    t.equal(all.used, 0)
    other.resize(60 * MB)
    other.resize(60 * MB)
    t.equal(all.used, 60 * MB)
  })

  t.test('a tenant’s bodies are bounded by what the quota leaves', async (t) => {
    const all = files(() => ({ free: Infinity, floor: 0 }))
    const allowance = {
      bytes: { limit: 100 * MB, others: 60 * MB, here: 30 * MB },
      documents: { limit: Infinity, others: 0 },
      indexes: { limit: Infinity, others: 0 },
      maxDocumentSize: Infinity,
    }
    const tenant = { ...USER, allowance }
    all.allocation('a', tenant).resize(40 * MB)
    const place = all.allocation('a', tenant)
    t.equal(place.refusalOf(34 * MB), null)
    t.match(place.refusalOf(35 * MB), {
      code: 'forbidden',
      reason: /may store 104857600 bytes and stores 94371840/,
    })
    const over = { ...tenant, allowance: { ...allowance, bytes: { limit: 1, others: 0, here: 30 * MB } } }
    t.equal(all.allocation('b', over).refusalOf(64 * MB), null, 'to delete and to read goes on')
    t.not(all.allocation('b', over).refusalOf(65 * MB), null)
  })
})

/** Large bodies of one caller take turns; those of others, and small ones, do not wait for them. */
t.test('turns of large bodies', async (t) => {
  const LARGE = 1024 * 1024

  /** Work that goes on until the test ends it. */
  function work() {
    const { promise, resolve } = Promise.withResolvers<string>()
    const seen = { hasBegun: false }
    const begin = () => {
      seen.hasBegun = true
      return promise
    }
    return { seen, begin, end: resolve }
  }

  t.test('two at once of one caller', async (t) => {
    const bodies = new LargeBodies()
    const own = [work(), work(), work()]
    const done = own.map(({ begin }) => bodies.take('anna', LARGE, begin))
    const other = work()
    const small = work()
    const more = [bodies.take('ben', LARGE, other.begin), bodies.take('anna', 1000, small.begin)]
    t.same(
      own.map(({ seen }) => seen.hasBegun),
      [true, true, false],
    )
    t.ok(other.seen.hasBegun && small.seen.hasBegun)
    own[1]?.end('second')
    t.equal(await done[1], 'second')
    t.ok(own[2]?.seen.hasBegun)
    for (const { end } of [...own, other, small]) end('end')
    t.same(await Promise.all([...done, ...more]), ['end', 'second', 'end', 'end', 'end'])
  })

  t.test('one at a time of those above 2 MB, beside a smaller one', async (t) => {
    const bodies = new LargeBodies()
    const own = [work(), work(), work()]
    const sizes = [8 * LARGE, 8 * LARGE, LARGE]
    const done = own.map(({ begin }, n) => bodies.take('anna', (sizes[n] ?? 0) + 1, begin))
    const begun = () => own.map(({ seen }) => seen.hasBegun)
    t.same(begun(), [true, false, true])
    own[0]?.end('first')
    await done[0]
    t.same(begun(), [true, true, true])
    for (const { end } of own) end('end')
    t.same(await Promise.all(done), ['first', 'end', 'end'])
  })

  t.test('a bounded number wait, and a failure lets the next one begin', async (t) => {
    const bodies = new LargeBodies()
    const first = [work(), work()]
    const begun = first.map(({ begin }) => bodies.take('anna', LARGE, begin))
    const waiting = Array.from({ length: 100 }, (_, n) => bodies.take('anna', LARGE, async () => n))
    await t.rejects(
      bodies.take('anna', LARGE, async () => 0),
      { code: 'unavailable' },
    )
    await t.rejects(
      bodies.take('ben', LARGE, () => Promise.reject(new Error('failed'))),
      { message: 'failed' },
    )
    for (const { end } of first) end('end')
    await Promise.all(begun)
    t.same((await Promise.all(waiting)).at(-1), 99)
  })
})
