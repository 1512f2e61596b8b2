/** A connection repeats a login without a check, until anything about the login has changed. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { Sessions } from '../../src/auth/sessions.ts'
import { Tokens } from '../../src/auth/tokens.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { startHostedServer } from '../hosted/hosted-server.ts'
import { type Answer, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

const ROOT = { auth: 'root:sesame' }
const USER = '/_users/org.couchdb.user:anna'

/** A server with the admin `root`, a connection to it, and another one. */
async function start(t: Test) {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n')
  const env = { COUCHDB_USER: 'root', COUCHDB_PASSWORD: 'sesame' }
  const server = await startTestServer(t, { dataDir, env })
  const call = connect(t, server)
  const other = connect(t, server)
  const user = { name: 'anna', type: 'user', roles: ['team'], password: 'one' }
  const anna = async (): Promise<Answer> => call('GET', '/_session', { auth: 'anna:one' })
  return { call, other, user, anna }
}

t.test('the next request with an old password is refused', async (t) => {
  const { call, other, user, anna } = await start(t)
  const { json } = await call('PUT', USER, { ...ROOT, json: user })
  const _rev = (json as { rev: string }).rev
  for (let n = 0; n < 3; n += 1) t.match((await anna()).json, { userCtx: { name: 'anna', roles: ['team'] } })

  const second = await other('PUT', USER, { ...ROOT, json: { ...user, _rev, roles: [] } })
  t.strictSame((await anna()).json, {
    ok: true,
    userCtx: { name: 'anna', roles: [] },
    info: { authentication_handlers: ['cookie', 'default'], authenticated: 'default' },
  })

  const { rev } = second.json as { rev: string }
  const third = await other('PUT', USER, { ...ROOT, json: { ...user, _rev: rev, password: 'two' } })
  t.equal((await anna()).status, 401, 'another password')
  t.equal((await call('GET', '/', { auth: 'anna:two' })).status, 200)
  await other('DELETE', `${USER}?rev=${(third.json as { rev: string }).rev}`, ROOT)
  t.equal((await call('GET', '/', { auth: 'anna:two' })).status, 401, 'a deleted account')

  for (let n = 0; n < 3; n += 1) t.equal((await call('GET', '/_all_dbs', ROOT)).status, 200)
  await other('PUT', '/_node/_local/_config/admins/root', { ...ROOT, body: '"changed"' })
  t.equal((await call('GET', '/_all_dbs', ROOT)).status, 401, 'another password of an admin')
  t.equal((await call('GET', '/_all_dbs', { auth: 'root:changed' })).status, 200)
})

t.test('only the same header repeats a login', async (t) => {
  const { call } = await start(t)
  for (let n = 0; n < 3; n += 1) {
    t.equal((await call('GET', '/_all_dbs', ROOT)).status, 200)
    t.equal((await call('GET', '/_all_dbs')).status, 401, 'without credentials')
    t.equal((await call('GET', '/_all_dbs', { auth: 'root:sesamE' })).status, 401, 'with another password')
    t.equal((await call('GET', '/_all_dbs', { auth: 'foot:sesame' })).status, 401, 'with another name')
  }
})

t.test('a lockout refuses it', async (t) => {
  const { call, other } = await start(t)
  t.equal((await call('GET', '/_all_dbs', ROOT)).status, 200)
  for (let guess = 0; guess < 5; guess += 1) await other('GET', '/', { auth: `root:guess-${guess}` })
  t.equal((await call('GET', '/_all_dbs', ROOT)).status, 403)
})

t.test('a suspended account is refused', async (t) => {
  const server = await startHostedServer(t)
  const call = connect(t, server)
  const other = connect(t, server)
  t.equal((await call('PUT', '/notes', { auth: 'anna:anna' })).status, 201)
  for (let n = 0; n < 3; n += 1) t.equal((await call('GET', '/_session', { auth: 'anna:anna' })).status, 200)
  const settings = { auth: 'root:root', json: { suspended: true } }
  t.equal((await other('PUT', '/_settee/accounts/anna', settings)).status, 200)
  t.equal((await call('GET', '/_all_dbs', { auth: 'anna:anna' })).status, 403)
})

t.test('each repeated login counts as a login', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/_node/_local/_config/admins/root', { body: '"sesame"' })
  const { credentials } = server.app.services
  const before = credentials.counts
  for (let n = 0; n < 10; n += 1) t.equal((await call('GET', '/_all_dbs', ROOT)).status, 200)
  t.equal(credentials.counts.right - before.right, 10)
  t.equal(credentials.counts.hashed - before.hashed, 1)
})

t.test('a trusted proxy repeats nothing, since it has many clients', async (t) => {
  const server = await startMemoryServer(t, { 'settee/trusted_proxies': '127.0.0.1' })
  const call = connect(t, server)
  await call('PUT', '/_node/_local/_config/admins/root', { body: '"sesame"' })
  const headers = { 'x-forwarded-for': '203.0.113.7' }
  for (let n = 0; n < 3; n += 1) t.equal((await call('GET', '/_all_dbs', { ...ROOT, headers })).status, 200)
  for (let guess = 0; guess < 5; guess += 1) await call('GET', '/', { auth: `root:${guess}`, headers })
  t.equal((await call('GET', '/_all_dbs', { ...ROOT, headers })).status, 403)
  const others = { 'x-forwarded-for': '203.0.113.8' }
  t.equal((await call('GET', '/_all_dbs', { ...ROOT, headers: others })).status, 200)
})

