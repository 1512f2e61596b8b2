/**
 * Vaults on a server: a refused command leaves nothing behind, and an account has the rights of its app, but no others.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openConfig } from '../../../src/config/config.ts'
import type { ConfigFlags } from '../../../src/config/sources.ts'
import type { ControlCommands } from '../../../src/control/control-commands.ts'
import { reachServer } from '../../../src/control/control-socket.ts'
import { databaseRole } from '../../../src/documents/security.ts'
import { liveSyncChanges, MOBILE_FILTER } from '../../../src/vaults/livesync.ts'
import { ownUrl, type VaultOrder } from '../../../src/vaults/vault-control.ts'
import { withAccess, withMobileFilter } from '../../../src/vaults/vaults.ts'
import { type CertificateOptions, certificateFiles } from '../../helpers/certificates.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { checkConfiguration, red, SETTINGS } from '../../protocol/livesync-check.ts'

const ADMIN = 'anna:secret'

/** A server with the admin `anna`, and its controls. */
async function start(t: Test, options: { readonly hosted?: boolean } = {}) {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n\n[admins]\nanna = secret\n')
  const server = await startTestServer(t, { dataDir, ...options })
  const controls = (await reachServer(dataDir)) as ControlCommands
  const status = async (method: string, path: string, auth = ADMIN, body?: unknown) =>
    (await server.request(method, path, { auth, ...(body !== undefined && { body }) })).status
  return { ...server, controls, status }
}

function order(database: string, more: Partial<VaultOrder> = {}): VaultOrder {
  const plain = { device: 'phone', password: null, renew: false, mobileFilter: false, liveSync: false }
  return { database, account: database, ...plain, ...more }
}

t.test('a refused vault leaves nothing behind', async (t) => {
  const { controls, status } = await start(t)
  const refused: [code: string, order: VaultOrder][] = [
    ['bad_request', order('a', { device: ' phone' })],
    ['bad_request', order('a', { device: 'phone\n' })],
    ['bad_request', order('a', { device: 'x'.repeat(1000) })],
    ['database_name_too_long', order('n'.repeat(300), { account: 'a' })],
    ['illegal_database_name', order('A', { account: 'a' })],
    ['conflict', order('a', { account: 'anna', device: null, password: 'other' })],
  ]
  for (const [code, order] of refused)
    await t.rejects(controls.addVault(order), { code }, JSON.stringify(order).slice(0, 99))
  const { rows } = await controls.listAccounts({ after: null })
  t.strictSame(
    rows.map(({ name }) => name),
    ['anna'],
  )
  t.strictSame(await status('GET', '/a'), 404)
})

t.test('an account without a password is created, whatever password_regexp requires', async (t) => {
  const { controls, status } = await start(t)
  const rules = '/_node/_local/_config/chttpd_auth/password_regexp'
  t.equal(await status('PUT', rules, ADMIN, JSON.stringify('["^[0-9]{4}$"]')), 200)
  const { secret } = await controls.addVault(order('wiki'))
  t.equal(await status('GET', '/wiki', `wiki:${secret}`), 200)
  for (const password of ['', 'null', 'undefined', '1234'])
    t.equal(await status('GET', '/wiki', `wiki:${password}`), 401)
  await t.rejects(controls.addVault(order('wiki', { device: null, password: '1234' })), { code: 'conflict' })
  await controls.setPassword({ name: 'wiki', password: '1234', create: false })
  t.equal(await status('GET', '/wiki', 'wiki:1234'), 200, 'it can be given one')
})

t.test('concurrent commands lock nobody out', async (t) => {
  const { controls, request } = await start(t)
  const names = ['ada', 'bea', 'cy', 'dora', 'eve']
  const made = await Promise.all(names.map((account) => controls.addVault(order('shared', { account }))))
  t.strictSame(made.map(({ database }) => database).sort(), ['made', 'there', 'there', 'there', 'there'])
  const { json } = await request('GET', '/shared/_security', { auth: ADMIN })
  t.strictSame(json.members.names.sort(), names)
  const twice = await Promise.all([1, 2].map(() => controls.addVault(order('twice'))))
  t.strictSame(twice.map(({ token }) => token).sort(), ['made', 'there'], 'the same command twice at once')
})

