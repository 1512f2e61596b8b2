/** Vaults over HTTP, for server admins and for accounts: docs/settee-api.md. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decryptWithEphemeralSalt } from 'octagonal-wheels/encryption/hkdf'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { device, remote } from '../../protocol/devices.ts'
import { checkConfiguration, red } from '../../protocol/livesync-check.ts'

const ROOT = 'root:secret'

async function start(t: Test, mode: 'single' | 'hosted' = 'single') {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n[admins]\nroot = secret\n')
  const logFile = join(dataDir, 'log')
  const server = await startTestServer(t, { dataDir, hosted: mode === 'hosted', logLevel: 'debug', logFile })
  const account = async (name: string) => {
    const body = { name, type: 'user', roles: [], password: name }
    await server.request('PUT', `/_users/org.couchdb.user:${name}`, { auth: ROOT, body })
  }
  for (const name of ['anna', 'bob']) await account(name)
  const add = (body: object, auth = ROOT) => server.request('POST', '/_settee/vaults', { auth, body })
  return { ...server, add, logFile }
}

t.test('an admin makes a vault, and a device syncs with its address', async (t) => {
  const { add, request, url } = await start(t)
  const made = await add({ vault: 'notes', for: 'inkdrop', mobile_filter: true, host: url })
  t.equal(made.status, 201, made.text)
  t.equal(made.headers['cache-control'], 'no-store')
  const done = { account: 'made', database: 'made', security: 'made', filter: 'made', token: 'made' }
  t.match(made.json, { vault: 'notes', for: 'inkdrop', account: 'notes', device: 'inkdrop', done })
  t.match(made.json.notes, [/only on this machine/])
  const phone = await device(t)
  await phone.put({ _id: 'note:1' })
  t.match(await phone.sync(remote(made.json.address).db), { push: { docs_written: 1, ok: true } })
  const again = await add({ vault: 'notes', for: 'inkdrop' })
  t.match([again.status, again.json], [200, { done: { token: 'there' }, address: null }])
  const renewed = await add({ vault: 'notes', for: 'inkdrop', renew: true })
  t.match([renewed.status, renewed.json.done.token], [201, 'changed'])
  const second = await add({ vault: 'notes', for: 'pouchdb', account: 'anna', device: 'desk' })
  t.match(second.json.done, { account: 'there', database: 'there', security: 'changed', token: 'made' })
  const { json } = await request('GET', '/notes/_security', { auth: ROOT })
  t.strictSame(json.members.names, ['notes', 'anna'])
})

t.test('a Setup URI of LiveSync opens with its passphrase, and the server keeps neither', async (t) => {
  const { add, url, logFile, dataDir } = await start(t)
  const { json, status } = await add({ vault: 'vault', for: 'livesync', device: 'phone' })
  t.equal(status, 201)
  const settings = async (uri: string, passphrase: string) =>
    JSON.parse(
      await decryptWithEphemeralSalt(decodeURIComponent(uri.replace(/^.*settings=/, '')), passphrase),
    )
  t.match(await settings(json.setup_uri, json.setup_passphrase), {
    couchDB_URI: url,
    couchDB_DBNAME: 'vault',
    passphrase: json.encryption_passphrase,
  })
  const password = /:(stt_[^@]+)@/.exec(json.address)?.[1] ?? ''
  const check = await checkConfiguration({ url, auth: `vault:${password}` })
  t.strictSame(red(check.rows), [])
  const unknown = await add({ vault: 'vault', for: 'livesync', device: 'desk' })
  t.match([unknown.status, unknown.json.reason], [400, /as `passphrase`/])
  const given = await add({ vault: 'vault', for: 'livesync', device: 'desk', passphrase: 'ours' })
  t.equal(given.json.encryption_passphrase, null)
  t.match(await settings(given.json.setup_uri, given.json.setup_passphrase), { passphrase: 'ours' })
  const kept = [await readFile(logFile, 'utf8'), await readFile(join(dataDir, 'server.sqlite'), 'latin1')]
  const secrets = [json.setup_passphrase, json.encryption_passphrase, password, given.json.setup_passphrase]
  for (const secret of secrets) t.notOk(kept.some((text) => text.includes(secret)))
})

t.test('an account adds devices to the databases that it may use, and makes none', async (t) => {
  const { add, request } = await start(t)
  await add({ vault: 'notes', for: 'pouchdb', account: 'anna' })
  const own = await add({ vault: 'notes', for: 'pouchdb', device: 'phone' }, 'anna:anna')
  t.equal(own.status, 201, own.text)
  t.match(own.json, { account: 'anna', done: { database: 'there', security: 'there', token: 'made' } })
  const { db } = remote(own.json.address)
  t.match(await db.info(), { db_name: 'notes' })
  const filter = await add({ vault: 'notes', for: 'inkdrop', mobile_filter: true }, 'anna:anna')
  t.match(filter.json.done, { filter: 'made' }, 'as an admin of the database')
  const refused: [body: object, auth: string, status: number, reason: RegExp][] = [
    [{ vault: 'notes', for: 'pouchdb' }, 'bob:bob', 403, /no access to the database notes/],
    [{ vault: 'more', for: 'pouchdb' }, 'bob:bob', 403, /only a server admin can create/],
    [{ vault: 'notes', for: 'pouchdb', account: 'anna' }, 'bob:bob', 403, /another account/],
    [{ vault: 'notes', for: 'x' }, 'bob:bob', 400, /one of: inkdrop, livesync, pouchdb/],
    [{ vault: 'Notes', for: 'pouchdb' }, ROOT, 400, /lowercase letter/],
    [{ vault: 'a/b', for: 'livesync' }, ROOT, 400, /slash/],
    [{ vault: 'b', for: 'pouchdb', host: 'https://u:p@h:1' }, ROOT, 400, /user name or password/],
    [{ vault: 'b', for: 'pouchdb', host: 'example.com' }, ROOT, 400, /http/],
    [{ vault: 'b', for: 'pouchdb', account: 'a:b' }, ROOT, 400, /colon/],
    [{ vault: 'b', for: 'pouchdb', account: 'a\tb' }, ROOT, 400, /control/],
    [{ vault: 'b', for: 'pouchdb', device: ' ' }, ROOT, 400, /must not be empty/],
    [{ vault: 'b', for: 'livesync', passphrase: ' ' }, ROOT, 400, /must not be empty/],
    [{ vault: 'b', for: 'pouchdb', device: 1 }, ROOT, 400, /`device` must be a string/],
    [{ vault: 'b' }, ROOT, 400, /`vault`, its name, and `for`/],
  ]
  for (const [body, auth, status, reason] of refused) {
    const answer = await add(body, auth)
    t.match([answer.status, answer.json.reason], [status, reason], JSON.stringify(body))
  }
  const token = decodeURIComponent(/:\/\/(.*)@/.exec(own.json.address)?.[1] ?? '')
  t.equal(
    (await add({ vault: 'notes', for: 'pouchdb', device: 'x' }, token)).status,
    403,
    'the caller needs more than a device token',
  )
  t.strictSame((await request('GET', '/_all_dbs', { auth: ROOT })).json, ['_users', 'notes'])
})

t.test('in hosted mode an account makes its own vault within its quota', async (t) => {
  const { add, request } = await start(t, 'hosted')
  const quota = { databases: 1 }
  await request('PUT', '/_settee/accounts/anna', { auth: ROOT, body: { quota } })
  const made = await add({ vault: 'notes', for: 'livesync', device: 'phone' }, 'anna:anna')
  t.match([made.status, made.json.done], [201, { database: 'made', security: 'made', token: 'made' }])
  t.type(made.json.encryption_passphrase, 'string')
  t.equal((await request('GET', '/_settee/owners/notes', { auth: ROOT })).json.owner, 'anna')
  const refused: [body: object, auth: string, status: number][] = [
    [{ vault: 'more', for: 'pouchdb', device: 'desk' }, 'anna:anna', 403],
    [{ vault: 'notes', for: 'inkdrop', mobile_filter: true }, 'anna:anna', 403],
    [{ vault: 'notes', for: 'pouchdb' }, 'bob:bob', 412],
  ]
  for (const [body, auth, status] of refused)
    t.equal((await add(body, auth)).status, status, JSON.stringify(body))
  const { json } = await request('GET', '/_settee/tokens?all=true', { auth: ROOT })
  t.equal(json.tokens.length, 1, 'a refused call leaves no token')
})
