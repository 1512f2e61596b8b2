/** Rules for every answer and its log lines; protocol.md 1, 17. */

import { readFile } from 'node:fs/promises'
import { connect as connectSocket } from 'node:net'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import { pino } from 'pino'
import t from 'tap'
import { CouchError, ERRORS, type ErrorName } from '../../src/core/errors.ts'
import type { DatabaseHandle } from '../../src/threads/databases.ts'
import { sharedTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'
import { speak } from './raw.ts'

t.test('headers and formats', async (t) => {
  const start = sharedTestServer(t)
  t.test('headers of every answer', async (t) => {
    const call = connect(t, await start())
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
          server: /^CouchDB\/3\.5\.0 \(settee\/\S+\)$/,
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
    const call = connect(t, await start())
    const echoed = async (id: string) =>
      (await call('GET', '/', { headers: { 'x-couch-request-id': id } })).headers['x-couch-request-id']
    t.equal(await echoed('My_own-id.1'.replace('.', '')), 'My_own-id1')
    t.equal(await echoed('x'.repeat(36)), 'x'.repeat(36))
    for (const id of ['x'.repeat(37), 'a b', 'a.b', '"']) t.match(await echoed(id), /^[0-9a-f]{10}$/)
  })

  t.test('methods that a path does not have', async (t) => {
    const call = connect(t, await start())
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

  t.test('whole answers from 1 kB on are compressed if the client accepts it', async (t) => {
    const call = connect(t, await start())
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

  t.test('invalid HTTP gets one answer in JSON', async (t) => {
    const server = await start()
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
    const server = await start()
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
    const call = connect(t, await start())
    await call('PUT', '/db')
    for (let i = 0; i < 3; i++) {
      t.equal((await call('GET', '/db', { body: Buffer.alloc(100_000) })).status, 200)
      t.equal((await call('PUT', '/db', { body: Buffer.alloc(100_000) })).status, 412)
    }
  })

  t.test('one log line for each request at level debug, without query and headers', async (t) => {
    const server = await startMemoryServer(t)
    const call = connect(t, server)
    await call('PUT', '/db')
    await call('GET', '/db/x?token=hunter2', {
      auth: 'anna:hunter2',
      headers: { 'x-couch-request-id': 'me' },
    })
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

  t.test('a 304 has the length 0', async (t) => {
    const { url } = await startMemoryServer(t)
    await fetch(`${url}/db`, { method: 'PUT' })
    const etag = (await fetch(`${url}/db/a`, { method: 'PUT', body: '{}' })).headers.get('etag')
    for (const method of ['GET', 'HEAD']) {
      const head = `${method} /db/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-None-Match: ${etag}\r\n\r\n`
      const answer = await speak(url, head)
      t.match(answer, /^HTTP\/1.1 304 .*\r\n\r\n$/s)
      t.match(answer, /\r\ncontent-length: 0\r\n/i)
      t.notMatch(answer, /transfer-encoding/i)
    }
  })
})

/** `Prefer: return=minimal`; protocol.md 1.1. */
t.test('Prefer: return', async (t) => {
  const start = sharedTestServer(t)
  const MINIMAL = { prefer: 'return=minimal' }
  /** Headers that Node adds for the connection, and CouchDB's list. */
  const ALLOWED = new Set([
    'date',
    'connection',
    'keep-alive',
    'cache-control',
    'content-length',
    'content-range',
    'content-type',
    'etag',
    'server',
    'transfer-encoding',
    'vary',
    // Without it the body could not be read.
    'content-encoding',
    // For the proxy between.
    'x-accel-buffering',
    // No client can do without its protection.
    'content-security-policy',
    'x-content-type-options',
  ])

  t.test('answers of every kind have only the listed headers', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { body: JSON.stringify({ text: 'x'.repeat(3000) }) })
    await call('PUT', '/db/doc2/att', { body: 'hello', headers: { 'content-type': 'text/plain' } })
    const cases: [method: string, path: string, status: number, kept: string][] = [
      ['GET', '/db/doc', 200, 'etag'],
      ['HEAD', '/db/doc', 200, 'content-length'],
      ['PUT', '/db/new', 201, 'etag'],
      ['GET', '/db/_all_docs', 200, 'content-type'],
      ['GET', '/db/_changes', 200, 'etag'],
      ['GET', '/db/_changes?feed=longpoll', 200, 'x-accel-buffering'],
      ['GET', '/db/none', 404, 'content-type'],
      ['PATCH', '/db', 405, 'content-type'],
      ['GET', '/db?%zz', 400, 'cache-control'],
      ['GET', '/db/doc2/att', 200, 'etag'],
    ]
    for (const [method, path, status, kept] of cases) {
      for (const encoding of ['identity', 'gzip']) {
        const ask = {
          headers: { ...MINIMAL, 'accept-encoding': encoding },
          ...(method === 'PUT' && { body: '{}' }),
        }
        const target = method === 'PUT' ? path + encoding : path
        const answer = await call(method, target, ask)
        t.equal(answer.status, status, `${method} ${path}`)
        t.ok(answer.headers[kept], `${method} ${path} keeps ${kept}`)
        const strange = Object.keys(answer.headers).filter((name) => !ALLOWED.has(name))
        t.strictSame(strange, [], `${method} ${path} ${encoding}`)
      }
    }
  })

  t.test('a refused upload that is still being sent', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    await call('PUT', '/_node/_local/_config/chttpd/max_http_request_size', { body: '"10"' })
    const answer = await call('PUT', '/db/doc', { body: Buffer.alloc(1_000_000), headers: MINIMAL })
    t.equal(answer.status, 413)
    t.equal(answer.headers['x-couch-request-id'], undefined)
  })

  t.test('the list is configurable, and other preferences are ignored', async (t) => {
    const call = connect(t, await start())
    const named = async (prefer: string) =>
      'x-couch-request-id' in (await call('GET', '/', { headers: { prefer } })).headers
    for (const prefer of [
      'return=minimal',
      'Return=Minimal',
      'wait=10, return=minimal',
      'return="minimal"',
    ]) {
      t.notOk(await named(prefer), prefer)
    }
    for (const prefer of ['return=representation', 'minimal', 'return=minimalist'])
      t.ok(await named(prefer), prefer)
    const list = '"X-Couch-Request-ID , Content-Type"'
    await call('PUT', '/_node/_local/_config/chttpd/prefer_minimal', { body: list })
    t.ok(await named('return=minimal'))
    t.notOk('server' in (await call('GET', '/', { headers: MINIMAL })).headers)
  })
})

t.test('errors', async (t) => {
  const NAMES = Object.keys(ERRORS) as ErrorName[]

  t.test('docs/errors.md has exactly the rows of the table', async (t) => {
    const page = await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8')
    const documented = page
      .split('\n')
      .filter((line) => /^\| `/.test(line))
      .map((line) => line.split('|').map((cell) => cell.trim().replace(/^`|`$/g, '')))
    const rows = documented.map(([, name, status, error, reason]) => [
      name,
      Number(status),
      error,
      reason === '(empty)' ? '' : reason,
    ])
    t.strictSame(
      rows,
      NAMES.map((name) => [name, ...ERRORS[name]]),
    )
    for (const [, name, , , , when] of documented) t.ok(when, `${name} says when it happens`)
  })

  t.test('each row becomes an answer of the same format', async (t) => {
    let thrown: unknown
    const { app } = await startMemoryServer(t, {}, (instance) => {
      instance.get('/_throw', { config: { access: 'public' } }, async () => {
        throw thrown
      })
    })
    for (const name of NAMES) {
      thrown = new CouchError(name)
      const answer = await app.inject('/_throw')
      const [status, error, reason] = ERRORS[name]
      t.equal(answer.statusCode, status, name)
      t.equal(answer.headers['content-type'], 'application/json')
      t.equal(answer.body, `${JSON.stringify({ error, reason })}\n`)
    }
    thrown = new CouchError('forbidden', { a: 1 })
    t.strictSame((await app.inject('/_throw')).json(), { error: 'forbidden', reason: { a: 1 } })
  })

  t.test('unexpected errors appear only in the log', async (t) => {
    const server = await startMemoryServer(t, {}, (instance) => {
      instance.get('/_throw/:what', { config: { access: 'public' } }, async (request) => {
        const { what } = request.params as { what: string }
        if (what === 'null') throw null
        throw Object.assign(new Error('the secret text'), { statusCode: 418, code: 'FST_ERR_ODD' })
      })
    })
    for (const what of ['error', 'null']) {
      const answer = await server.app.inject(`/_throw/${what}?password=hunter2`)
      t.equal(answer.statusCode, 500)
      t.strictSame(answer.json(), { error: 'internal_server_error', reason: ERRORS.internal_server_error[2] })
      t.notMatch(answer.body, 'secret')
    }
    const logged = server.lines.join('')
    t.match(logged, 'the secret text')
    t.match(logged, '"route":"/_throw/:what"')
    t.notMatch(logged, 'hunter2')
    const faults = server.lines.filter((line) => line.includes('a request failed'))
    t.strictSame(
      faults.map((line) => pino.levels.labels[JSON.parse(line).level]),
      ['error', 'error'],
    )
  })
})

/** Above level debug, the log has no ids of documents, names of attachments, queries or credentials. */
t.test('privacy of the log', async (t) => {
  const ID = 'diary-of-monday'
  const FILE = 'letter-to-anna.pdf'
  const QUERY = 'token=hunter2'
  const SECRET = 'correct-horse'

  t.test('after faults of every kind', async (t) => {
    const server = await startMemoryServer(t)
    const call = connect(t, server)
    server.app.services.logger.level = 'info'
    await call('PUT', '/db')
    await call('PUT', `/db/${ID}`, { body: '{}' })
    const database = (await server.databases.get('db')) as {
      -readonly [Name in keyof DatabaseHandle]: DatabaseHandle[Name]
    }
    const whole = { ...database }
    const faults: unknown[] = [
      new Error('the disk is on fire'),
      new CouchError('internal_server_error', undefined, { cause: new Error('the disk is on fire') }),
      new CouchError('function_error', `a filter has thrown ${ID}`),
      new CouchError('insufficient_storage'),
      new CouchError('unavailable'),
    ]
    for (const fault of faults) {
      const fail = async () => {
        throw fault
      }
      Object.assign(database, { open: fail, update: fail, remove: fail, put: fail, openAttachment: fail })
      for (const path of [
        `/db/${ID}?${QUERY}`,
        `/db/${ID}/${FILE}?${QUERY}`,
        `/db/_design/${ID}`,
        `/db/_local/${ID}`,
      ]) {
        for (const method of ['GET', 'PUT', 'DELETE', 'HEAD']) {
          await call(method, path, { auth: `anna:${SECRET}`, ...(method === 'PUT' && { body: '{}' }) })
        }
      }
    }
    Object.assign(database, whole)
    database.allDocs = async function* () {
      yield Buffer.from('{"rows":[')
      throw new Error(`broken off`)
    } as unknown as DatabaseHandle['allDocs']
    await call('GET', `/db/_all_docs?key="${ID}"&${QUERY}`).catch(() => undefined)
    database.allDocs = async function* () {
      yield Buffer.from('{"rows":[')
      throw new CouchError('document_too_large', ID)
    } as unknown as DatabaseHandle['allDocs']
    await call('GET', `/db/_all_docs?key="${ID}"&${QUERY}`).catch(() => undefined)
    Object.assign(database, whole)
    for (const path of [`/db/${ID}%zz?${QUERY}`, `/db/${'y'.repeat(70_000)}${ID}`, `/%ff${ID}?${QUERY}`]) {
      await call('GET', path).catch(() => undefined)
    }
    await speak(
      server.url,
      `GET http://anna:${SECRET}@localhost/db/${ID} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
    )
    await speak(server.url, `GET /db/${ID}?${QUERY} HTTP/1.1\r\nHost: localhost\r\nX : ${SECRET}\r\n\r\n`)
    const log = server.lines.join('')
    for (const word of [ID, FILE, 'hunter2', SECRET, Buffer.from(`anna:${SECRET}`).toString('base64')]) {
      t.notOk(log.includes(word), word)
    }
    const lines = server.lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    t.match(
      lines.find(({ route }) => route === '/:db/:docid'),
      {
        id: String,
        method: 'GET',
        database: 'db',
        err: { message: 'the disk is on fire' },
        msg: 'a request failed',
      },
      'what is needed to find the fault is there',
    )
    t.match(
      lines.find(({ err }) => (err as { code?: string } | undefined)?.code === 'function_error'),
      { route: String, msg: 'a request failed' },
    )
    t.ok(lines.some(({ msg }) => msg === 'an answer broke off while it was sent'))
  })
})