t.test('a public database is closed, and the command says so', async (t) => {
  const { controls, status, request } = await start(t)
  await status('PUT', '/open')
  await status('PUT', '/open/_security', ADMIN, { members: { names: [], roles: [] } })
  t.equal((await request('GET', '/open')).status, 200)
  t.match(await controls.addVault(order('open')), { database: 'there', security: 'closed' })
  t.equal((await request('GET', '/open')).status, 401)
  t.match(await controls.readVault(order('open')), { documents: 0, hasMembers: true })
})

t.test('the account of a vault may do what apps need, and nothing else', async (t) => {
  const { controls, request } = await start(t)
  await controls.addVault(order('other'))
  const { secret } = await controls.addVault(order('wiki', { liveSync: true }))
  const auth = `wiki:${secret}`
  const note = { docs: [{ _id: 'note:1', _rev: '1-a', body: '' }], new_edits: false }
  const picture = { 'p.png': { content_type: 'image/png', data: 'AAAA' } }
  // The requests of PouchDB, LiveSync and Inkdrop; clients.md 1.1 to 1.3.
  const may: [method: string, path: string, status: number, body?: unknown][] = [
    ['GET', '/', 200],
    ['GET', '/_up', 200],
    ['GET', '/_session', 200],
    ['GET', '/wiki/', 200],
    ['PUT', '/wiki/obsydian_livesync_version', 201, { type: 'versioninfo', version: 12 }],
    ['PUT', '/wiki/_local/obsydian_livesync_milestone', 201, { locked: false }],
    ['GET', '/wiki/_local/obsydian_livesync_milestone', 200],
    ['POST', '/wiki/_bulk_docs', 201, note],
    ['POST', '/wiki/_revs_diff', 200, { 'note:1': ['1-a'] }],
    ['POST', '/wiki/_bulk_get?revs=true&latest=true', 200, { docs: [{ id: 'note:1' }] }],
    ['POST', '/wiki/_all_docs?include_docs=true', 200, { keys: ['note:1'] }],
    ['GET', '/wiki/_changes?style=all_docs', 200],
    ['POST', '/wiki/_changes?filter=_selector', 200, { selector: { type: { $ne: 'leaf' } } }],
    ['PUT', '/wiki/file:1', 201, { _attachments: picture }],
    ['GET', '/wiki/file:1/p.png', 200],
    ['PUT', '/wiki/_design/mobile', 201, { filters: { sync: 'function (doc) { return true }' } }],
    ['GET', '/wiki/_changes?filter=mobile/sync', 200],
    ['POST', '/wiki/_compact', 202, {}],
    ['GET', '/_node/_local/_config', 200],
  ]
  for (const [method, path, status, body] of may)
    t.equal((await request(method, path, { auth, body })).status, status, `${method} ${path}`)
  t.match(await controls.readVault(order('wiki')), { documents: 4, hasLiveSync: true })
  t.match(await controls.readVault(order('other')), { documents: 0, hasLiveSync: false })
  const mayNot: typeof may = [
    ['GET', '/other', 403],
    ['PUT', '/other/a', 403, {}],
    ['GET', '/other/_changes', 403],
    ['PUT', '/other/_security', 403, { members: { names: ['wiki'] } }],
    ['PUT', '/more', 401],
    ['DELETE', '/wiki', 401],
    ['GET', '/_all_dbs', 401],
    ['GET', '/_users/_all_docs', 401],
    ['GET', '/_users/org.couchdb.user:wiki', 403],
    ['PUT', '/_users/org.couchdb.user:wiki', 403, { name: 'wiki', type: 'user', roles: [], password: 'x' }],
    ['PUT', '/_node/_local/_config/admins/wiki', 403, 'x'],
    ['PUT', '/_node/_local/_config/couchdb/max_document_size', 403, '60000000'],
    ['POST', '/_settee/tokens', 403, { name: 'more' }],
    ['GET', '/_settee/accounts', 401],
  ]
  for (const [method, path, status, body] of mayNot) {
    const answer = await request(method, path, {
      auth,
      body: body === undefined ? body : JSON.stringify(body),
      headers: { 'content-type': 'application/json' },
    })
    t.equal(answer.status, status, `${method} ${path}: ${answer.text}`)
  }
})

