/** Logging in and authenticating; protocol.md 11.2, 11.3, 11.5, 11.6. */

import { createHmac, generateKeyPairSync } from 'node:crypto'
import { connect as connectSocket } from 'node:net'
import { SignJWT, UnsecuredJWT } from 'jose'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { sealSession } from '../../src/auth/sessions.ts'
import { newSecret } from '../../src/auth/token-record.ts'
import { startTestServer } from '../helpers/server.ts'
import { type Answer, type Ask, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

/** Logging in and out with a cookie; protocol.md 11.3, clients.md 1.6 and pain 22. */
t.test('sessions', async (t) => {
  const FORM = { 'content-type': 'application/x-www-form-urlencoded' }
  const JSON_TYPE = { 'content-type': 'application/json' }

  /** A server with the admin `s`; anybody else's password is his name. */
  async function setUp(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, settings)
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const logIn = (ask: Ask = { json: { name: 's', password: 's' } }, path = '/_session') =>
      call('POST', path, ask)
    const asking = (cookie: string, more: Record<string, string> = {}): Ask => ({
      headers: { cookie, ...more },
    })
    return { ...server, call, logIn, asking }
  }

  /** `AuthSession=...` as the client sends it back. */
  function cookieOf({ headers }: Answer): string {
    return String(headers['set-cookie']).split(';', 1)[0] ?? ''
  }

  /** A cookie of so many seconds ago. */
  function agedCookie(secret: string, salt: string, name: string, age: number): string {
    const time = Math.floor(Date.now() / 1000) - age
    return `AuthSession=${sealSession(name, time.toString(16).toUpperCase(), secret + salt, 'sha256')}`
  }

  t.test('logging in, with a form or JSON, a name or a username', async (t) => {
    const { logIn, call, asking } = await setUp(t)
    const bodies: [Ask, string][] = [
      [{ json: { name: 's', password: 's' } }, 's'],
      [{ json: { username: 's', password: 's' } }, 's'],
      [{ json: { name: 's', username: 's', password: 's' } }, 's'],
      [{ body: 'name=s&password=s', headers: FORM }, 's'],
      [
        {
          body: 'username=s&password=s',
          headers: { 'content-type': `${FORM['content-type']}; charset=UTF-8` },
        },
        's',
      ],
      [{ body: 'name=%C3%A4+b&password=%C3%A4%20b', headers: FORM }, 'ä b'],
    ]
    for (const [body, name] of bodies) {
      const answer = await logIn(body)
      t.equal(answer.status, 200, JSON.stringify(body))
      t.strictSame(answer.json, { ok: true, name, roles: name === 's' ? ['_admin'] : [] })
      const seen = await call('GET', '/_session', asking(cookieOf(answer)))
      t.strictSame(seen.json, {
        ok: true,
        userCtx: { name, roles: name === 's' ? ['_admin'] : [] },
        info: { authentication_handlers: ['cookie', 'default'], authenticated: 'cookie' },
      })
    }
  })

  t.test('invalid logins', async (t) => {
    const { logIn } = await setUp(t)
    const cases: [Ask, status: number, reason: string][] = [
      [{}, 415, "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'"],
      [
        { body: 'name=s', headers: { 'content-type': 'text/plain' } },
        415,
        "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'",
      ],
      [{ headers: FORM }, 400, 'request body must contain a username'],
      [{ body: 'password=s', headers: FORM }, 400, 'request body must contain a username'],
      [
        { body: 'name=s&username=t&password=s', headers: FORM },
        400,
        'request body contains different usernames',
      ],
      [{ body: Buffer.from([0xff]), headers: FORM }, 400, 'invalid UTF-8 JSON'],
      [{ body: '{', headers: JSON_TYPE }, 400, 'invalid UTF-8 JSON'],
      [{ headers: JSON_TYPE }, 400, 'invalid UTF-8 JSON'],
      [{ json: [] }, 400, 'Request body must be a JSON object'],
      [{ json: {} }, 400, 'request body must contain a username'],
      [{ json: { name: 1, password: 's' } }, 400, 'name must be a string'],
      [{ json: { name: 's', password: ['s'] } }, 400, 'password must be a string'],
      [{ json: { name: 's' } }, 401, 'Name or password is incorrect.'],
      [{ json: { name: '', password: 'x' } }, 401, 'Name or password is incorrect.'],
      [{ json: { name: '__proto__', password: 'x' } }, 401, 'Name or password is incorrect.'],
      [{ json: { name: 's\u0000', password: 'x' } }, 401, 'Name or password is incorrect.'],
      [
        { json: { name: 'x'.repeat(70_000), password: 's' } },
        413,
        'the request entity is too large: the limit is 8192 bytes (the largest body of this call)',
      ],
    ]
    for (const [ask, status, reason] of cases) {
      const answer = await logIn(ask)
      t.match(answer, { status, json: { reason } }, JSON.stringify(ask).slice(0, 80))
      if (status === 401)
        t.match(answer.headers['set-cookie'], /^AuthSession=; .*Max-Age=0; Path=\/; HttpOnly/)
    }
  })

  t.test('the attributes of the cookie', async (t) => {
    const { logIn, config } = await setUp(t)
    const cookie = async () => String((await logIn()).headers['set-cookie']).replace(/=[\w-]{20,};/, '=V;')
    const date = '\\w{3}, \\d\\d \\w{3} \\d{4} [\\d:]{8} GMT'
    const usual = `^AuthSession=V; Version=1; Expires=${date}; Max-Age=600; Path=/; HttpOnly`
    t.match(await cookie(), new RegExp(`${usual}; SameSite=Lax$`))
    await config.set('chttpd_auth', 'same_site', 'Strict')
    t.match(await cookie(), new RegExp(`${usual}; SameSite=Strict$`))
    await config.set('chttpd_auth', 'same_site', 'none')
    t.match(await cookie(), new RegExp(`${usual}; SameSite=Lax$`), 'browsers drop None without TLS')
    await config.set('chttpd_auth', 'cookie_domain', 'example.org')
    await config.set('settee', 'trusted_proxies', 'loopback')
    const secure = await logIn({ json: { name: 's', password: 's' }, headers: { 'x-forwarded-ssl': 'on' } })
    t.match(secure.headers['set-cookie'], /; Path=\/; HttpOnly; Secure; Domain=example.org; SameSite=None$/)
    await config.set('chttpd_auth', 'cookie_domain', 'a; b')
    await config.set('chttpd_auth', 'allow_persistent_cookies', 'false')
    for (const value of ['lax', '']) {
      await config.set('chttpd_auth', 'same_site', value)
      t.equal(await cookie(), 'AuthSession=V; Version=1; Path=/; HttpOnly; SameSite=Lax', value)
    }
  })

  t.test('redirects stay on this server', async (t) => {
    const { logIn, call, url } = await setUp(t)
    const wrong = { json: { name: 's', password: 'no' } }
    const next = await logIn(undefined, '/_session?next=/db/a%20b?x=1')
    t.match(next, { status: 302, headers: { location: `${url}/db/a%20b?x=1` }, json: { ok: true } })
    t.match(cookieOf(next), /AuthSession=\w/)
    const fail = await logIn(wrong, '/_session?next=/a&fail=/login.html')
    t.match(fail, {
      status: 302,
      headers: { location: `${url}/login.html` },
      json: { error: 'unauthorized' },
    })
    t.match(await call('DELETE', '/_session?next=/bye'), { status: 302, headers: { location: `${url}/bye` } })
    const away = [
      'https://evil.example',
      '//evil.example',
      '/\\evil.example',
      '\\\\evil.example',
      '/%09/evil.example',
      '/.//evil.example',
      'javascript:alert(1)',
      'evil.example',
      '%20/a',
      '',
    ]
    for (const to of away) {
      for (const name of ['next', 'fail']) {
        t.match(await logIn(undefined, `/_session?${name}=${to}`), { status: 400 }, `${name}=${to}`)
      }
    }
    const broken = await logIn(undefined, '/_session?next=/a%0D%0AX-Evil:1')
    t.equal(broken.headers['x-evil'], undefined)
  })

  t.test('anonymous callers, and basic=true', async (t) => {
    const { call } = await setUp(t, { 'chttpd_auth/authentication_db': '_users' })
    t.strictSame((await call('GET', '/_session')).json, {
      ok: true,
      userCtx: { name: null, roles: [] },
      info: { authentication_db: '_users', authentication_handlers: ['cookie', 'default'] },
    })
    t.match(await call('GET', '/_session?basic=true'), { status: 401, json: { reason: 'Please login.' } })
    t.match(await call('GET', '/_session?basic=true', { auth: 's:s' }), {
      status: 200,
      json: { info: { authenticated: 'default' } },
    })
  })

  t.test('while no admin is configured', async (t) => {
    const call = connect(t, await startMemoryServer(t))
    t.match(await call('GET', '/_session'), {
      status: 200,
      json: { userCtx: { name: null, roles: ['_admin'] } },
    })
    t.equal((await call('POST', '/_session', { json: { name: 'x', password: 'y' } })).status, 401)
  })

  t.test('a session is renewed on every kind of answer', async (t) => {
    const { call, config, asking } = await setUp(t, { 'chttpd_auth/secret': 'known' })
    const salt = config.get('admins', 's')?.split(',')[1] ?? ''
    await call('PUT', '/db', { auth: 's:s' })
    const fresh = agedCookie('known', salt, 's', 30)
    const aging = agedCookie('known', salt, 's', 100)
    for (const path of [
      '/',
      '/db',
      '/db/_all_docs',
      '/db/_changes',
      '/db/nothing',
      '/_session',
      '/db/_changes?feed=longpoll&timeout=1',
    ]) {
      t.equal((await call('GET', path, asking(fresh))).headers['set-cookie'], undefined, path)
      const { headers } = await call('GET', path, asking(aging))
      t.match(headers['set-cookie'], /^AuthSession=[\w-]{20,}; Version=1; Expires=.*Max-Age=600/, path)
      const renewed = String(headers['set-cookie']).split(';', 1)[0] ?? ''
      t.match(await call('GET', '/_session', asking(renewed)), { json: { userCtx: { name: 's' } } })
    }
    t.match(
      (await call('GET', '/db', asking(aging, { prefer: 'return=minimal' }))).headers['set-cookie'],
      'AuthSession',
    )
  })

  t.test('an expired session is reported, other unknown cookies are anonymous', async (t) => {
    const { call, config, asking } = await setUp(t, { 'chttpd_auth/secret': 'known' })
    const salt = config.get('admins', 's')?.split(',')[1] ?? ''
    await call('PUT', '/db', { auth: 's:s' })
    const expired = agedCookie('known', salt, 's', 601)
    const said = { error: 'unauthorized', reason: 'The session has expired: log in again.' }
    for (const path of ['/db', '/_all_dbs', '/_session?basic=true']) {
      const answer = await call('GET', path, asking(expired))
      t.match(answer, { status: 401, json: said, headers: { 'content-type': 'application/json' } }, path)
    }
    t.match(await call('GET', '/_session', asking(expired)), {
      status: 200,
      json: { userCtx: { name: null } },
    })
    t.equal((await call('GET', '/db', { ...asking(expired), auth: 's:s' })).status, 200, 'Basic comes next')
    t.match(await call('GET', '/db', { ...asking(expired), auth: 's:no' }), {
      json: { reason: 'Name or password is incorrect.' },
    })
    for (const cookie of [
      agedCookie('guess', salt, 's', 0),
      agedCookie('known', 'old', 's', 700),
      'AuthSession=',
      'Other=1',
    ]) {
      t.match(await call('GET', '/db', asking(cookie)), {
        status: 401,
        json: { reason: 'You are not authorized to access this db.' },
      })
    }
  })

  t.test('a malformed cookie is refused on any path, and cleared', async (t) => {
    const { call, asking } = await setUp(t)
    for (const value of ['x', '!!!', 'YQ', 'a%20b', 'é', 'x'.repeat(60_000)]) {
      for (const path of ['/', '/db', '/_session']) {
        const answer = await call('GET', path, asking(`AuthSession=${value}`))
        t.match(answer, {
          status: 400,
          json: { error: 'bad_request', reason: 'Malformed AuthSession cookie. Please clear your cookies.' },
          headers: { 'set-cookie': /^AuthSession=; .*Max-Age=0/ },
        })
      }
      t.equal((await call('GET', '/_up', asking(`AuthSession=${value}`))).status, 200)
    }
  })

  t.test('duplicate cookies, and other cookies', async (t) => {
    const { call, logIn, asking } = await setUp(t)
    const own = cookieOf(await logIn())
    const other = cookieOf(await logIn({ json: { name: 'o', password: 'o' } }))
    const name = async (cookie: string) =>
      ((await call('GET', '/_session', asking(cookie))).json as { userCtx: { name: string } }).userCtx.name
    t.equal(await name(`${own}; ${other}`), 's')
    t.equal(await name(`${other}; ${own}`), 'o')
    t.equal(await name(`a=b; XAuthSession=x; ${own}; c="d"`), 's')
    t.equal(await name(`NotAuthSession=x`), null)
  })

  t.test('a login replaces earlier sessions, and cannot be fixated', async (t) => {
    const { call, logIn, asking } = await setUp(t)
    const planted = cookieOf(await logIn({ json: { name: 'o', password: 'o' } }))
    const answer = await logIn({ json: { name: 's', password: 's' }, headers: { cookie: planted } })
    const own = cookieOf(answer)
    t.not(own, planted)
    t.equal([answer.headers['set-cookie']].flat().length, 1)
    t.match(await call('GET', '/_session', asking(planted)), { json: { userCtx: { name: 'o' } } })
    t.match(await call('GET', '/_session', asking(own)), { json: { userCtx: { name: 's' } } })
  })

  t.test('logging out ends the session, and no other', async (t) => {
    const { call, logIn, asking } = await setUp(t)
    const [first, second] = [cookieOf(await logIn()), cookieOf(await logIn())]
    t.not(first, second)
    const answer = await call('DELETE', '/_session', asking(first))
    t.match(answer, {
      status: 200,
      json: { ok: true },
      headers: { 'set-cookie': /^AuthSession=; .*Path=\/; HttpOnly/ },
    })
    t.equal((await call('GET', '/_all_dbs', asking(first))).status, 401)
    t.equal((await call('GET', '/_all_dbs', asking(second))).status, 200)
    t.equal((await call('DELETE', '/_session')).status, 200, 'an anonymous client may log out')
  })

  t.test('a new password, and a deleted account, end their sessions', async (t) => {
    const { call, logIn, asking } = await setUp(t)
    await call('PUT', '/_config/admins/b', { body: '"b"', auth: 's:s' })
    const cookie = cookieOf(await logIn({ json: { name: 'b', password: 'b' } }))
    t.equal((await call('GET', '/_all_dbs', asking(cookie))).status, 200)
    await call('PUT', '/_config/admins/b', { body: '"c"', auth: 's:s' })
    t.equal((await call('GET', '/_all_dbs', asking(cookie))).status, 401)
    const later = cookieOf(await logIn({ json: { name: 'b', password: 'c' } }))
    await call('DELETE', '/_config/admins/b', { auth: 's:s' })
    t.equal((await call('GET', '/_all_dbs', asking(later))).status, 401)
  })

  t.test('logging in works with require_valid_user', async (t) => {
    const { call, logIn, asking } = await setUp(t, { 'chttpd/require_valid_user': 'true' })
    t.equal((await call('GET', '/_session')).status, 401)
    const answer = await logIn()
    t.equal(answer.status, 200)
    t.equal((await call('GET', '/_session', asking(cookieOf(answer)))).status, 200)
    t.equal((await call('DELETE', '/_session')).status, 200)
  })
})

