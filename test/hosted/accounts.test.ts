/** The accounts API, docs/settee-api.md. */
import t, { type Test } from 'tap'
import { type Answer, connect } from '../http/client.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { device, liveSync, remote, until } from '../protocol/devices.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:anna' }
const ROOT = { auth: 'root:root' }

async function startWithAnna(t: Test, settings: Record<string, string> = {}) {
  const server = await startHostedServer(t, settings)
  const call = connect(t, server)
  const make = (body: object) => call('POST', '/_settee/accounts', { ...ROOT, json: body })
  t.match(await make({ name: 'anna', password: 'anna' }), { status: 201, json: { ok: true, name: 'anna' } })
  t.equal((await call('PUT', '/notes', ANNA)).status, 201)
  t.equal((await call('PUT', '/notes/doc', { ...ANNA, body: '{}' })).status, 201)
  return { ...server, call, make }
}

function reasonOf({ json }: Answer): string {
  return (json as { reason: string }).reason
}

t.test('an admin makes accounts', async (t) => {
  const { call, make } = await startWithAnna(t)
  t.match((await call('GET', '/_users/org.couchdb.user:anna', ROOT)).json, {
    name: 'anna',
    roles: [],
    type: 'user',
  })
  const whole = { name: 'bert', password: 'x', roles: ['staff'], quota: { databases: 1, bytes: 'infinity' } }
  t.equal((await make(whole)).status, 201)
  t.match((await call('GET', '/_settee/accounts/bert', ROOT)).json, {
    name: 'bert',
    roles: ['staff'],
    suspended: false,
    quota: { databases: 1, bytes: 'infinity', requests: 100 },
    overrides: { databases: 1, bytes: 'infinity' },
    usage: { bytes: 0, documents: 0, databases: 0, feeds: 0 },
    databases: [],
  })
  t.match(await make({ name: 'anna', password: 'other' }), { status: 409, json: { error: 'conflict' } })
  t.match(await make({ name: 'root', password: 'x' }), { status: 409 }, "no admin's")
  const wrong: object[] = [
    [],
    { name: 'c' },
    { password: 'c' },
    { name: '', password: 'c' },
    { name: 'c', password: '' },
    { name: 'c:d', password: 'c' },
    { name: '_c', password: 'c' },
    { name: ' c', password: 'c' },
    { name: 'c\u0000', password: 'c' },
    { name: 'c'.repeat(129), password: 'c' },
    { name: 7, password: 'c' },
    { name: 'c', password: 'c', roles: 'staff' },
    { name: 'c', password: 'c', quota: { bytes: -1 } },
    { name: 'c', password: 'c', quota: { colour: 1 } },
  ]
  for (const body of wrong) t.equal((await make(body)).status, 400, JSON.stringify(body))
  t.equal((await call('GET', '/_settee/accounts/c', ROOT)).status, 404)
  for (const as of [{}, ANNA]) {
    t.equal((await call('POST', '/_settee/accounts', { ...as, json: whole })).status, 401)
    t.equal((await call('GET', '/_settee/accounts', as)).status, 401)
    t.equal((await call('GET', '/_settee/accounts/anna', as)).status, 401)
    t.equal((await call('PUT', '/_settee/accounts/anna', { ...as, json: {} })).status, 401)
    t.equal((await call('DELETE', '/_settee/accounts/anna', as)).status, 401)
  }
})

t.test('accounts in pages', async (t) => {
  const { call, make } = await startWithAnna(t)
  for (const name of ['dora', 'bert', 'zoë']) await make({ name, password: 'x' })
  t.equal((await call('PUT', '/of-cora', { auth: 'cora:cora' })).status, 201, 'known by her database alone')
  const names: string[] = []
  for (let after: string | null = ''; after !== null; ) {
    const path = `/_settee/accounts?limit=2&after=${encodeURIComponent(after)}`
    const page = (await call('GET', path, ROOT)).json as { accounts: { name: string }[]; next: string | null }
    names.push(...page.accounts.map(({ name }) => name))
    after = page.next
  }
  t.same(names, ['anna', 'bert', 'cora', 'dora', 'zoë'])
  t.equal((await call('GET', '/_settee/accounts?limit=x', ROOT)).status, 400)
})

t.test('everybody sees what is his own', async (t) => {
  const { call, hosted } = await startWithAnna(t)
  await until('it is counted', () => hosted.usage.of('notes').documents === 1)
  t.match((await call('GET', '/_settee/account', ANNA)).json, {
    name: 'anna',
    usage: { documents: 1, databases: 1 },
    databases: [{ name: 'notes', documents: 1 }],
  })
  t.equal((await call('GET', '/_settee/account')).status, 401)
  t.equal((await call('GET', '/_settee/account', ROOT)).status, 404, 'an admin is no tenant')
})

