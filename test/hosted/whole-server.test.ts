/** Hosted mode as `settee serve --hosted` has it: accounts of `_users`, sessions, device tokens, couch_peruser. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { connect } from '../http/client.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:secret' }
const ROOT = { auth: 'root:root' }

async function startWithAnna(t: Test, more = '') {
  const dataDir = await temporaryFolder(t)
  const ini = `[settee]\nmode = hosted\n[chttpd_auth]\niterations = 10\n[admins]\nroot = root\n${more}`
  await writeFile(join(dataDir, 'local.ini'), ini)
  const server = await startTestServer(t, { dataDir })
  const call = connect(t, server)
  const json = { name: 'anna', password: 'secret' }
  t.equal((await call('POST', '/_settee/accounts', { ...ROOT, json })).status, 201)
  return { ...server, call }
}

t.test('however an account comes in, a suspension shuts it out', async (t) => {
  const { call } = await startWithAnna(t)
  const user = (await call('GET', '/_users/org.couchdb.user:anna', ROOT)).json as Record<string, unknown>
  t.notOk('password' in user, 'the password is hashed')
  t.equal((await call('PUT', '/notes', ANNA)).status, 201)
  const login = await call('POST', '/_session', { json: { name: 'anna', password: 'secret' } })
  t.equal(login.status, 200)
  const [cookie = ''] = String(login.headers['set-cookie']).split(';')
  const made = await call('POST', '/_settee/tokens', { ...ANNA, json: { name: 'phone' } })
  const token = `anna:${(made.json as { token: string }).token}`
  const ways = [ANNA, { headers: { cookie } }, { auth: token }]
  for (const way of ways) t.equal((await call('GET', '/notes', way)).status, 200)
  const suspend = (suspended: boolean) =>
    call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { suspended } })
  await suspend(true)
  for (const way of ways) {
    t.match(await call('GET', '/notes', way), { status: 403, json: { reason: /suspended/ } })
  }
  const refused = await call('POST', '/_session', { json: { name: 'anna', password: 'secret' } })
  t.equal(refused.status, 403)
  t.equal(refused.headers['set-cookie'], undefined)
  await suspend(false)
  for (const way of ways) t.equal((await call('GET', '/notes', way)).status, 200)

  t.match((await call('DELETE', '/_settee/accounts/anna', ROOT)).json, {
    deleted: { databases: ['notes'], user: true, tokens: 1 },
  })
  for (const way of ways) t.ok([401, 404].includes((await call('GET', '/notes', way)).status))
  t.same((await call('GET', '/_all_dbs', ROOT)).json, ['_users'])
})

t.test("what couch_peruser makes is the account's, and goes with it", async (t) => {
  const { call } = await startWithAnna(t, '[couch_peruser]\nenable = true\n[quota]\ndatabases = 0\n')
  const name = `userdb-${Buffer.from('anna').toString('hex')}`
  // The account can read the database a moment before it owns it.
  await until('it is owned', async () =>
    ((await call('GET', '/_all_dbs', ANNA)).json as string[]).includes(name),
  )
  t.same((await call('GET', '/_all_dbs', ANNA)).json, [name])
  t.equal((await call('GET', `/${name}`, ANNA)).status, 200)
  t.equal((await call('PUT', '/another', ANNA)).status, 403, 'though it may have none')
  t.match((await call('DELETE', '/_settee/accounts/anna', ROOT)).json, { deleted: { databases: [name] } })
  t.equal((await call('GET', `/${name}`, ROOT)).status, 404)
})

t.test('a database of another account is left alone by couch_peruser', async (t) => {
  const { call } = await startWithAnna(t)
  const set = (key: string, json: string) =>
    call('PUT', `/_node/_local/_config/couch_peruser/${key}`, { ...ROOT, json })
  const [victims, own] = ['bert', 'cleo'].map((name) => `userdb-${Buffer.from(name).toString('hex')}`)
  t.equal((await call('PUT', `/${victims}`, ANNA)).status, 201, 'couch_peruser is off')
  const before = (await call('GET', `/${victims}/_security`, ANNA)).json
  await set('delete_dbs', 'true')
  await set('enable', 'true')
  const makeBoth = async () => {
    for (const name of ['bert', 'cleo']) {
      const json = { name, password: 'secret' }
      t.equal((await call('POST', '/_settee/accounts', { ...ROOT, json })).status, 201)
    }
    // Accounts are taken in their order.
    await until('the second account has its database', async () => {
      return (await call('GET', `/${own}`, { auth: 'cleo:secret' })).status === 200
    })
  }
  await makeBoth()
  t.same((await call('GET', `/${victims}/_security`, ANNA)).json, before)
  t.equal((await call('GET', `/${victims}`, { auth: 'bert:secret' })).status, 404, 'as any other’s')
  for (const name of ['bert', 'cleo']) await call('DELETE', `/_settee/accounts/${name}`, ROOT)
  await makeBoth()
  t.equal((await call('GET', `/${victims}`, ANNA)).status, 200, 'the account’s end does not end it')
})

// A restore in hosted mode: who owns what stays, and what it takes is counted anew.

t.test('the owner, his quota and his usage', async (t) => {
  const { url, dataDir, hosted } = await startHostedServer(t)
  const { databases, owners, usage } = hosted
  await databases.create('notes', 'anna')
  const put = async (id: string, auth = 'anna:anna') => {
    const authorization = `Basic ${Buffer.from(auth).toString('base64')}`
    const { statusCode, body } = await request(`${url}/notes/${id}`, {
      method: 'PUT',
      headers: { authorization, 'content-type': 'application/json' },
      body: '{}',
      reset: true,
    })
    await body.dump()
    return statusCode
  }
  t.equal(await put('a'), 201)
  const copy = join(await temporaryFolder(t), 'notes.sqlite')
  const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'), { readonly: true })
  file.prepare('VACUUM INTO ?').run(copy)
  file.close()
  for (const id of ['b', 'c', 'd']) t.equal(await put(id), 201)
  await usage.measureChanged()
  t.equal((await usage.of('notes')).documents, 4)

  await (await databases.prepareRestore('notes', copy)).finish()
  t.equal(await owners.ownerOf('notes'), 'anna')
  await usage.measureChanged()
  t.equal((await usage.of('notes')).documents, 1, 'what it takes now')
  t.equal((await usage.sumOf('anna')).documents, 1)
  t.equal(await put('e'), 201)
  t.equal(await put('f', 'bob:bob'), 404)
  await usage.measureChanged()
  t.equal((await usage.of('notes')).documents, 2, 'and from now on')

  await (await databases.prepareRestore('other', copy)).finish()
  t.equal(await owners.ownerOf('other'), undefined, 'a new one is nobody’s')
  await databases.treatAsRestored('notes')
  t.equal(await owners.ownerOf('notes'), 'anna')
  t.equal(await put('g'), 201)
  await usage.measureChanged()
  t.equal((await usage.of('notes')).documents, 3)
})