/** A server with the account `anna`, and how often a session or a token was looked up. */
async function startWithAnna(t: Test) {
  const { call, other, user } = await start(t)
  t.equal((await other('PUT', USER, { ...ROOT, json: user })).status, 201)
  const lookUps = {
    sessions: mock.method(Sessions.prototype, 'read').mock,
    tokens: mock.method(Tokens.prototype, 'check').mock,
  }
  t.teardown(() => mock.restoreAll())
  const logIn = async () => {
    const { headers } = await other('POST', '/_session', { json: { name: 'anna', password: 'one' } })
    const [cookie = ''] = String(headers['set-cookie']).split(';', 1)
    return { headers: { cookie } }
  }
  const makeToken = async (name: string) => {
    const made = await other('POST', '/_settee/tokens', { auth: 'anna:one', json: { name } })
    return made.json as { id: string; token: string }
  }
  const callerOf = async (asked: { auth?: string; headers?: Record<string, string> }) => {
    const { status, json } = await call('GET', '/_session', asked)
    const { userCtx, info } = (json ?? {}) as {
      userCtx?: { name: string | null; roles: string[] }
      info?: { authenticated?: string }
    }
    return [status, userCtx?.name, userCtx?.roles.join(), info?.authenticated]
  }
  return { call, other, lookUps, logIn, makeToken, callerOf }
}

t.test('a session is looked up once, until it ends', async (t) => {
  const { call, other, lookUps, logIn, callerOf } = await startWithAnna(t)
  const first = await logIn()
  const second = await logIn()
  for (let n = 0; n < 10; n += 1) t.same(await callerOf(first), [200, 'anna', 'team', 'cookie'])
  t.equal(lookUps.sessions.callCount(), 1)
  t.same(await callerOf(second), [200, 'anna', 'team', 'cookie'])
  t.equal(lookUps.sessions.callCount(), 2, 'another cookie')
  t.same(await callerOf({}), [200, null, '', undefined], 'none')
  t.same(await callerOf({ auth: 'root:sesame' }), [200, 'root', '_admin', 'default'])
  t.same(await callerOf({ ...second, auth: 'root:sesame' }), [200, 'anna', 'team', 'cookie'])
  t.same(await callerOf(second), [200, 'anna', 'team', 'cookie'])
  t.equal((await other('DELETE', '/_session', second)).status, 200)
  t.same(await callerOf(second), [200, null, '', undefined], 'after a logout')
  t.same(await callerOf(first), [200, 'anna', 'team', 'cookie'])
  await other('PUT', '/_node/_local/_config/chttpd_auth/secret', { ...ROOT, body: '"another"' })
  t.same(await callerOf(first), [200, null, '', undefined], 'with another secret')
  const third = await logIn()
  t.same(await callerOf(third), [200, 'anna', 'team', 'cookie'])
  const { json } = await call('GET', USER, ROOT)
  t.same(await callerOf(third), [200, 'anna', 'team', 'cookie'])
  await other('PUT', USER, { ...ROOT, json: { ...(json as object), roles: [], password: 'two' } })
  t.same(await callerOf(third), [200, null, '', undefined], 'with another password')
})

t.test('a session that expires meanwhile is looked up', async (t) => {
  const { call, logIn, callerOf } = await startWithAnna(t)
  await call('PUT', '/_node/_local/_config/chttpd_auth/timeout', { ...ROOT, body: '"3"' })
  mock.timers.enable({ apis: ['Date'], now: Math.ceil(Date.now() / 1000) * 1000 })
  t.teardown(() => mock.timers.reset())
  const session = await logIn()
  for (let n = 0; n < 3; n += 1) t.same(await callerOf(session), [200, 'anna', 'team', 'cookie'])
  mock.timers.tick(2999)
  t.same(await callerOf(session), [200, 'anna', 'team', 'cookie'])
  mock.timers.tick(1)
  t.same(await callerOf(session), [200, null, '', undefined])
})

t.test('a device token is looked up once, until it is revoked', async (t) => {
  const { call, other, lookUps, makeToken, callerOf } = await startWithAnna(t)
  const first = await makeToken('phone')
  const second = await makeToken('tablet')
  const auth = `anna:${first.token}`
  for (let n = 0; n < 10; n += 1) t.same(await callerOf({ auth }), [200, 'anna', 'team', 'default'])
  t.equal(lookUps.tokens.callCount(), 1)
  t.equal((await call('GET', USER, { auth })).status, 403, 'it stays a token')
  t.same(await callerOf({ auth: `root:${first.token}` }), [401, undefined, undefined, undefined])
  t.same(await callerOf({ auth: `anna:${second.token}` }), [200, 'anna', 'team', 'default'])
  t.same(await callerOf({ auth }), [200, 'anna', 'team', 'default'])
  t.equal((await other('DELETE', `/_settee/tokens/${first.id}`, { auth: 'anna:one' })).status, 200)
  t.same(await callerOf({ auth }), [401, undefined, undefined, undefined], 'a revoked one')
  const last = { auth: `anna:${second.token}` }
  t.same(await callerOf(last), [200, 'anna', 'team', 'default'])
  const { headers } = await other('HEAD', USER, ROOT)
  await other('DELETE', `${USER}?rev=${JSON.parse(String(headers.etag))}`, ROOT)
  t.same(
    await callerOf(last),
    [401, undefined, undefined, undefined],
    'a token of a deleted account is refused',
  )
})
