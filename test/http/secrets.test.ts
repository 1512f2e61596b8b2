/** Who gets what is worth a password, and which hashes an account may bring. */
import { pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'

const ADMIN = 'adm:pass'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

t.test('the secrets that a standby copies are shown for a name and a password only', async (t) => {
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
  for (const path of ['/_settee/standby/settings', '/_settee/standby/tokens']) {
    t.equal((await server.request('GET', path, { auth: ADMIN })).status, 200, path)
    for (const caller of callers) {
      const { status, json } = await server.request('GET', path, caller)
      t.match([status, json], [403, { error: 'forbidden', reason: /name and password only/ }])
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
