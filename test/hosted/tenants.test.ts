/** Two tenants on one server: each has its own databases, and knows of no others. */
import t, { type Test } from 'tap'
import { until } from '../helpers/until.ts'
import { type Answer, connect } from '../http/client.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { device, liveSync, remote } from '../protocol/devices.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:anna' }
const BERT = { auth: 'bert:bert' }
const ROOT = { auth: 'root:root' }

/** Anna has `anna-1` and `anna-2`, Bert `bert-1`; `house` is nobody's. */
async function startWithTenants(t: Test, settings: Record<string, string> = {}) {
  const server = await startHostedServer(t, settings)
  const call = connect(t, server)
  for (const [name, as] of [
    ['anna-1', ANNA],
    ['anna-2', ANNA],
    ['bert-1', BERT],
    ['house', ROOT],
  ] as const) {
    t.match(await call('PUT', `/${name}`, as), { status: 201, json: { ok: true } })
  }
  return { ...server, call }
}

t.test('a tenant makes a database, which is its own from the first moment', async (t) => {
  const { call } = await startWithTenants(t)
  t.match((await call('GET', '/anna-1/_security', ANNA)).json, {
    admins: { names: ['anna'] },
    members: { names: ['anna'] },
  })
  t.equal((await call('PUT', '/anna-1/doc', { ...ANNA, body: '{}' })).status, 201)
  t.equal((await call('GET', '/anna-1/doc', BERT)).status, 404)
  for (const path of ['', '/doc', '/_changes', '/_security', '/_design/d']) {
    const [others, absent] = [
      await call('GET', `/anna-1${path}`, BERT),
      await call('GET', `/anna-9${path}`, BERT),
    ]
    t.strictSame([others.status, others.text], [absent.status, absent.text], path)
    t.match(others.json, { error: 'not_found', reason: 'Database does not exist.' })
  }
  t.equal((await call('GET', '/anna-1/doc')).status, 401)
  t.equal((await call('GET', '/anna-1/doc', ROOT)).status, 200)
  t.match(await call('PUT', '/anna-1', BERT), { status: 412, json: { error: 'file_exists' } })
  t.match(await call('PUT', '/anna-1', ANNA), { status: 412 })
  t.match(await call('PUT', '/Illegal', ANNA), { status: 400 })
  t.match(await call('PUT', '/_replicator', ANNA), { status: 403 })
  // Any account may make databases, so no answer speaks of admins.
  for (const [method, path] of [
    ['PUT', '/new'],
    ['DELETE', '/anna-1'],
    ['GET', '/_all_dbs'],
  ] as const) {
    t.match(await call(method, path), { status: 401, json: { reason: 'Authentication required.' } }, path)
    const wrong = await call(method, path, { auth: 'anna:wrong' })
    t.match(wrong, { status: 401, json: { reason: 'Name or password is incorrect.' } }, path)
    t.notMatch(wrong.text, 'admin')
  }
})

t.test('it sees its own and no others', async (t) => {
  const { call } = await startWithTenants(t)
  t.same((await call('GET', '/_all_dbs', ANNA)).json, ['anna-1', 'anna-2'])
  t.same((await call('GET', '/_all_dbs?limit=1&descending=true', ANNA)).json, ['anna-2'])
  t.same((await call('GET', '/_all_dbs?start_key="anna-2"', ANNA)).json, ['anna-2'])
  t.same((await call('GET', '/_all_dbs', { auth: 'cora:cora' })).json, [])
  t.same((await call('GET', '/_all_dbs', ROOT)).json, ['_users', 'anna-1', 'anna-2', 'bert-1', 'house'])
  t.equal((await call('GET', '/_all_dbs')).status, 401)
  const infos = (await call('GET', '/_dbs_info', BERT)).json as { key: string }[]
  t.same(
    infos.map(({ key }) => key),
    ['bert-1'],
  )
  const keys = ['anna-1', 'bert-1', 'none']
  t.match((await call('POST', '/_dbs_info', { ...BERT, json: { keys } })).json, [
    { key: 'anna-1', error: 'not_found' },
    { key: 'bert-1', info: { doc_count: 0 } },
    { key: 'none', error: 'not_found' },
  ])
  t.same((await call('GET', '/_active_tasks', BERT)).json, [])
  t.equal((await call('GET', '/_active_tasks')).status, 401)
  await call('PUT', '/bert-1/_security', { ...BERT, json: { members: { names: ['cora'] } } })
  t.equal((await call('GET', '/bert-1', BERT)).status, 403, 'who has shut himself out')
  t.match((await call('GET', '/_dbs_info', BERT)).json, [{ key: 'bert-1' }], 'sees that it is there')
  t.equal((await call('DELETE', '/bert-1', BERT)).status, 200, 'and deletes it')
})

