/** Device tokens over HTTP: docs/settee-api.md. */
import t, { type Test } from 'tap'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

interface Shown {
  readonly id: string
  readonly name: string
  readonly token: string
}

/** A server with the admin `s`; of any other account the password is its name. */
async function setUp(t: Test, settings: Record<string, string> = {}) {
  const server = await startMemoryServer(t, settings)
  const call = connect(t, server)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const make = async (auth: string, json: object, query = '') => {
    const answer = await call('POST', `/_settee/tokens${query}`, { json, auth })
    t.equal(answer.status, 201, answer.text)
    return answer.json as Shown
  }
  return { ...server, call, make }
}

const ID = /^[0-9a-f]{32}$/
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

t.test('a token is created, listed, used and revoked', async (t) => {
  const { call } = await setUp(t)
  const made = await call('POST', '/_settee/tokens', { json: { name: 'phone' }, auth: 'm:m' })
  t.equal(made.status, 201)
  t.equal(made.headers['cache-control'], 'no-store')
  const { id, token, ...rest } = made.json as Shown
  t.match(id, ID)
  t.match(token, /^stt_[A-Za-z0-9_-]{43}$/)
  t.match(rest, { account: 'm', name: 'phone', admin: false, created: TIME, last_use: null })

  const listed = async () => (await call('GET', '/_settee/tokens', { auth: 'm:m' })).json
  t.strictSame(await listed(), { tokens: [{ id, ...rest }], next: null })
  const headers = { 'user-agent': `PouchDB ${'x'.repeat(300)}` }
  t.equal((await call('GET', '/', { auth: `m:${token}`, headers })).status, 200)
  const lastUse = { time: TIME, client: headers['user-agent'].slice(0, 200), address: '127.0.0.1' }
  t.match(await listed(), { tokens: [{ id, last_use: lastUse }] })

  t.strictSame((await call('DELETE', `/_settee/tokens/${id}`, { auth: 'm:m' })).json, { ok: true })
  const refused = await call('GET', '/', { auth: `m:${token}` })
  t.equal(refused.status, 401)
  t.strictSame(refused.json, { error: 'unauthorized', reason: 'Name or password is incorrect.' })
  t.strictSame(await listed(), { tokens: [], next: null })
  t.equal((await call('DELETE', `/_settee/tokens/${id}`, { auth: 'm:m' })).status, 404)
})

t.test('a token belongs to one account', async (t) => {
  const { call, make } = await setUp(t)
  const { token } = await make('m:m', { name: 'phone' })
  for (const name of ['o', 's', '', 'M']) {
    t.equal((await call('GET', '/', { auth: `${name}:${token}` })).status, 401, name)
  }
  t.equal((await call('GET', '/', { auth: `m:${token.slice(0, -1)}_` })).status, 401)
  await call('PUT', '/db', { auth: 's:s' })
  await call('PUT', '/db/_security', { json: { members: { names: ['m'] } }, auth: 's:s' })
  t.equal((await call('PUT', '/db/doc', { body: '{}', auth: `m:${token}` })).status, 201)
  t.equal((await call('PUT', '/db/_design/d', { body: '{}', auth: `m:${token}` })).status, 403)
})

t.test("a token cannot change a security object, even an admin's of the database", async (t) => {
  const { call, make } = await setUp(t)
  const { token } = await make('m:m', { name: 'phone' })
  const json = { admins: { names: ['m'] }, members: { names: ['m'] } }
  await call('PUT', '/db', { auth: 's:s' })
  await call('PUT', '/db/_security', { json, auth: 's:s' })
  const others = { ...json, members: { names: ['m', 'x'] } }
  const refused = await call('PUT', '/db/_security', { json: others, auth: `m:${token}` })
  const reason = 'A device token cannot change _security; log in with the password of the account.'
  t.strictSame([refused.status, refused.json], [403, { error: 'forbidden', reason }])
  t.strictSame((await call('GET', '/db/_security', { auth: `m:${token}` })).json, json)
  t.equal((await call('PUT', '/db/_security', { json: others, auth: 'm:m' })).status, 200)
})