t.test('in hosted mode nobody gets access to the database of another tenant', async (t) => {
  const { controls, status, url, request } = await start(t, { hosted: true })
  const bob = order('notes', { account: 'bob' })
  t.match(await controls.addVault(bob), { database: 'made', security: 'made', account: 'made' })
  t.match(await controls.addVault({ ...bob, device: 'desk' }), { database: 'there', security: 'there' })
  const eve = order('notes', { account: 'eve' })
  await t.rejects(controls.addVault(eve), { code: 'conflict', message: /eve has no access/ })
  t.equal((await controls.listAccounts({ after: null })).rows.length, 2, 'no account was created')
  await status('PUT', '/nobodys')
  await t.rejects(controls.addVault(order('nobodys')), { code: 'conflict' })

  await status('PUT', '/notes/_security', ADMIN, {
    admins: { names: ['bob'], roles: [] },
    members: { names: ['bob', 'eve'], roles: [] },
  })
  t.match(await controls.addVault(eve), { security: 'there', token: 'made' }, 'the owner has let her in')
  const { json } = await request('GET', '/notes/_security', { auth: ADMIN })
  t.strictSame(json.admins.names, ['bob'], 'the access list is as the owner set it')

  const made = await controls.addVault(order('obsidian', { liveSync: true }))
  t.strictSame(made.settings, [], 'adding a vault changes no settings of the server')
  const target = { url, auth: `obsidian:${made.secret}` }
  const { rows } = await checkConfiguration(target)
  t.not(red(rows).length, 0)
  const wanted = { 'WWW-Authenticate': 'Basic realm="couchdb"', max_document_size: '50000000' }
  for (const path of made.faults) {
    const key = path.split('/')[1] as keyof typeof wanted
    const answer = await request('PUT', `/_node/_local/_config/${path}`, {
      auth: ADMIN,
      body: JSON.stringify(wanted[key] ?? 'true'),
    })
    t.equal(answer.status, 200, path)
  }
  t.strictSame(red((await checkConfiguration(target)).rows), [], 'the named settings are sufficient')
  t.strictSame((await controls.addVault(order('obsidian', { liveSync: true }))).faults, [])
})

t.test('an account gets access, and nobody in a list loses it', async (t) => {
  const fresh = withAccess(null, 'anna')
  t.strictSame(fresh, { admins: { names: ['anna'], roles: [] }, members: { names: ['anna'], roles: [] } })
  const role = (name: string | null, security = fresh) => databaseRole({ name, roles: [] }, security)
  t.strictSame([role('anna'), role('bob'), role(null)], ['admin', 'none', 'none'])
  t.equal(withAccess(fresh, 'anna'), null)

  const shared = withAccess(
    { ...fresh, members: { names: ['cy'], roles: ['staff'] }, note: 'kept', admins: { roles: ['boss'] } },
    'bob',
  )
  t.strictSame(shared, {
    note: 'kept',
    admins: { names: ['bob'], roles: ['boss'] },
    members: { names: ['cy', 'bob'], roles: ['staff'] },
  })
  t.equal(withAccess(shared, 'bob'), null)
  t.match(withAccess(shared, 'cy'), { admins: { names: ['bob', 'cy'] }, members: { names: ['cy', 'bob'] } })
  const old = withAccess({ readers: { names: ['dora'] } }, 'bob')
  t.match(old, { members: { names: ['dora', 'bob'] } }, 'who came in by the old name of the list still does')
  const open = withAccess({ members: { names: [], roles: [] } }, 'bob')
  t.equal(role(null, open), 'none', 'a vault is open to nobody else')
})

t.test('the mobile filter', async (t) => {
  t.strictSame(withMobileFilter(null), { filters: { sync: MOBILE_FILTER } })
  const views = { all: { map: 'function () {}' } }
  t.strictSame(withMobileFilter({ _id: '_design/mobile', _rev: '1-a', views, filters: { other: 'x' } }), {
    _id: '_design/mobile',
    _rev: '1-a',
    views,
    filters: { other: 'x', sync: MOBILE_FILTER },
  })
  for (const sync of [MOBILE_FILTER, 'function(doc) {\n  return doc._id.indexOf("file:") === -1;\n}']) {
    t.equal(withMobileFilter({ filters: { sync } }), 'there')
  }
  for (const filters of [{ sync: 'function () { return true }' }, { sync: 1 }, [], 'x']) {
    t.equal(withMobileFilter({ filters }), 'differs')
  }
})

