/** Web pages of other origins: CORS, and forged requests. */
import t, { type Test } from 'tap'
import { APP_ORIGINS } from '../../src/core/app-origins.ts'
import { startTestServer } from '../helpers/server.ts'
import { type Answer, type Call, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'
import { speak } from './raw.ts'

/** CORS; protocol.md 13, clients.md R12. */
t.test('CORS', async (t) => {
  const OBSIDIAN = 'app://obsidian.md'
  const FOREIGN = 'https://evil.example'

  async function start(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, settings)
    return { ...server, call: connect(t, server) }
  }

  /** The headers of CORS in an answer. */
  function said({ headers }: Answer) {
    return {
      origin: headers['access-control-allow-origin'],
      credentials: headers['access-control-allow-credentials'],
    }
  }

  const LET_IN = { origin: OBSIDIAN, credentials: 'true' }
  const NOTHING = { origin: undefined, credentials: undefined }

  function preflight(call: Call, path: string, headers: Record<string, string> = {}): Promise<Answer> {
    const asked = { origin: OBSIDIAN, 'access-control-request-method': 'PUT', ...headers }
    return call('OPTIONS', path, { headers: asked })
  }

  t.test('by default the known apps may use credentials', async (t) => {
    const { call } = await start(t)
    for (const origin of APP_ORIGINS) {
      const answer = await call('GET', '/', { headers: { origin } })
      t.strictSame(said(answer), { origin, credentials: 'true' }, origin)
      t.match(answer.headers['access-control-expose-headers'], /\betag, server, x-couch-request-id\b/)
      t.match(answer.headers.vary, /\bOrigin\b/)
    }
    const others = [
      FOREIGN,
      'null',
      'http://localhost:8080',
      'https://localhost',
      'APP://obsidian.md',
      '',
      '*',
    ]
    for (const origin of [...others, `${OBSIDIAN}, ${FOREIGN}`, `${OBSIDIAN}/`]) {
      const answer = await call('GET', '/', { headers: { origin } })
      t.equal(answer.status, 200, 'the request is served')
      t.strictSame(said(answer), NOTHING, origin)
      t.equal(answer.headers.vary, 'Origin')
    }
    const plain = await call('GET', '/')
    t.strictSame([said(plain), plain.headers.vary], [NOTHING, 'Origin'], 'a cache must not give it to a page')
  })

  t.test('a preflight is answered before authentication', async (t) => {
    const { call } = await start(t, { 'chttpd/require_valid_user': 'true' })
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const asked = 'authorization, x-my-proxy,CF-Access-Client-Id'
    for (const path of [
      '/db',
      '/db/doc/att',
      '/_session',
      '/',
      '/absent/_x/y',
      '/_node/_local/_config/a/b',
    ]) {
      const answer = await preflight(call, path, { 'access-control-request-headers': asked })
      t.strictSame([answer.status, answer.text, said(answer)], [204, '', LET_IN], path)
      t.match(answer.headers, {
        'access-control-allow-methods': 'CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE',
        'access-control-allow-headers': asked,
        'access-control-max-age': '600',
        vary: 'Origin',
        'x-couch-request-id': String,
      })
      t.equal(answer.headers['content-length'], undefined)
    }
    const bare = await preflight(call, '/db')
    t.strictSame([bare.status, bare.headers['access-control-allow-headers']], [204, undefined])
  })

  t.test('a refused preflight is answered as any OPTIONS, without headers of CORS', async (t) => {
    const { call } = await start(t, {
      'cors/headers': 'Authorization, content-type',
      'cors/methods': 'GET, PUT',
    })
    await call('PUT', '/db')
    const wanting = (headers: string) => preflight(call, '/db', { 'access-control-request-headers': headers })
    t.equal((await wanting('AUTHORIZATION,content-type')).status, 204)
    t.equal((await preflight(call, '/db')).headers['access-control-allow-methods'], 'GET, PUT')
    const refused: [Promise<Answer>, string][] = [
      [preflight(call, '/db', { origin: FOREIGN }), 'an unknown origin'],
      [wanting('authorization, x-mine'), 'a header that is not listed'],
      [preflight(call, '/db', { 'access-control-request-method': 'DELETE' }), 'a method that is not listed'],
      [preflight(call, '/db', { 'access-control-request-method': 'put' }), 'methods have a case'],
    ]
    for (const [asked, why] of refused) {
      const answer = await asked
      t.strictSame([answer.status, said(answer)], [405, NOTHING], why)
      t.equal(answer.headers['access-control-allow-methods'], undefined)
    }
    const plain = await call('OPTIONS', '/db', { headers: { origin: OBSIDIAN } })
    t.strictSame([plain.status, said(plain)], [405, LET_IN], 'OPTIONS that is no preflight')
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    t.equal((await preflight(call, '/db', { origin: FOREIGN })).status, 401)
  })

  t.test('settings take effect at once', async (t) => {
    const { call, config } = await start(t)
    const get = async (origin: string, host?: string) =>
      said(await call('GET', '/', { headers: { origin, ...(host && { host }) } }))
    await config.set('cors', 'origins', ' https://a.example:8443 ,, http://b.example')
    t.strictSame(await get('https://a.example:8443'), {
      origin: 'https://a.example:8443',
      credentials: undefined,
    })
    t.strictSame(await get('https://a.example'), NOTHING, 'another port')
    t.strictSame(await get(OBSIDIAN), NOTHING, 'the list is the whole list')
    await config.set('cors', 'credentials', 'true')
    t.strictSame(await get('http://b.example'), { origin: 'http://b.example', credentials: 'true' })
    await config.set('cors', 'origins', '*')
    for (const origin of ['null', FOREIGN]) t.strictSame(await get(origin), { origin, credentials: 'true' })
    await config.set('cors', 'credentials', 'false')
    t.strictSame(await get(OBSIDIAN), { origin: OBSIDIAN, credentials: undefined })
    await config.delete('cors', 'credentials')
    t.strictSame(await get(FOREIGN), { origin: FOREIGN, credentials: undefined }, 'of no page by accident')
    await config.set('cors:localhost', 'origins', FOREIGN)
    t.strictSame(await get(FOREIGN, 'localhost:5984'), { origin: FOREIGN, credentials: undefined })
    t.strictSame(await get('http://b.example', 'LocalHost'), NOTHING, 'a host with a list of its own')
    await config.set('cors', 'max_age', '5')
    await config.set('cors', 'exposed_headers', 'x-mine')
    const answer = await call('GET', '/', { headers: { origin: FOREIGN } })
    t.equal(answer.headers['access-control-expose-headers'], 'x-mine')
    t.equal((await preflight(call, '/')).headers['access-control-max-age'], '5')
  })

  t.test('on by default, and off if configured', async (t) => {
    const { call, config } = await start(t)
    const states: [chttpd: string | null, httpd: string | null, isOn: boolean][] = [
      ['true', null, true],
      ['false', null, false],
      ['false', 'true', false],
      ['true', 'false', true],
      [null, 'false', false],
      [null, 'true', true],
      [null, null, true],
    ]
    for (const [chttpd, httpd, isOn] of states) {
      for (const [section, value] of Object.entries({ chttpd, httpd })) {
        if (value !== null) await config.set(section, 'enable_cors', value)
        else if (config.get(section, 'enable_cors') !== undefined) await config.delete(section, 'enable_cors')
      }
      const answer = await call('GET', '/', { headers: { origin: OBSIDIAN } })
      t.strictSame(said(answer), isOn ? LET_IN : NOTHING, `${chttpd} ${httpd}`)
      t.equal(answer.headers.vary, isOn ? 'Origin' : undefined)
      t.equal((await preflight(call, '/')).status, isOn ? 204 : 405)
    }
    t.equal((await call('PUT', '/_config/chttpd/enable_cors', { body: '"yes"' })).status, 400)
  })

  t.test('headers on every answer', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { body: JSON.stringify({ text: 'x'.repeat(3000) }) })
    const { headers } = await call('GET', '/db/doc')
    await call('PUT', '/db/doc/att', {
      body: 'some text',
      headers: { 'if-match': String(headers.etag), 'content-type': 'text/plain' },
    })
    const etag = String((await call('GET', '/db/doc')).headers.etag)
    const big = Buffer.alloc(2_000_000, 'x')
    await call('PUT', '/_config/chttpd/max_http_request_size', { body: '"1000000"' })
    const rows: [line: string, status: number, headers?: Record<string, string>, body?: string | Buffer][] = [
      ['GET /', 200],
      ['GET /db/doc', 200],
      ['GET /db/doc', 200, { 'accept-encoding': 'gzip' }],
      ['GET /db/doc', 200, { prefer: 'return=minimal' }],
      ['HEAD /db/doc', 200],
      ['GET /db/doc', 304, { 'if-none-match': etag }],
      ['GET /db/doc?attachments=true', 200, { accept: 'multipart/related' }],
      ['GET /db/doc/att', 200],
      ['GET /db/doc/att', 206, { range: 'bytes=0-1' }],
      ['GET /db/doc/att', 416, { range: 'bytes=99-' }],
      ['GET /db/_all_docs', 200],
      ['GET /db/_changes', 200],
      ['GET /db/_changes?feed=continuous&timeout=1', 200],
      ['GET /db/_changes?feed=longpoll&since=0', 200],
      ['GET /db/_changes?feed=eventsource&timeout=1', 200],
      ['GET /db/none', 404],
      ['HEAD /db/none', 404],
      ['GET /db?%zz', 400],
      ['GET /db/%zz', 400],
      ['GET /%ff', 400],
      ['PATCH /db', 405],
      ['PROPFIND /db', 405],
      ['PUT /db', 412],
      ['POST /db/_bulk_docs', 413, { 'content-type': 'application/json' }, big],
      ['POST /db/_bulk_docs', 415, {}, '{}'],
      ['PUT /_config/log/level', 400, {}, '{'],
    ]
    for (const [line, status, more = {}, body] of rows) {
      const [method = '', path = ''] = line.split(' ')
      const answer = await call(method, path, {
        headers: { origin: OBSIDIAN, ...more },
        ...(body && { body }),
      })
      t.equal(answer.status, status, line)
      t.strictSame(said(answer), LET_IN, line)
      t.match(answer.headers.vary, /(?:^|, )Origin(?:$|,)/, line)
    }
    await call('PUT', '/_config/admins/anna', { body: '"a long password"' })
    for (const [path, auth] of [
      ['/db/doc', undefined],
      ['/db/doc', 'anna:wrong'],
      ['/_all_dbs', undefined],
    ] as const) {
      const answer = await call('GET', path, { headers: { origin: OBSIDIAN }, ...(auth && { auth }) })
      t.strictSame([answer.status, said(answer)], [401, LET_IN], path)
    }
  })

  t.test('headers on answers to invalid HTTP', async (t) => {
    const server = await startTestServer(t)
    const cases: [words: string, status: number][] = [
      // Of a head that came in several reads only the last one is known.
      [`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'y'.repeat(66_000)}\r\nOrigin: ${OBSIDIAN}\r\n\r\n`, 431],
      [`GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: ${OBSIDIAN}\r\nContent-Length: x\r\n\r\n`, 400],
    ]
    for (const [words, status] of cases) {
      const heard = await speak(server.url, words)
      t.match(heard, new RegExp(`^HTTP/1.1 ${status} `))
      t.match(heard, `Access-Control-Allow-Origin: ${OBSIDIAN}\r\nAccess-Control-Allow-Credentials: true\r\n`)
      t.notMatch(await speak(server.url, words.replace(OBSIDIAN, FOREIGN)), 'Access-Control')
    }
  })
})

