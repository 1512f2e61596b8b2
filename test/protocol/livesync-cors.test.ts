/** The whole of LiveSync's check, the headers of CORS for each of Obsidian's origins included; clients.md 1.2, R12. */
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { checkConfiguration, checkOrigins, red, SETTINGS, type Target, write } from './livesync-check.ts'

t.test('each origin of Obsidian is let in, for the admin and for an account', async (t) => {
  const { url } = await startMemoryServer(t)
  const admin: Target = { url, auth: 'anna:long-secret' }
  const member: Target = { url, auth: 'bert:bert' }
  t.equal(await write(admin, 'admins/anna', 'long-secret'), 200)
  for (const target of [admin, member]) t.strictSame(red(await checkOrigins(target)), [], 'from the start')
  for (const [path, value] of SETTINGS) t.equal(await write(admin, path, value), 200)
  for (const target of [admin, member])
    t.strictSame(red(await checkOrigins(target)), [], 'and after the setup')
})

const ANNA = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'long-secret' }
const BERT = { _id: 'org.couchdb.user:bert', name: 'bert', password: 'bert', type: 'user', roles: [] }

/** Sets a server up as the scripts do, with an account that is not the admin. */
async function setUp(t: Test, server: TestServer): Promise<readonly Target[]> {
  const [admin, member] = ['anna:long-secret', 'bert:bert'].map((auth) => ({ url: server.url, auth }))
  t.equal(await write(admin as Target, 'chttpd_auth/iterations', '10'), 200)
  for (const [path, value] of SETTINGS) t.equal(await write(admin as Target, path, value), 200, path)
  const asAnna = { auth: 'anna:long-secret' }
  t.match(await server.request('POST', '/_users', { ...asAnna, body: BERT }), { status: 201 })
  return [admin as Target, member as Target]
}

async function isGreen(t: Test, targets: readonly Target[]): Promise<void> {
  for (const target of targets) {
    t.strictSame(red((await checkConfiguration(target)).rows), [], target.auth)
    t.strictSame(red(await checkOrigins(target)), [], target.auth)
    for (const [path, value] of SETTINGS) t.equal(await write(target, path, value), 200, path)
  }
}

t.test('the check is green for the admin and for a member of a database', async (t) => {
  const server = await startTestServer(t, { env: ANNA })
  const targets = await setUp(t, server)
  const asAnna = { auth: 'anna:long-secret' }
  t.match(await server.request('PUT', '/notes', asAnna), { status: 201 })
  const security = { admins: { names: [] }, members: { names: ['bert'] } }
  t.match(await server.request('PUT', '/notes/_security', { ...asAnna, body: security }), { status: 200 })
  await isGreen(t, targets)
  t.match(await server.request('GET', '/notes', { auth: 'bert:bert' }), { status: 200 })
})

t.test('and in hosted mode for a tenant, who makes his own database', async (t) => {
  const server = await startTestServer(t, { hosted: true, env: ANNA })
  const targets = await setUp(t, server)
  t.match(await server.request('PUT', '/notes', { auth: 'bert:bert' }), { status: 201 })
  await isGreen(t, targets)
  const own = { auth: 'anna:long-secret', body: { quota: { document_size: 1_000_000 } } }
  t.match(await server.request('PUT', '/_settee/accounts/bert', own), { status: 200 })
  const { rows } = await checkConfiguration(targets[1] as Target)
  t.strictSame(red(rows), ['couchdb/max_document_size: 1000000'], 'his own limit is told as it is')
})