t.test('the keys that LiveSync checks', async (t) => {
  const paths = (found: Record<string, string>, hasAdmin = true) =>
    liveSyncChanges((section, key) => found[`${section}/${key}`], hasAdmin).map(
      ({ section, key, value }) => [`${section}/${key}`, value] as const,
    )
  t.strictSame(paths({}), SETTINGS, "the plan has the settings that LiveSync's scripts write")
  t.strictSame(paths(Object.fromEntries(SETTINGS)), [])
  const without = SETTINGS.filter(([path]) => !path.endsWith('require_valid_user'))
  t.strictSame(paths({}, false), without, 'nobody is shut out of a server without an admin')
  const more = {
    ...Object.fromEntries(SETTINGS),
    'chttpd/max_http_request_size': '9999999999',
    'couchdb/max_document_size': 'infinity',
    'httpd/WWW-Authenticate': 'Basic realm="mine"',
    'cors/origins': '*',
  }
  t.strictSame(paths(more), [], 'nothing is lowered')
  const origins = { ...more, 'cors/origins': 'https://mine.example, app://obsidian.md' }
  t.strictSame(paths(origins), [
    ['cors/origins', 'https://mine.example,app://obsidian.md,capacitor://localhost,http://localhost'],
  ])
})

/** The URL of a stopped server, by its settings. */
async function configured(flags: ConfigFlags, certificate?: CertificateOptions): Promise<string> {
  const tls = certificate === undefined ? undefined : await certificateFiles(t, certificate)
  const named = tls === undefined ? {} : { tlsCert: tls.certFile, tlsKey: tls.keyFile }
  const config = await openConfig({
    dataDir: await temporaryFolder(t),
    env: {},
    flags: { ...named, ...flags },
  })
  return ownUrl(config, null)
}

t.test('without TLS the address is the listening address', async (t) => {
  t.equal(await configured({}), 'http://127.0.0.1:5984/')
  t.equal(await configured({ bind: '::1', port: 6000 }), 'http://[::1]:6000/')
})

t.test('with TLS the address has a name of the certificate that leads to the server', async (t) => {
  const everywhere = { bind: '0.0.0.0' }
  const at = (names: string[], addresses: string[], flags: ConfigFlags = everywhere) =>
    configured(flags, { names, addresses })
  t.equal(await at(['notes.example.com', 'other.example.com'], []), 'https://notes.example.com:6984/')
  t.equal(await at(['localhost', '*.example.com', 'nas.lan'], ['127.0.0.1']), 'https://nas.lan:6984/')
  t.equal(await at([], ['127.0.0.1', '192.168.1.10']), 'https://192.168.1.10:6984/')
  t.equal(await at([], ['2001:db8::1']), 'https://[2001:db8::1]:6984/')
  t.equal(await at(['nas.lan'], [], { ...everywhere, tlsPort: 443 }), 'https://nas.lan:443/')
  t.equal(await at(['nas.lan'], [], { tlsBind: '0.0.0.0' }), 'https://nas.lan:6984/')
  t.equal(await at(['nas.lan', 'localhost'], [], {}), 'https://localhost:6984/', 'only this machine')
})

t.test('if no name of the certificate leads to the server, the address is without TLS', async (t) => {
  const everywhere = { bind: '0.0.0.0' }
  const url = 'http://0.0.0.0:5984/'
  t.equal(await configured(everywhere, { names: ['*.example.com'], addresses: [] }), url)
  t.equal(await configured(everywhere, { names: ['localhost'], addresses: ['127.0.0.1', '::1'] }), url)
  t.equal(await configured({}, { names: ['notes.example.com'], addresses: [] }), 'http://127.0.0.1:5984/')
  t.equal(await configured({ ...everywhere, tlsCert: '/nowhere.pem', tlsKey: '/nowhere.pem' }), url)
})

t.test('a running server reports its listening address', async (t) => {
  const server = await startTestServer(t, { tls: await certificateFiles(t) })
  const controls = await reachServer(server.dataDir)
  const state = await controls?.readVault({ database: 'work', account: 'work' })
  const { port } = new URL(server.secureUrl)
  t.match(state, { url: `https://localhost:${port}/`, listening: `${server.url}/` })
})