t.test('a token cannot manage tokens or accounts', async (t) => {
  const { call, make } = await setUp(t)
  const { id, token } = await make('m:m', { name: 'phone' })
  const other = await make('m:m', { name: 'desk' })
  const admin = await make('s:s', { name: 'tool', admin: true })
  for (const auth of [`m:${token}`, `s:${admin.token}`]) {
    const reason = 'A device token cannot manage tokens; log in with the password of the account.'
    const calls = [
      await call('GET', '/_settee/tokens', { auth }),
      await call('POST', '/_settee/tokens', { json: { name: 'x' }, auth }),
      await call('DELETE', `/_settee/tokens/${other.id}`, { auth }),
      await call('DELETE', '/_settee/tokens/none', { auth }),
    ]
    for (const answer of calls) {
      t.strictSame([answer.status, answer.json], [403, { error: 'forbidden', reason }])
    }
  }
  await call('PUT', '/_config/couchdb/users_db_security_editable', { body: '"true"', auth: 's:s' })
  await call('PUT', '/_users', { auth: 's:s' })
  await call('PUT', '/_users/_security', { json: { members: { names: [] } }, auth: 's:s' })
  const path = '/_users/org.couchdb.user:m'
  for (const [method, ask] of [
    ['GET', {}],
    ['PUT', { json: { name: 'm', type: 'user', roles: [] } }],
  ] as const) {
    const answer = await call(method, path, { ...ask, auth: `m:${token}` })
    t.match([answer.status, answer.json], [403, { reason: 'A device token gives no access to _users.' }])
    t.not((await call(method, path, { ...ask, auth: 'm:m' })).status, 403)
    t.not((await call(method, path, { ...ask, auth: `s:${admin.token}` })).status, 403)
  }
  t.equal(
    (await call('DELETE', `/_settee/tokens/${id}`, { auth: `m:${token}` })).status,
    200,
    'a token may revoke itself',
  )
  t.equal((await call('GET', '/', { auth: `m:${token}` })).status, 401)
})

t.test('a server admin sees, creates and revokes tokens of others', async (t) => {
  const { call, make } = await setUp(t)
  const own = await make('s:s', { name: 'desk' })
  const { id, token } = await make('s:s', { name: 'phone' }, '?account=m')
  const listed = async (auth: string, query = '') => {
    const { json } = await call('GET', `/_settee/tokens${query}`, { auth })
    return (json as { tokens: Shown[] }).tokens.map((each) => each.id)
  }
  t.strictSame(await listed('s:s'), [own.id])
  t.strictSame(await listed('s:s', '?account=m'), [id])
  t.strictSame(await listed('m:m'), [id])
  t.strictSame(await listed('m:m', '?account=m'), [id])
  t.equal((await call('GET', '/', { auth: `m:${token}` })).status, 200)

  const cases = [
    await call('GET', '/_settee/tokens?account=s', { auth: 'm:m' }),
    await call('POST', '/_settee/tokens?account=s', { json: { name: 'x' }, auth: 'm:m' }),
  ]
  for (const answer of cases) {
    t.match([answer.status, answer.json], [403, { reason: 'Only server admins may name another account.' }])
  }
  const strange = await call('DELETE', `/_settee/tokens/${own.id}`, { auth: 'm:m' })
  t.match([strange.status, strange.json], [404, { reason: 'The token does not exist.' }])
  t.equal((await call('DELETE', `/_settee/tokens/${id}`, { auth: 's:s' })).status, 200)
  t.strictSame(await listed('m:m'), [])
})