/** Handlers beside the cookie, their order, and errors; protocol.md 11.2, 11.5, 11.6. */
t.test('other credentials', async (t) => {
  const HANDLER = (name: string) => `{chttpd_auth, ${name}_authentication_handler}`
  const ALL = ['cookie', 'jwt', 'proxy', 'default'].map(HANDLER).join(', ')
  const SECRET = Buffer.from('a secret that is thirty-two bytes')
  const soon = () => Math.floor(Date.now() / 1000) + 300

  async function setUp(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, {
      'settee/trusted_proxies': '192.0.2.0/24',
      'chttpd/authentication_handlers': ALL,
      'jwt_keys/hmac:_default': SECRET.toString('base64'),
      ...settings,
    })
    const call = connect(t, server)
    await setAdmin(server.config, 's', 's')
    await call('PUT', '/db', { auth: 's:s' })
    const who = async (headers: Record<string, string>) => {
      const { status, json } = await call('GET', '/_session', { headers })
      const said = json as { reason?: string; userCtx?: object; info?: { authenticated?: string } }
      return status === 200 ? [said.userCtx, said.info?.authenticated] : [status, said.reason]
    }
    return { ...server, call, who }
  }

  const bearer = async (
    claims: Record<string, unknown>,
    key: Parameters<SignJWT['sign']>[0] = SECRET,
    alg = 'HS256',
    kid?: string,
  ) => ({
    authorization: `Bearer ${await new SignJWT(claims).setProtectedHeader({ alg, ...(kid && { kid }) }).sign(key)}`,
  })
  const basic = (text: string) => ({ authorization: `Basic ${Buffer.from(text).toString('base64')}` })

  t.test('a token authenticates its user, as an admin only if that is configured', async (t) => {
    const { who, config } = await setUp(t)
    const claims = { sub: 'anna', exp: soon(), '_couchdb.roles': ['_admin', 'notes', '_metrics'] }
    t.strictSame(await who(await bearer(claims)), [{ name: 'anna', roles: ['notes'] }, 'jwt'])
    t.strictSame(await who(await bearer({ ...claims, sub: 's' })), [{ name: 's', roles: ['notes'] }, 'jwt'])
    await config.set('settee', 'jwt_admin', 'true')
    t.strictSame(await who(await bearer(claims)), [
      { name: 'anna', roles: ['_admin', 'notes', '_metrics'] },
      'jwt',
    ])
  })

  t.test('as Obsidian LiveSync makes tokens', async (t) => {
    const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const pem = String(pair.publicKey.export({ type: 'spki', format: 'pem' }))
      .trim()
      .replaceAll('\n', '\\n')
    const { who } = await setUp(t, { 'jwt_keys/ec:phone': pem })
    const claims = { sub: 'anna', iat: soon() - 300, exp: soon(), '_couchdb.roles': ['_admin'] }
    t.strictSame(await who(await bearer(claims, pair.privateKey, 'ES256', 'phone')), [
      { name: 'anna', roles: [] },
      'jwt',
    ])
    t.strictSame(await who(await bearer(claims, pair.privateKey, 'ES256')), [400, 'Unknown kid'])
  })

  t.test('in hosted mode a token needs an existing account, and grants only its roles', async (t) => {
    const { who, config, call } = await setUp(t, { 'settee/mode': 'hosted' })
    t.ok(call)
    // The server of these tests knows every name, so it is the roles that are looked at.
    const claims = { sub: 'anna', exp: soon(), '_couchdb.roles': ['_admin', 'notes'] }
    t.strictSame(await who(await bearer(claims)), [{ name: 'anna', roles: [] }, 'jwt'])
    await config.set('settee', 'jwt_admin', 'true')
    t.strictSame(await who(await bearer(claims)), [{ name: 'anna', roles: [] }, 'jwt'])
    t.strictSame(await who(await bearer({ ...claims, sub: 's' })), [{ name: 's', roles: ['_admin'] }, 'jwt'])
  })

  t.test('in hosted mode a token for an unknown account is refused', async (t) => {
    const env = { COUCHDB_USER: 's', COUCHDB_PASSWORD: 's' }
    const server = await startTestServer(t, { hosted: true, env })
    const set = async (key: string, value: string) => {
      const answer = await server.request('PUT', `/_node/_local/_config/${key}`, {
        body: JSON.stringify(value),
        auth: 's:s',
      })
      t.equal(answer.status, 200, key)
    }
    const unsafe = await server.request('PUT', '/_node/_local/_config/chttpd/authentication_handlers', {
      body: JSON.stringify(ALL),
      auth: 's:s',
    })
    t.match(unsafe, { status: 400, json: { reason: /needs either settee\/trusted_proxies/ } })
    await set('settee/trusted_proxies', '192.0.2.1')
    await set('chttpd/authentication_handlers', ALL)
    await set('jwt_keys/hmac:_default', SECRET.toString('base64'))
    const session = (headers: Record<string, string>) => server.request('GET', '/_session', { headers })
    t.match(await session(await bearer({ sub: 'nobody', exp: soon() })), { status: 401 })
    t.match(await session(await bearer({ sub: 's', exp: soon() })), {
      status: 200,
      json: { userCtx: { name: 's' } },
    })
  })

  t.test(
    'a proxy is believed where it signs or is trusted, and not because it runs on this machine',
    async (t) => {
      const headers = { 'x-auth-couchdb-username': 'anna', 'x-auth-couchdb-roles': 'notes,_admin' }
      const anna = [{ name: 'anna', roles: ['notes', '_admin'] }, 'proxy']
      const nobody = [{ name: null, roles: [] }, undefined]
      const { who, config } = await setUp(t)
      t.strictSame(await who(headers), nobody, 'others are named')
      await config.set('settee', 'trusted_proxies', '192.0.2.0/24, loopback')
      t.strictSame(await who(headers), anna)
      await config.set('chttpd_auth', 'secret', 'shared')
      await config.set('chttpd_auth', 'proxy_use_secret', 'true')
      t.strictSame(await who(headers), nobody)
      const token = createHmac('sha256', 'shared').update('anna').digest('hex')
      t.strictSame(await who({ ...headers, 'x-auth-couchdb-token': token }), anna)
      await config.delete('settee', 'trusted_proxies')
      t.strictSame(await who({ ...headers, 'x-auth-couchdb-token': token }), anna)
      await config.delete('chttpd', 'authentication_handlers')
      t.strictSame(await who({ ...headers, 'x-auth-couchdb-token': token }), nobody, 'off by default')
      t.strictSame(await who({ authorization: 'Bearer x' }), nobody, 'tokens are off by default')
    },
  )

  t.test('the first handler that accepts the credentials decides', async (t) => {
    const { who, config, call } = await setUp(t)
    const login = await call('POST', '/_session', { json: { name: 'o', password: 'o' } })
    const cookie = String(login.headers['set-cookie']).split(';', 1)[0] ?? ''
    t.strictSame(await who({ cookie, ...basic('s:s') }), [{ name: 'o', roles: [] }, 'cookie'])
    await config.set('chttpd', 'authentication_handlers', [HANDLER('default'), HANDLER('cookie')].join(','))
    t.strictSame(await who({ cookie, ...basic('s:s') }), [{ name: 's', roles: ['_admin'] }, 'default'])
    t.strictSame(await who({ cookie }), [{ name: 'o', roles: [] }, 'cookie'])
    const { json } = await call('GET', '/_session')
    t.match(json, { info: { authentication_handlers: ['default', 'cookie'] } })
    await config.set('chttpd', 'authentication_handlers', '{couch_httpd_auth,cookie_authentication_handler}')
    t.strictSame(await who(basic('s:s')), [{ name: null, roles: [] }, undefined])
    for (const wrong of [
      'cookie',
      '{chttpd_auth, cookie}',
      `${HANDLER('cookie')} ${HANDLER('jwt')}`,
      `${HANDLER('jwt')},${HANDLER('jwt')}`,
    ]) {
      await t.rejects(config.set('chttpd', 'authentication_handlers', wrong), { code: 'bad_request' }, wrong)
    }
  })

  t.test('bad credentials', async (t) => {
    const { who } = await setUp(t)
    const claims = { sub: 'anna', exp: soon() }
    const good = (await bearer(claims)).authorization
    const raw = (bytes: number[]) => ({ authorization: `Basic ${Buffer.from(bytes).toString('base64')}` })
    const wrong = [401, 'Name or password is incorrect.']
    const nobody = [{ name: null, roles: [] }, undefined]
    const base64 = [400, 'Authorization header has invalid base64 value']
    const malformed = [400, 'Malformed authentication token']
    const cases: [says: string, headers: Record<string, string>, answer: unknown[]][] = [
      ['bad base64', { authorization: 'Basic !!!' }, base64],
      ['base64 with spaces', { authorization: 'Basic czpz czpz' }, base64],
      ['no colon', basic('nocolon'), nobody],
      ['nothing', { authorization: 'Basic ' }, nobody],
      ['logged out', basic('_:_'), nobody],
      ['a NUL in the name', basic('s\u0000:s'), [401, 'Name or password is incorrect.']],
      ['a NUL in the password', basic('s:x\u0000'), wrong],
      ['no UTF-8', raw([0xff, 0x3a, 0x78]), wrong],
      ['a huge name', basic(`${'x'.repeat(40_000)}:x`), wrong],
      ['another scheme', { authorization: 'Digest x' }, nobody],
      ['a token of nothing', { authorization: 'Bearer ' }, nobody],
      ['no token', { authorization: 'Bearer x' }, malformed],
      ['a huge token', { authorization: `Bearer ${'x.'.repeat(20_000)}` }, malformed],
      ['a token that has expired', await bearer({ ...claims, exp: 1 }), [401, 'exp not in future']],
      ['a token without an end', await bearer({ sub: 'anna' }), [400, 'Missing exp claim']],
      [
        'a token that was changed',
        {
          authorization: good
            .replace(/.$/, (end) => (end === 'A' ? 'B' : 'A'))
            .replace(/\.([\w-]{4})/, '.$1')
            .replace(/\.eyJ/, '.eyK'),
        },
        [400, 'Bad HMAC in authentication token'],
      ],
      [
        'a token that nobody signed',
        { authorization: `Bearer ${new UnsecuredJWT(claims).encode()}` },
        [400, 'Invalid alg header parameter'],
      ],
      ['a forged address', { ...basic('s:no'), 'x-forwarded-for': '192.0.2.1' }, wrong],
      ['a forged name of a proxy', { 'x-auth-couchdb-username': '' }, nobody],
    ]
    for (const [says, headers, answer] of cases) t.strictSame(await who(headers), answer, says)
  })

  t.test('headers of a megabyte', async (t) => {
    const { port } = await setUp(t)
    for (const header of [
      `Authorization: Basic ${'A'.repeat(1_000_000)}`,
      `Cookie: AuthSession=${'A'.repeat(1_000_000)}`,
    ]) {
      const socket = connectSocket(port, '127.0.0.1')
      t.after(() => socket.destroy())
      socket.on('error', () => undefined)
      socket.write(`GET /db HTTP/1.1\r\nHost: x\r\n${header}\r\n\r\n`)
      let text = ''
      for await (const chunk of socket) text += String(chunk)
      t.match(text, /^HTTP\/1.1 431/)
    }
  })

  t.test('a refused page shows no dialog of the browser', async (t) => {
    const { call, config } = await setUp(t, { 'httpd/WWW-Authenticate': 'Basic realm="couchdb"' })
    const asked = async (headers: Record<string, string>) =>
      (await call('GET', '/db', { headers })).headers['www-authenticate']
    const dialog = 'Basic realm="couchdb"'
    t.equal(await asked({}), dialog, 'curl')
    t.equal(await asked({ accept: 'text/html', 'sec-fetch-mode': 'navigate' }), dialog, 'the address bar')
    for (const headers of [
      { origin: 'app://obsidian.md' },
      { 'x-requested-with': 'XMLHttpRequest' },
      { 'sec-fetch-mode': 'cors' },
      { 'sec-fetch-mode': 'same-origin', accept: 'text/html' },
    ]) {
      t.equal(await asked(headers as Record<string, string>), undefined, JSON.stringify(headers))
    }
    t.equal(await asked({ origin: 'https://a.example', 'x-couchdb-www-authenticate': 'Cookie' }), 'Cookie')
    await config.set('chttpd', 'require_valid_user_except_for_up', 'true')
    await config.delete('httpd', 'WWW-Authenticate')
    t.equal((await call('GET', '/_up')).status, 200)
    t.match(await call('GET', '/'), { status: 401, headers: { 'www-authenticate': 'Basic realm="server"' } })
  })

  t.test('device tokens in place of a password', async (t) => {
    const phone = newSecret()
    const live = new Map([[phone, 'p1']])
    const server = await startMemoryServer(t, {}, (app) => {
      const tokens = {
        check: (name: string, password: string) => {
          const id = live.get(password)
          return id === undefined || name !== 's' ? null : { id, name: 'phone' }
        },
        isKnown: () => live.has(phone),
        noteUse: () => undefined,
      }
      Object.assign(app.services, { tokens })
      app.get('/-identity', { config: { access: 'public' } }, async (request) => request.identity)
    })
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const identity = async (auth?: string) => (await call('GET', '/-identity', auth ? { auth } : {})).json
    t.strictSame(await identity(`s:${phone}`), { handler: 'token', token: 'p1', tokenName: 'phone' })
    t.strictSame(await identity('s:s'), { handler: 'default', token: null, tokenName: null })
    t.strictSame(await identity(), { handler: null, token: null, tokenName: null })
    t.match(await call('GET', '/_session', { auth: `s:${phone}` }), {
      json: { info: { authenticated: 'default' } },
    })
    t.equal((await call('GET', '/', { auth: `o:${phone}` })).status, 401, "not another account's")
    const session = (password: string) => call('POST', '/_session', { json: { name: 's', password } })
    t.match(await session(phone), { status: 401, json: { reason: /opens no session/ } })
    t.match(await session(newSecret()), { status: 401, json: { reason: 'Name or password is incorrect.' } })
    for (let guess = 0; guess < 5; guess++) await call('GET', '/', { auth: `s:${guess}` })
    t.equal((await call('GET', '/', { auth: 's:s' })).status, 403)
    t.equal((await call('GET', '/', { auth: `s:${phone}` })).status, 200, 'no lockout holds it up')
    live.clear()
    for (let guess = 0; guess < 50; guess++)
      t.equal((await call('GET', '/', { auth: `s:${phone}` })).status, 401)
    t.ok(
      server.lines.filter((line) => line.includes('a login failed')).length < 15,
      'failures of a locked account are not logged',
    )
  })

  t.test('an account whose document has conflicts gets the reason, and is not locked out', async (t) => {
    const { request } = await startTestServer(t)
    await request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
    await request('PUT', '/_node/_local/_config/admins/s', { body: '"s"' })
    const path = '/_users/org.couchdb.user:anna'
    const user = { name: 'anna', type: 'user', roles: [], password: 'a' }
    const made = await request('PUT', path, { auth: 's:s', body: user })
    t.equal((await request('GET', '/', { auth: 'anna:a' })).status, 200)
    const losing = { ...user, _rev: '1-00000000000000000000000000000000', password: 'b' }
    t.match(await request('PUT', `${path}?new_edits=false`, { auth: 's:s', body: losing }), { status: 201 })
    const reason =
      'User document conflicts must be resolved before the document is used for authentication purposes.'
    for (let login = 0; login < 10; login += 1) {
      const answer = await request('GET', '/', { auth: `anna:${login % 2 ? 'a' : 'b'}` })
      t.match(answer, { status: 401, json: { error: 'unauthorized', reason } })
    }
    await request('DELETE', `${path}?rev=${losing._rev}`, { auth: 's:s' })
    t.match(await request('GET', path, { auth: 's:s' }), { json: { _rev: made.json.rev } })
    t.equal((await request('GET', '/', { auth: 'anna:a' })).status, 200)
  })

  t.test('a lockout and its log lines', async (t) => {
    const { call, lines, config } = await setUp(t)
    const evil = 's","msg":"x'
    for (let guess = 0; guess < 5; guess++) {
      t.match(await call('GET', '/', { auth: `s:secret${guess}` }), { status: 401 })
      await call('GET', '/', { auth: `${evil}:secret${guess}` })
    }
    const locked = {
      error: 'forbidden',
      reason: 'Account is temporarily locked due to multiple authentication failures',
    }
    t.match(await call('GET', '/', { auth: 's:s' }), { status: 403, json: locked })
    t.match(await call('POST', '/_session', { json: { name: 's', password: 's' } }), {
      status: 403,
      json: locked,
    })
    t.equal((await call('GET', '/', { auth: 'o:o' })).status, 200)
    const told = lines.filter((line) => line.includes('a login failed'))
    t.equal(told.length, 10)
    for (const line of told)
      t.match(JSON.parse(line), { address: '127.0.0.1', account: /^s/, msg: 'a login failed' })
    t.notOk(lines.some((line) => line.includes('secret')))
    await config.set('chttpd_auth_lockout', 'mode', 'warn')
    t.equal((await call('GET', '/', { auth: 's:s' })).status, 200)
    await config.set('chttpd_auth_lockout', 'mode', 'off')
    t.equal((await call('GET', '/', { auth: 's:no' })).status, 401)
  })
})