t.test('forged requests', async (t) => {
  const ADMIN = 's:s'
  const CHANGES: readonly (readonly [method: string, path: string])[] = [
    ['PUT', '/other'],
    ['DELETE', '/other'],
    ['POST', '/db'],
    ['PUT', '/db/doc'],
    ['COPY', '/db/doc'],
    ['POST', '/db/_bulk_docs'],
    ['POST', '/db/_find'],
    ['PUT', '/_node/_local/_config/admins/mallory'],
    ['POST', '/nowhere'],
    ['PATCH', '/db'],
    ['PROPFIND', '/'],
  ]

  async function start(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, settings)
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    await call('PUT', '/db', { auth: ADMIN })
    const put = async (headers: Record<string, string>) => {
      const { status, json } = await call('PUT', `/db/d${at++}`, { body: '{}', headers, auth: ADMIN })
      return status === 403 ? (json as { reason: string }).reason : status
    }
    let at = 0
    return { ...server, call, put, host: new URL(server.url).host }
  }

  t.test('a page of another origin changes nothing, with any credentials', async (t) => {
    const { call, databases } = await start(t)
    for (const origin of ['https://evil.example', 'null']) {
      for (const [method, path] of CHANGES) {
        const { status, json } = await call(method, path, { headers: { origin }, auth: ADMIN })
        t.strictSame([status, (json as { error: string }).error], [403, 'forbidden'], `${method} ${path}`)
      }
      for (const method of ['GET', 'HEAD', 'OPTIONS']) {
        const { status } = await call(method, '/db', { headers: { origin }, auth: ADMIN })
        t.not(status, 403, method)
      }
    }
    t.strictSame(await Array.fromAsync(databases.allNames()), ['db'])
    t.match(await call('PUT', '/x', { headers: { origin: 'https://evil.example' }, auth: ADMIN }), {
      json: { reason: /^Pages of https:\/\/evil\.example may not change anything here/ },
    })
    const long = await call('PUT', '/x', {
      headers: { origin: `https://${'x'.repeat(20_000)}` },
      auth: ADMIN,
    })
    t.ok(long.text.length < 500)
  })

  t.test('requests without a page, of the same host, or in the list are allowed', async (t) => {
    const { put, host, config } = await start(t)
    t.equal(await put({}), 201)
    t.equal(await put({ origin: '' }), 201, 'LiveSync sends an empty one from outside of its page')
    t.equal(await put({ referer: 'https://evil.example/' }), 201, 'a Referer is not looked at')
    t.equal(await put({ origin: `http://${host}` }), 201, 'its own page')
    for (const origin of ['app://obsidian.md', 'capacitor://localhost', 'http://localhost']) {
      t.equal(await put({ origin }), 201, origin)
    }
    await config.set('cors', 'origins', 'https://a.example')
    t.equal(await put({ origin: 'https://a.example' }), 201)
    t.match(await put({ origin: 'app://obsidian.md' }), 'may not change anything')
    await config.set('chttpd', 'enable_cors', 'false')
    t.equal(await put({ origin: 'https://a.example' }), 201, 'the list holds where CORS is off, too')
    await config.set('cors', 'origins', '*')
    for (const origin of ['null', 'https://evil.example']) t.equal(await put({ origin }), 201, origin)
  })

  t.test("the server's own host and port", async (t) => {
    const { put, host } = await start(t, { 'settee/trusted_proxies': 'loopback' })
    const name = 'notes.example.org'
    const own: [origin: string, headers: Record<string, string>][] = [
      [`http://${name}`, { host: name }],
      [`http://${name}`, { host: `${name}:80` }],
      [`http://${name}`, { host: name.toUpperCase() }],
      [`http://${name}:5984`, { host: `${name}:5984` }],
      [`https://${name}`, { host: name }],
      [`https://${name}`, { host: `${name}:443` }],
      [`https://${name}:8443`, { host: `${name}:8443` }],
      [`https://${name}`, { 'x-forwarded-host': name, 'x-forwarded-proto': 'https' }],
      ['http://[::1]:5984', { host: '[::1]:5984' }],
    ]
    for (const [origin, headers] of own) t.equal(await put({ origin, ...headers }), 201, `${origin} ${host}`)
    const foreign: [origin: string, headers: Record<string, string>][] = [
      [`http://${name}:8080`, { host: name }],
      [`http://${name}`, { host: `${name}:5984` }],
      [`http://${name}`, { host: name, 'x-forwarded-proto': 'https' }],
      [`http://x.${name}`, { host: name }],
      [`http://${name}.`, { host: name }],
      [`http://${name}@evil.example`, { host: name }],
      [`ftp://${name}`, { host: name }],
      ['null', { host: 'null' }],
      ['http://a b', { host: 'a b' }],
      [`http://${name}, http://evil.example`, { host: name }],
    ]
    for (const [origin, headers] of foreign)
      t.match(await put({ origin, ...headers }), 'may not change', origin)
  })

  t.test('an open server on this machine answers to local names only', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    const status = async (host: string, more: Record<string, string> = {}) =>
      (await call('GET', '/_all_dbs', { headers: { host, ...more } })).status
    const here = [
      'localhost',
      'localhost:5984',
      'LOCALHOST',
      'notes.localhost:1',
      '127.0.0.1',
      '127.1.2.3:80',
    ]
    for (const host of [...here, '[::1]', '[::1]:5984', 'localhost.']) t.equal(await status(host), 200, host)
    const elsewhere = [
      'evil.example',
      'evil.example:5984',
      'localhost.evil.example',
      '127.0.0.1.evil.example',
    ]
    for (const host of [
      ...elsewhere,
      '10.0.0.1',
      '0.0.0.0',
      '1270.0.0.1',
      'xlocalhost',
      '[::2]',
      '::1',
      'a@localhost',
    ]) {
      t.equal(await status(host), 403, host)
    }
    t.equal(
      await status('evil.example', { 'x-forwarded-host': 'localhost' }),
      403,
      'nothing else is believed',
    )
    const { json } = await call('PUT', '/db', { headers: { host: 'evil.example' } })
    t.match(json, {
      error: 'forbidden',
      reason: /^While there is no admin, .* not to evil\.example\. Create one/,
    })
    t.match(await speak(server.url, 'GET /_up HTTP/1.0\r\n\r\n'), /^HTTP\/1.1 200 /, 'no name, no page')
    const made = await call('PUT', '/_config/admins/anna', { body: '"a long password"' })
    t.equal(made.status, 200)
    t.equal(await status('evil.example'), 401, 'behind an admin there is no such rule')
  })
})