t.test('a server admin lists the tokens of all accounts in pages', async (t) => {
  const { call, make } = await setUp(t)
  const made: Shown[] = []
  for (const [account, name] of [
    ['m', 'phone'],
    ['o', 'phone'],
    ['m', 'desk'],
  ] as const)
    made.push(await make('s:s', { name }, `?account=${account}`))
  const ids = made.map(({ id }) => id).sort()
  const page = async (query: string) => {
    const { json } = await call('GET', `/_settee/tokens?all=true&${query}`, { auth: 's:s' })
    const { tokens, next } = json as { tokens: Shown[]; next: string | null }
    return { ids: tokens.map(({ id }) => id), next }
  }
  t.strictSame(await page(''), { ids, next: null })
  t.strictSame(await page('limit=2'), { ids: ids.slice(0, 2), next: ids[1] })
  t.strictSame(await page(`limit=2&after=${ids[1]}`), { ids: ids.slice(2), next: null })
  const own = async (query: string) => {
    const { json } = await call('GET', `/_settee/tokens?${query}`, { auth: 'm:m' })
    const { tokens, next } = json as { tokens: Shown[]; next: string | null }
    return { names: tokens.map(({ name }) => name), next }
  }
  t.strictSame(await own(''), { names: ['phone', 'desk'], next: null })
  t.strictSame(await own('limit=1'), { names: ['phone'], next: made[0]?.id })
  t.strictSame(await own(`after=${made[0]?.id}`), { names: ['desk'], next: null }, "also of one's own")
  const refused = await call('GET', '/_settee/tokens?all=true', { auth: 'm:m' })
  t.match([refused.status, refused.json], [403, { reason: /^Only server admins/ }])
  t.equal((await call('GET', '/_settee/tokens?all=true&account=m', { auth: 's:s' })).status, 400)
  t.equal((await call('GET', '/_settee/tokens?all=perhaps', { auth: 's:s' })).status, 400)
})

t.test('a token shows how far its device has read', async (t) => {
  const { call, make, app } = await setUp(t)
  const { id, token } = await make('m:m', { name: 'phone' })
  const auth = `m:${token}`
  const positions = async (query = '', caller = 'm:m') => {
    const { json } = await call('GET', `/_settee/tokens?positions=true${query}`, { auth: caller })
    const { tokens } = json as { tokens: { positions: { database: string; behind: number }[] }[] }
    return tokens.flatMap((each) => each.positions.map(({ database, behind }) => [database, behind]))
  }
  const write = (db: string, name: string) => call('PUT', `/${db}/${name}`, { body: '{}', auth: 's:s' })
  const security = { members: { names: ['m'] } }
  for (const db of ['db', 'more']) {
    await call('PUT', `/${db}`, { auth: 's:s' })
    await call('PUT', `/${db}/_security`, { json: security, auth: 's:s' })
    for (const name of ['a', 'b', 'c']) await write(db, name)
  }
  t.strictSame(await positions(), [])
  // A list says nothing of what the device lacks if it starts now, runs backwards or has listed documents only.
  for (const query of ['since=now', 'descending=true', 'filter=_doc_ids&doc_ids=["a"]'])
    t.equal((await call('GET', `/db/_changes?${query}`, { auth })).status, 200)
  t.strictSame(await positions(), [])
  await call('GET', '/db/_changes?limit=1', { auth })
  t.strictSame(await positions(), [['db', 2]])
  const { last_seq } = (await call('GET', '/db/_changes', { auth })).json as { last_seq: string }
  t.strictSame(await positions(), [['db', 0]])
  await write('db', 'd')
  t.strictSame(await positions(), [['db', 1]])
  await call('GET', `/db/_changes?feed=longpoll&since=${last_seq}`, { auth })
  await call('GET', '/more/_changes?feed=continuous&timeout=1', { auth })
  t.strictSame(await positions(), [
    ['more', 0],
    ['db', 0],
  ])
  t.strictSame(await positions('&all=true', 's:s'), await positions())
  await call('PUT', '/db/_security', { json: { members: { names: ['o'] } }, auth: 's:s' })
  t.strictSame(
    await positions(),
    [['more', 0]],
    'positions of databases that the caller may not read are left out',
  )
  await call('DELETE', '/more', { auth: 's:s' })
  t.strictSame(
    await positions('&account=m', 's:s'),
    [['db', 0]],
    'positions of deleted databases are left out',
  )
  t.notHas((await call('GET', '/_settee/tokens', { auth: 'm:m' })).json, { tokens: [{ positions: [] }] })
  await call('DELETE', `/_settee/tokens/${id}`, { auth: 'm:m' })
  t.equal(await app.services.tokens.get(id), null)
})

