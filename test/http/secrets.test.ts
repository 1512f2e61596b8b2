/** Who gets what is worth a password, and which hashes an account may bring. */
import { pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'

const ADMIN = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

t.test('what a standby copies, and a move, are for a name and a password only', async (t) => {
  const server = await startTestServer(t, { env })
  const login = await server.request('POST', '/_session', { body: { name: 'adm', password: 'pass' } })
  const cookie = String(login.headers['set-cookie']).split(';')[0] as string
  const made = await server.request('POST', '/_settee/tokens', {
    auth: ADMIN,
    body: { name: 'x', admin: true },
  })
  const callers = [
    { headers: { cookie } },
    { auth: `adm:${made.json.token}` },
    { headers: { cookie, 'X-Requested-With': 'XMLHttpRequest' } },
  ]
  const calls = [
    ['GET', '/_settee/standby/settings', {}, 200],
    ['GET', '/_settee/standby/tokens', {}, 200],
    ['POST', '/_settee/moves', { body: { source: 'nowhere' } }, 400],
  ] as const
  for (const [method, path, more, status] of calls) {
    t.equal((await server.request(method, path, { auth: ADMIN, ...more })).status, status, path)
    for (const caller of callers) {
      const refused = await server.request(method, path, { ...caller, ...more })
      t.match(refused, { status: 403, json: { error: 'forbidden', reason: /name and password only/ } }, path)
    }
  }
})

t.test('a user document may not name more rounds than the server computes', async (t) => {
  const server = await startTestServer(t, { env })
  const user = (iterations: number, salt = 'abc') => ({
    ...{ _id: 'org.couchdb.user:eve', name: 'eve', type: 'user', roles: [], iterations, salt },
    ...{ password_scheme: 'pbkdf2', pbkdf2_prf: 'sha256' },
    derived_key: pbkdf2Sync('secret', salt, Math.min(iterations, 1000), 32, 'sha256').toString('hex'),
  })
  const put = (doc: object) =>
    server.request('PUT', '/_users/org.couchdb.user:eve', { auth: ADMIN, body: doc })
  t.match(await put(user(10_000_000)), { status: 403, json: { reason: /iterations may be at most 2000000/ } })
  t.match(await put(user(1e300)), { status: 403 })
  t.match(await put(user(1000, 'x'.repeat(1025))), { status: 403, json: { reason: /salt/ } })
  t.match(await put(user(1000)), { status: 201 })
  t.equal((await server.request('GET', '/_session', { auth: 'eve:secret' })).status, 200)
  const replica = { ...user(10_000_000), _rev: '9-00000000000000000000000000000009' }
  const docs = [{ ...replica, _revisions: undefined }]
  const stored = await server.request('POST', '/_users/_bulk_docs', {
    auth: ADMIN,
    body: { new_edits: false, docs },
  })
  t.match([stored.status, stored.json], [201, []], 'another server has accepted it')
  await server.request('DELETE', `/_users/org.couchdb.user:eve?rev=${(await revOf()) ?? ''}`, { auth: ADMIN })
  t.equal(
    (await server.request('GET', '/_session', { auth: 'eve:secret' })).status,
    401,
    'it opens no account',
  )

  async function revOf(): Promise<string | undefined> {
    const { json } = await server.request('GET', '/_users/org.couchdb.user:eve?conflicts=true', {
      auth: ADMIN,
    })
    return json._conflicts?.[0]
  }
})
