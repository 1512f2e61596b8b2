/** Ways in beside the cookie, their order, and what bad credentials get; protocol.md 11.2, 11.5, 11.6. */
import { createHmac, generateKeyPairSync } from 'node:crypto'
import { connect as connectSocket } from 'node:net'
import { SignJWT, UnsecuredJWT } from 'jose'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

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

t.test('a token lets in as whom it names, and never as an admin unless that is configured', async (t) => {
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

t.test('in hosted mode a token is for accounts that there are, and for roles that they have', async (t) => {
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
    t.strictSame(await who({ authorization: 'Bearer x' }), nobody, 'and so are tokens')
  },
)

t.test('the first handler that knows the credentials decides', async (t) => {
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

t.test('who is refused in a page gets no dialog of the browser', async (t) => {
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

t.test('device tokens in the place of a password', async (t) => {
  const live = new Map([['token-phone', 'p1']])
  const server = await startMemoryServer(t, {}, (app) => {
    const tokens = {
      looksLike: (password: string) => password.startsWith('token-'),
      check: (name: string, password: string) => {
        const id = live.get(password)
        return id === undefined || name !== 's' ? null : { id }
      },
    }
    Object.assign(app.services, { tokens })
    app.get('/-identity', { config: { access: 'public' } }, async (request) => request.identity)
  })
  const call = connect(t, server)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const identity = async (auth?: string) => (await call('GET', '/-identity', auth ? { auth } : {})).json
  t.strictSame(await identity('s:token-phone'), { handler: 'token', token: 'p1' })
  t.strictSame(await identity('s:s'), { handler: 'default', token: null })
  t.strictSame(await identity(), { handler: null, token: null })
  t.match(await call('GET', '/_session', { auth: 's:token-phone' }), {
    json: { info: { authenticated: 'default' } },
  })
  t.equal((await call('GET', '/', { auth: 'o:token-phone' })).status, 401, "not another account's")
  const session = (password: string) => call('POST', '/_session', { json: { name: 's', password } })
  t.match(await session('token-phone'), { status: 401, json: { reason: /opens no session/ } })
  t.match(await session('token-no'), { status: 401, json: { reason: 'Name or password is incorrect.' } })
  for (let guess = 0; guess < 5; guess++) await call('GET', '/', { auth: `s:${guess}` })
  t.equal((await call('GET', '/', { auth: 's:s' })).status, 403)
  t.equal((await call('GET', '/', { auth: 's:token-phone' })).status, 200, 'no lockout holds it up')
  live.clear()
  for (let guess = 0; guess < 50; guess++)
    t.equal((await call('GET', '/', { auth: 's:token-phone' })).status, 401)
  t.ok(server.lines.filter((line) => line.includes('a login failed')).length < 15, 'nor fills it the log')
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

t.test('a lockout, and what the log says of it', async (t) => {
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