t.test("an admin's token is an admin's only when that is asked for", async (t) => {
  const { call, make } = await setUp(t)
  const plain = await make('s:s', { name: 'phone' })
  const admin = await make('s:s', { name: 'tool', admin: true })
  t.equal((await call('GET', '/_all_dbs', { auth: `s:${plain.token}` })).status, 401)
  t.equal((await call('GET', '/_all_dbs', { auth: `s:${admin.token}` })).status, 200)
  for (const [auth, query] of [
    ['m:m', ''],
    ['s:s', '?account=m'],
  ] as const) {
    const refused = await call('POST', `/_settee/tokens${query}`, { json: { name: 'x', admin: true }, auth })
    t.equal(refused.status, 403, auth)
  }
  await call('PUT', '/_config/admins/other', { body: '"x"', auth: 's:s' })
  t.equal((await call('DELETE', '/_config/admins/s', { auth: 's:s' })).status, 200)
  t.equal(
    (await call('GET', '/_all_dbs', { auth: `s:${admin.token}` })).status,
    401,
    "an admin's token is valid only while the account is an admin",
  )
})

t.test('invalid requests', async (t) => {
  const { call, make } = await setUp(t, { 'settee/tokens_per_account': '1', 'settee/token_name_length': '5' })
  await make('m:m', { name: 'phone' })
  const cases: [json: unknown, auth: string, status: number, reason: string | RegExp][] = [
    [[], 'o:o', 400, 'Request body must be a JSON object'],
    [{}, 'o:o', 400, '`name` member must exist.'],
    [{ name: 1 }, 'o:o', 400, '`name` member must be a string.'],
    [{ name: 'x', admin: 1 }, 'o:o', 400, '`admin` member must be true or false.'],
    [{ name: ' ' }, 'o:o', 400, /must not be empty/],
    [{ name: 'phones' }, 'o:o', 400, /at most 5 characters/],
    [{ name: 'phone' }, 'm:m', 409, 'The account already has a token of this name.'],
    [{ name: 'desk' }, 'm:m', 403, /the maximum of 1 tokens/],
  ]
  for (const [json, auth, status, reason] of cases) {
    const answer = await call('POST', '/_settee/tokens', { json, auth })
    t.match([answer.status, answer.json], [status, { reason }], JSON.stringify(json))
  }
  t.equal((await call('POST', '/_settee/tokens', { body: '{"name":"x"}', auth: 'o:o' })).status, 415)
  t.equal((await call('GET', '/_settee/tokens')).status, 401)
  t.equal((await call('POST', '/_settee/tokens', { json: { name: 'x' } })).status, 401)
})

t.test('without an admin, a token needs an account', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  t.strictSame((await call('GET', '/_settee/tokens')).json, { tokens: [], next: null })
  const nobody = await call('POST', '/_settee/tokens', { json: { name: 'x' } })
  t.match([nobody.status, nobody.json], [400, { reason: /you are not logged in/ }])
  t.equal((await call('POST', '/_settee/tokens?account=m', { json: { name: 'x' } })).status, 201)
})

t.test('a wrong token costs no hash, and is not tried as a password', async (t) => {
  const { app, call } = await setUp(t)
  app.services.credentials.check = async () => {
    throw new Error('a password was looked at')
  }
  for (const name of ['s', 'm', '']) {
    t.equal((await call('GET', '/', { auth: `${name}:stt_${'A'.repeat(43)}` })).status, 401)
  }
})

t.test('no log line has a secret', async (t) => {
  const { call, make, lines } = await setUp(t)
  const { id, token } = await make('m:m', { name: 'phone' })
  await call('GET', '/', { auth: `m:${token}` })
  await call('DELETE', `/_settee/tokens/${id}`, { auth: 'm:m' })
  await call('GET', '/', { auth: `m:${token}` })
  t.ok(lines.length > 3)
  t.notMatch(lines.join(''), token.slice(4))
  t.notMatch(lines.join(''), Buffer.from(`m:${token}`).toString('base64').slice(4, -4))
})