t.test('it deletes its own, up to a number makes new ones', async (t) => {
  const { call, hosted } = await startWithTenants(t, { 'quota/databases': '2' })
  t.match(await call('DELETE', '/bert-1', ANNA), { status: 404, json: { error: 'not_found' } })
  t.equal((await call('DELETE', '/house', ANNA)).status, 404)
  t.equal((await call('DELETE', '/none', ANNA)).status, 404)
  t.equal((await call('DELETE', '/anna-1')).status, 401)
  t.match(await call('PUT', '/anna-3', ANNA), {
    status: 403,
    json: { reason: 'This account may have 2 databases and has 2.' },
  })
  t.equal((await call('GET', '/anna-3', ROOT)).status, 404)
  t.equal((await call('DELETE', '/anna-1', ANNA)).status, 200)
  t.equal((await call('PUT', '/anna-3', ANNA)).status, 201)
  t.equal((await call('PUT', '/anna-1', BERT)).status, 201, "a name that was given back is anybody's")
  t.equal(await hosted.owners.ownerOf('anna-1'), 'bert')
  const raced = await Promise.all(
    ['x', 'y', 'z'].map((name) => call('PUT', `/cora-${name}`, { auth: 'cora:cora' })),
  )
  t.same(raced.map(({ status }) => status).sort(), [201, 201, 403])
  const names = await Promise.all(
    [ANNA, BERT, ROOT, { auth: 'dora:dora' }].map((as) => call('PUT', '/wanted', as)),
  )
  t.equal(names.filter(({ status }) => status === 201).length, 1, 'one of those who want a name gets it')
})

t.test('an admin makes databases for nobody, for others, and gives them away', async (t) => {
  const { call } = await startWithTenants(t)
  t.same((await call('GET', '/_settee/owners/house', ROOT)).json, { database: 'house', owner: null })
  t.equal((await call('PUT', '/gift?owner=nobody-yet', ROOT)).status, 404)
  t.equal((await call('PUT', '/gift?owner=anna', ROOT)).status, 201)
  t.equal((await call('PUT', '/gift/doc', { ...ANNA, body: '{}' })).status, 201)
  t.equal((await call('PUT', '/other?owner=bert', ANNA)).status, 403)
  t.equal((await call('PUT', '/other?owner=root', ROOT)).status, 403, 'an admin is no tenant')
  t.equal((await call('PUT', '/_settee/owners/house', { ...ROOT, json: { owner: 'bert' } })).status, 200)
  t.same((await call('GET', '/_all_dbs', BERT)).json, ['bert-1', 'house'])
  t.equal((await call('PUT', '/_settee/owners/house', { ...ROOT, json: { owner: null } })).status, 200)
  t.same((await call('GET', '/_all_dbs', BERT)).json, ['bert-1'])
  for (const json of [{}, { owner: 7 }, []]) {
    t.equal((await call('PUT', '/_settee/owners/house', { ...ROOT, json })).status, 400)
  }
  t.equal((await call('GET', '/_settee/owners/none', ROOT)).status, 404)
  t.equal((await call('GET', '/_settee/owners/anna-1', ANNA)).status, 401)
})