t.test('a suspended account is let in nowhere, and its live sync ends', async (t) => {
  const { url, call } = await startWithAnna(t)
  const phone = await device(t)
  const there = remote(`${url.replace('://', '://anna:anna@')}/notes`)
  const { errors } = liveSync(t, phone, there.db)
  await until('it waits for news', () => there.seen.some(({ query }) => query.get('feed') === 'longpoll'))
  const suspend = (suspended: unknown) =>
    call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { suspended } })
  t.match((await suspend(true)).json, { name: 'anna', suspended: true })
  await until('it is told', () => errors.length > 0)
  t.match(errors, [{ status: 403, name: 'forbidden' }])
  const refused = await call('GET', '/notes/doc', ANNA)
  t.match(refused, { status: 403, json: { error: 'forbidden', reason: /suspended/ } })
  const wrong = await call('GET', '/notes/doc', { auth: 'anna:wrong' })
  t.match(wrong, { status: 401 }, 'who does not know the password learns nothing')
  t.notMatch(reasonOf(wrong), /suspended/)
  t.equal((await call('GET', '/notes/doc', ROOT)).status, 200)
  t.equal((await suspend(7)).status, 400)
  t.match((await suspend(false)).json, { suspended: false })
  t.equal((await call('GET', '/notes/doc', ANNA)).status, 200)
  t.match(await call('PUT', '/_settee/accounts/root', { ...ROOT, json: { suspended: true } }), {
    status: 403,
  })
  t.equal((await call('PUT', '/_settee/accounts/nobody', { ...ROOT, json: {} })).status, 404)
})

t.test('an account is deleted with all that is its', async (t) => {
  const { call, hosted, tokensDeleted } = await startWithAnna(t)
  await call('PUT', '/notes-2', ANNA)
  await call('PUT', '/notes-3', ANNA)
  await call('DELETE', '/notes-3', ANNA)
  await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota: { databases: 20 } } })
  t.match(await call('DELETE', '/_settee/accounts/anna', ROOT), {
    status: 200,
    json: {
      ok: true,
      name: 'anna',
      deleted: { databases: ['notes', 'notes-2'], user: true, tokens: 1 },
      kept: [],
    },
  })
  t.same((await call('GET', '/_all_dbs', ROOT)).json, ['_users'])
  t.equal((await call('GET', '/_users/org.couchdb.user:anna', ROOT)).status, 404)
  t.same(tokensDeleted, ['anna'])
  t.same(hosted.tenantUsage(), [])
  t.equal((await call('DELETE', '/_settee/accounts/anna', ROOT)).status, 404)
  t.equal((await call('DELETE', '/_settee/accounts/root', ROOT)).status, 403)
  const again = await call('POST', '/_settee/accounts', { ...ROOT, json: { name: 'anna', password: 'x' } })
  t.equal(again.status, 201)
  t.match((await call('GET', '/_settee/account', ANNA)).json, { overrides: {}, databases: [] })
  t.match(
    (await call('GET', '/_db_updates', ANNA)).json,
    { results: [] },
    'nothing is left of the former one',
  )
})

t.test('people sign up, where they may', async (t) => {
  const { call, config } = await startWithAnna(t)
  const signUp = (name: string, password = 'long enough') =>
    call('POST', '/_settee/sign-up', { json: { name, password } })
  t.match(await signUp('bert'), { status: 403, json: { error: 'forbidden' } }, 'not by default')
  await config.set('settee', 'sign_up', 'true')
  t.match(await signUp('bert'), { status: 201, json: { ok: true, name: 'bert' } })
  t.match((await call('GET', '/_users/org.couchdb.user:bert', ROOT)).json, { name: 'bert', roles: [] })
  t.equal((await signUp('bert')).status, 409)
  t.equal((await signUp('Bert')).status, 400)
  t.equal((await signUp('root')).status, 409)
  const refused = await signUp('cora', 'short')
  t.equal(refused.status, 400)
  const flood = await signUp('dora')
  t.match(flood, { status: 429, json: { error: 'too_many_requests' } }, 'five tries an hour')
  t.ok(Number(flood.headers['retry-after']) > 3000)
  t.equal((await call('GET', '/_users/org.couchdb.user:dora', ROOT)).status, 404)
  t.equal((await call('POST', '/_settee/sign-up', { body: '{}' })).status, 415)
})

t.test('single mode has none of it', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  for (const path of [
    '/_settee/accounts',
    '/_settee/accounts/anna',
    '/_settee/account',
    '/_settee/owners/x',
  ]) {
    t.match(await call('GET', path, { auth: 's:s' }), { status: 404, json: { reason: /hosted mode/ } }, path)
  }
  t.equal((await call('PUT', '/notes', ANNA)).status, 401)
  t.equal((await call('GET', '/_all_dbs', ANNA)).status, 401)
  t.equal((await call('GET', '/_db_updates', ANNA)).status, 401)
})
