/** Logging in and out with a cookie; protocol.md 11.3, clients.md 1.6 and pain 22. */
import t, { type Test } from 'tap'
import { sealSession } from '../../src/auth/sessions.ts'
import { type Answer, type Ask, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

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

t.test('what is no login', async (t) => {
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
    if (status === 401) t.match(answer.headers['set-cookie'], /^AuthSession=; .*Max-Age=0; Path=\/; HttpOnly/)
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
  await config.set('chttpd_auth', 'same_site', 'lax')
  t.equal(await cookie(), 'AuthSession=V; Version=1; Path=/; HttpOnly; SameSite=Lax')
})

t.test('where to go afterwards is a path of this server', async (t) => {
  const { logIn, call, url } = await setUp(t)
  const wrong = { json: { name: 's', password: 'no' } }
  const next = await logIn(undefined, '/_session?next=/db/a%20b?x=1')
  t.match(next, { status: 302, headers: { location: `${url}/db/a%20b?x=1` }, json: { ok: true } })
  t.match(cookieOf(next), /AuthSession=\w/)
  const fail = await logIn(wrong, '/_session?next=/a&fail=/login.html')
  t.match(fail, { status: 302, headers: { location: `${url}/login.html` }, json: { error: 'unauthorized' } })
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

t.test('nobody, and basic=true', async (t) => {
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

t.test('a session slides, on every kind of answer', async (t) => {
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

t.test('a session that has run out says so; any other cookie that opens nothing is nobody', async (t) => {
  const { call, config, asking } = await setUp(t, { 'chttpd_auth/secret': 'known' })
  const salt = config.get('admins', 's')?.split(',')[1] ?? ''
  await call('PUT', '/db', { auth: 's:s' })
  const expired = agedCookie('known', salt, 's', 601)
  const said = { error: 'unauthorized', reason: 'The session has expired: log in again.' }
  for (const path of ['/db', '/_all_dbs', '/_session?basic=true']) {
    const answer = await call('GET', path, asking(expired))
    t.match(answer, { status: 401, json: said, headers: { 'content-type': 'application/json' } }, path)
  }
  t.match(await call('GET', '/_session', asking(expired)), { status: 200, json: { userCtx: { name: null } } })
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

t.test('a cookie that is no session is refused on any path, and cleared', async (t) => {
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

t.test('names that stand twice, and neighbours', async (t) => {
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

t.test('a login takes nothing over from before, and another cannot be put in its place', async (t) => {
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
  t.equal((await call('DELETE', '/_session')).status, 200, 'who is nobody may, too')
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

t.test('logging in is possible where nobody is served unknown', async (t) => {
  const { call, logIn, asking } = await setUp(t, { 'chttpd/require_valid_user': 'true' })
  t.equal((await call('GET', '/_session')).status, 401)
  const answer = await logIn()
  t.equal(answer.status, 200)
  t.equal((await call('GET', '/_session', asking(cookieOf(answer)))).status, 200)
  t.equal((await call('DELETE', '/_session')).status, 200)
})