t.test("databases that couch_peruser makes are their users'", async (t) => {
  const { call } = await startWithTenants(t, { 'couch_peruser/enable': 'true' })
  const name = (user: string) => `/userdb-${Buffer.from(user).toString('hex')}`
  t.equal((await call('PUT', name('bert'), ANNA)).status, 403)
  t.equal((await call('PUT', name('anna'), ANNA)).status, 201)
})

t.test('_db_updates tells a tenant of its own, and of nothing else', async (t) => {
  const { call } = await startWithTenants(t)
  interface Row {
    readonly db_name: string
    readonly type: string
    readonly seq: string
  }
  const updates = async (query: string, as: { auth: string }) =>
    (await call('GET', `/_db_updates${query}`, as)).json as { results: Row[]; last_seq: string }
  const told = ({ results }: { results: Row[] }) => results.map(({ db_name, type }) => `${db_name} ${type}`)
  const first = await updates('', ANNA)
  t.same(told(first), ['anna-1 created', 'anna-2 created'])
  t.equal(first.last_seq, first.results[1]?.seq)
  t.notMatch(first.last_seq, /^\d+-[\w-]{12}$/, 'no number that counts all databases')
  t.same(told(await updates('?descending=true&limit=1', ANNA)), ['anna-2 created'])
  t.same(told(await updates(`?since=${first.results[0]?.seq}`, ANNA)), ['anna-2 created'])
  await call('PUT', '/bert-2', BERT)
  await call('DELETE', '/bert-2', BERT)
  t.equal((await updates('', ANNA)).last_seq, first.last_seq, 'nor that anything happened')
  t.same(told(await updates('', BERT)), ['bert-1 created', 'bert-2 created', 'bert-2 deleted'])
  await call('PUT', '/bert-2', ANNA)
  t.same(told(await updates('', BERT)), ['bert-1 created'], "a name that is another's now")
  t.same(told(await updates(`?since=${first.last_seq}`, ANNA)), ['bert-2 created'])
  t.same(
    told(await updates(`?since=${first.last_seq}`, BERT)),
    ['bert-1 created'],
    "another's token means nothing",
  )
  t.same(told(await updates('?since=3', BERT)), ['bert-1 created'], 'nor does a number')
  t.equal((await call('GET', '/_db_updates?since=x', BERT)).status, 400)
  t.same(told(await updates('?since=now', BERT)), [])
  t.ok((await updates('', ROOT)).results.length >= 6)
  t.equal((await call('GET', '/_db_updates')).status, 401)
})

t.test('_db_updates that waits', async (t) => {
  const { url, call } = await startWithTenants(t)
  const reader = new AbortController()
  t.teardown(() => reader.abort())
  const answer = await fetch(`${url}/_db_updates?feed=continuous&since=now`, {
    headers: { authorization: `Basic ${Buffer.from('anna:anna').toString('base64')}` },
    signal: reader.signal,
  })
  let text = ''
  const reading = (async () => {
    for await (const chunk of answer.body ?? []) text += Buffer.from(chunk).toString()
  })().catch(() => undefined)
  await call('PUT', '/bert-2', BERT)
  await call('PUT', '/bert-1/doc', { ...BERT, body: '{}' })
  await call('PUT', '/anna-3', ANNA)
  await until('it is told', () => text.includes('anna-3'))
  t.same(
    text
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { db_name: string }).db_name),
    ['anna-3'],
  )
  reader.abort()
  await reading
})

// The accounts API, docs/settee-api.md.

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
  for (const name of ['bo', 'b']) await make({ name, password: 'x' })
  const found = async (query: string) => {
    const { json } = await call('GET', `/_settee/accounts?prefix=${query}`, ROOT)
    return (json as { accounts: { name: string }[] }).accounts.map(({ name }) => name)
  }
  t.same(await found('b'), ['b', 'bert', 'bo'])
  t.same(await found('b&after=bert'), ['bo'])
  t.same(await found('co'), ['cora'])
  t.same(await found('x'), [])
})

t.test('every tenant sees only its own databases', async (t) => {
  const { call, hosted } = await startWithAnna(t)
  await until('it is counted', async () => (await hosted.usage.of('notes')).documents === 1)
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
  t.same(await hosted.tenantUsage(10), [])
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
