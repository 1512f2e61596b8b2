/** An account that is deleted and made again, before anybody could notice that it was gone. */
import t from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

const ADMIN = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }
const _id = 'org.couchdb.user:eve'
const account = (password: string) => ({ _id, name: 'eve', type: 'user', roles: [], password })

/** All in one write. @returns the last revision */
async function write(server: TestServer, docs: readonly object[], rest: object = {}): Promise<string> {
  const { status, json } = await server.request('POST', '/_users/_bulk_docs', {
    auth: ADMIN,
    body: { docs, ...rest },
  })
  if (status !== 201 || json.some((row: object) => 'error' in row)) throw new Error(JSON.stringify(json))
  return json.at(-1)?.rev
}

async function makeToken(server: TestServer, password: string, name: string): Promise<string> {
  const { json } = await server.request('POST', '/_settee/tokens', {
    auth: `eve:${password}`,
    body: { name },
  })
  return json.token
}

async function statusOf(server: TestServer, token: string): Promise<number> {
  return (await server.request('GET', '/_session', { auth: `eve:${token}` })).status
}

async function namesOf(server: TestServer): Promise<string[]> {
  const { json } = await server.request('GET', '/_settee/tokens?account=eve', { auth: ADMIN })
  return json.tokens.map(({ name }: { name: string }) => name)
}

t.test('the tokens and sessions of the earlier account do not open the later one', async (t) => {
  const server = await startTestServer(t, { env })
  const rev = await write(server, [account('first')])
  const token = await makeToken(server, 'first', 'phone')
  const login = await server.request('POST', '/_session', { body: { name: 'eve', password: 'first' } })
  const cookie = String(login.headers['set-cookie']).split(';')[0] as string
  t.equal(await statusOf(server, token), 200)
  const later = await write(server, [{ _id, _rev: rev, _deleted: true }, account('second')])
  t.match(later, /^3-/, 'in one write')
  t.equal(await statusOf(server, token), 401, 'the token')
  const session = await server.request('GET', '/_session', { headers: { cookie } })
  t.equal(session.json.userCtx.name, null, 'the session')
  t.equal((await server.request('GET', '/_session', { auth: 'eve:first' })).status, 401, 'the password')
  // They are refused at once, and removed a moment later.
  await until('they are not listed', async () => (await namesOf(server)).length === 0)

  const own = await makeToken(server, 'second', 'phone')
  t.equal(await statusOf(server, own), 200, 'the later account has tokens of its own')
  await write(server, [{ ...account('third'), _rev: later }])
  t.equal(await statusOf(server, own), 200, 'tokens stay valid after a new password')
  t.strictSame(await namesOf(server), ['phone'])
})

t.test('an account that was changed often keeps its tokens', async (t) => {
  const server = await startTestServer(t, { env })
  let _rev = await write(server, [account('0')])
  const token = await makeToken(server, '0', 'phone')
  for (let n = 1; n < 6; n++) _rev = await write(server, [{ ...account(String(n)), _rev }])
  t.equal(await statusOf(server, token), 200)
})

t.test('the tokens of the earlier account open nothing after a restart either', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await startTestServer(t, { env, dataDir })
  const rev = await write(first, [account('first')])
  const token = await makeToken(first, 'first', 'phone')
  await write(first, [{ _id, _rev: rev, _deleted: true }, account('second')])
  await first.close()
  const again = await startTestServer(t, { env, dataDir })
  t.equal(await statusOf(again, token), 401)
})
