/** `settee vault add` and `settee setup` on a running and on a stopped server, and devices that use the vaults. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decryptWithEphemeralSalt } from 'octagonal-wheels/encryption/hkdf'
import t, { type Test } from 'tap'
import { parseAddress } from '../../../src/core/address.ts'
import { liveSyncSettings, setupUri } from '../../../src/vaults/livesync-setup.ts'
import { build, builtSettee } from '../../cli/child.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { device, rejectsWith, remote } from '../../protocol/devices.ts'
import { checkConfiguration, red } from '../../protocol/livesync-check.ts'

t.before(() => build(t))

/** Runs a command on a data folder. */
async function run(t: Test, dataDir: string, args: readonly string[], input?: string) {
  const options = { env: { SETTEE_DATA: dataDir }, ...(input !== undefined && { input }) }
  return builtSettee(t, args, options).ended
}

/** The same with --json. @returns the parsed output */
async function asked(t: Test, dataDir: string, args: readonly string[], input?: string) {
  const { code, stdout, stderr } = await run(t, dataDir, [...args, '--json'], input)
  t.strictSame([code, stderr], [0, ''], args.join(' '))
  return JSON.parse(stdout)
}

async function cheapHashes(dataDir: string): Promise<void> {
  await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n')
}

t.test('a vault on a running server: a device syncs with the printed address', async (t) => {
  const dataDir = await temporaryFolder(t)
  await cheapHashes(dataDir)
  const server = await startTestServer(t, { dataDir })
  const first = await asked(t, dataDir, ['setup', '--admin', 'anna', '--stdin', '--no-vault'], 'secret\n')
  t.match(first, { admin: { name: 'anna' }, admins_before: [], running: true, vault: null })
  t.notMatch(JSON.stringify(first), 'secret')
  t.equal((await server.request('GET', '/_all_dbs', { auth: 'anna:secret' })).status, 200)

  const add = ['vault', 'add', 'work', '--for', 'inkdrop', '--mobile-filter']
  const made = await asked(t, dataDir, add)
  const all = {
    account: 'made',
    database: 'made',
    security: 'made',
    filter: 'made',
    token: 'made',
    settings: [],
  }
  t.match(made, { vault: 'work', for: 'inkdrop', account: 'work', device: 'inkdrop', done: all })
  t.equal(made.url, `${server.url}/work`, 'where it listens, port and all')
  const result = parseAddress(made.address)
  t.match(result, { ok: true, address: { username: 'work', database: 'work', text: made.address } })

  const phone = await device(t)
  await phone.bulkDocs([{ _id: 'note:1' }, { _id: 'file:1' }])
  const { db } = remote(made.address)
  t.match(await phone.sync(db), { push: { docs_written: 2, ok: true } })
  const mobile = await device(t)
  t.match(await mobile.replicate.from(remote(made.address).db, { filter: 'mobile/sync' }), { ok: true })
  await rejectsWith(t, mobile.get('file:1'), { status: 404 })
  t.match(await mobile.get('note:1'), { _id: 'note:1' })

  const auth = `work:${(result as { address: { password: string } }).address.password}`
  const status = async (path: string) => (await server.request('GET', path, { auth })).status
  t.strictSame(
    [await status('/work'), await status('/_all_dbs'), await status('/_users/_all_docs')],
    [200, 401, 401],
  )
  t.equal((await server.request('GET', '/work')).status, 401)

  const again = await asked(t, dataDir, add)
  const there = { account: 'there', database: 'there', security: 'there', filter: 'there', token: 'there' }
  t.match(again, { done: there, address: null, url: made.url })
  t.equal(await status('/work'), 200, 'the address from before is good')
  const { json } = await server.request('GET', '/_settee/tokens?account=work', { auth: 'anna:secret' })
  t.equal(json.tokens.length, 1)

  const desk = await asked(t, dataDir, [...add, '--device', 'desk'])
  t.match(desk, { done: { ...there, token: 'made' } })
  t.match(await remote(desk.address).db.info(), { doc_count: 3 })
  const renewed = await asked(t, dataDir, [...add, '--renew'])
  t.match(renewed, { done: { token: 'changed' } })
  t.equal(await status('/work'), 401, 'the lost token lets nobody in')
  t.match(await remote(renewed.address).db.info(), { doc_count: 3 })
})

t.test('on a stopped server, and the same command when it runs', async (t) => {
  const dataDir = await temporaryFolder(t)
  await cheapHashes(dataDir)
  const setup = ['setup', '--admin', 'anna', '--stdin', '--vault', 'own', '--for', 'pouchdb']
  const made = await asked(t, dataDir, setup, 'secret')
  t.match(made, { admin: { name: 'anna' }, running: false })
  t.match(made.vault, {
    vault: 'own',
    done: { database: 'made', token: 'made' },
    url: 'http://127.0.0.1:5984/own',
  })
  t.match(await asked(t, dataDir, setup, 'other'), {
    admin: null,
    admins_before: ['anna'],
    vault: { done: { database: 'there', token: 'there' }, address: null },
  })
  t.strictSame((await asked(t, dataDir, setup, 'other')).notes, [
    'The given password was not used, because the server admin exists already. To change it: settee passwd',
  ])
  const byPassword = ['vault', 'add', 'shared/notes', '--for', 'pouchdb', '--account', 'bob', '--stdin']
  const bob = await asked(t, dataDir, byPassword, 'p@ss: 1\n')
  t.match(bob, { device: null, done: { account: 'made', token: null } })

  const server = await startTestServer(t, { dataDir })
  t.equal(
    (await server.request('GET', '/_all_dbs', { auth: 'anna:secret' })).status,
    200,
    'the password of the account is unchanged',
  )
  const moved = (address: string) => address.replace('127.0.0.1:5984', new URL(server.url).host)
  t.match(await remote(moved(made.vault.address)).db.info(), { doc_count: 0 })
  t.match(await remote(moved(bob.address)).db.info(), { db_name: 'shared/notes' })
  const host = ['--host', 'https://notes.example.com:443']
  const again = await asked(t, dataDir, [...byPassword, ...host], 'p@ss: 1')
  t.equal(again.address, 'https://bob:p%40ss%3A%201@notes.example.com:443/shared%2Fnotes')
  t.match(again.done, { account: 'there', database: 'there', security: 'there', token: null })

  const refused = async (args: string[], input: string, reason: RegExp) => {
    const { code, stdout, stderr } = await run(t, dataDir, args, input)
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, reason)
    t.notMatch(stderr, 'wrong')
  }
  await refused(byPassword, 'wrong', /^settee: The account bob exists with another password[^\n]+\n$/)
  await refused(
    ['vault', 'add', 'x', '--for', 'pouchdb', '--account', 'anna', '--stdin'],
    'wrong',
    /is a server admin/,
  )
  await refused(['setup', '--admin', 'bob', '--stdin', '--no-vault'], 'wrong', /not a server admin/)
  t.equal((await server.request('GET', '/x', { auth: 'anna:secret' })).status, 404, 'nothing was made')
})

t.test('for LiveSync: its check passes, and its Setup URI opens', async (t) => {
  const dataDir = await temporaryFolder(t)
  await cheapHashes(dataDir)
  const server = await startTestServer(t, { dataDir })
  await run(t, dataDir, ['passwd', 'anna', '--create', '--stdin'], 'secret')
  const add = ['vault', 'add', 'obsidian', '--for', 'livesync']
  const made = await asked(t, dataDir, add)
  t.equal(made.done.settings.length, 7)
  const uri = decodeURIComponent(made.setup_uri.slice('obsidian://setuplivesync?settings='.length))
  const settings = JSON.parse(await decryptWithEphemeralSalt(uri, made.setup_passphrase))
  t.match(settings, {
    couchDB_URI: server.url,
    couchDB_USER: 'obsidian',
    couchDB_DBNAME: 'obsidian',
    encrypt: true,
    passphrase: made.encryption_passphrase,
  })
  const auth = `obsidian:${settings.couchDB_PASSWORD}`
  t.strictSame(red((await checkConfiguration({ url: server.url, auth })).rows), [])
  t.strictSame(red((await checkConfiguration({ url: server.url, auth: 'anna:secret' })).rows), [])
  t.equal((await server.request('GET', '/obsidian', { auth })).status, 200)

  const again = await asked(t, dataDir, add)
  t.match(again, { done: { settings: [], token: 'there' }, address: null, setup_uri: null })
  const phone = [...add, '--device', 'phone']
  const { code, stderr } = await run(t, dataDir, phone)
  t.equal(code, 1)
  t.match(stderr, /^settee: .*--passphrase-file .* Nothing has changed\.\n$/)
  const { json } = await server.request('GET', '/_settee/tokens?account=obsidian', { auth: 'anna:secret' })
  t.equal(json.tokens.length, 1)
  const file = join(dataDir, 'passphrase')
  await writeFile(file, `${made.encryption_passphrase}\n`)
  const second = await asked(t, dataDir, [...phone, '--passphrase-file', file])
  t.equal(second.encryption_passphrase, null, 'a passphrase that was given is not shown again')
  const text = decodeURIComponent(second.setup_uri.slice('obsidian://setuplivesync?settings='.length))
  const other = JSON.parse(await decryptWithEphemeralSalt(text, second.setup_passphrase))
  t.equal(other.passphrase, made.encryption_passphrase)
  t.not(other.couchDB_PASSWORD, settings.couchDB_PASSWORD)
})

t.test(
  'in hosted mode there are no design documents, and that is said before anything is made',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n\n[admins]\nanna = secret\n')
    const server = await startTestServer(t, { dataDir, hosted: true })
    const add = ['vault', 'add', 'work', '--for', 'inkdrop']
    const { code, stderr } = await run(t, dataDir, [...add, '--mobile-filter'])
    t.equal(code, 1)
    t.match(stderr, /^settee: This server runs in hosted mode, which allows no design documents[^\n]+\n$/)
    t.equal((await server.request('GET', '/work', { auth: 'anna:secret' })).status, 404)

    const { address } = await asked(t, dataDir, add)
    const notes = await device(t)
    await notes.put({ _id: 'note:1' })
    t.match(await notes.sync(remote(address).db), { push: { docs_written: 1 } })
    const auth = `work:${new URL(address).password}`
    t.strictSame(
      (await server.request('GET', '/_all_dbs', { auth })).json,
      ['work'],
      "it is the account's own",
    )
  },
)

t.test('for users: what was created, the address, a QR code, and problems', async (t) => {
  const dataDir = await temporaryFolder(t)
  await cheapHashes(dataDir)
  const { code, stdout, stderr } = await run(t, dataDir, ['vault', 'add', 'work', '--for', 'inkdrop', '--qr'])
  t.strictSame([code, stderr], [0, ''])
  t.match(stdout, /^ {2}database +work +created$/m)
  t.match(stdout, /^ {2}http:\/\/work:stt_[\w-]{43}@127\.0\.0\.1:5984\/work$/m)
  t.match(stdout, /▄▄▄▄▄ █/)
  for (const note of ['--host https', 'There is no server admin', `No server is running on ${dataDir}`])
    t.match(stdout, note)
  const again = await run(t, dataDir, [
    'vault',
    'add',
    'work',
    '--for',
    'inkdrop',
    '--host',
    'http://nas:5984',
  ])
  t.match(again.stdout, /^ {2}token for +inkdrop +exists already$/m)
  t.notMatch(again.stdout, 'stt_')
  t.match(again.stdout, 'Phones and tablets do not connect over http')
})

t.test('other programs read addresses with settee/address', async (t) => {
  const name: string = 'settee/address'
  const { formatAddress, parseAddress: parse } = (await import(name)) as {
    parseAddress: typeof parseAddress
    formatAddress(parts: object): string
  }
  t.match(parse('https://h/notes', { mobile: true }), { ok: false, faults: [{ code: 'port_missing' }] })
  t.equal(formatAddress({ scheme: 'https', host: 'h', port: 443, database: 'n' }), 'https://h:443/n')
})

t.test('without a terminal, missing answers are named by their options', async (t) => {
  const dataDir = await temporaryFolder(t)
  const missing = async (args: string[], option: string) => {
    const { code, stderr } = await run(t, dataDir, ['setup', ...args])
    t.equal(code, 1)
    t.match(stderr, `add ${option}. Nothing has changed.`)
  }
  await missing([], '--admin')
  await missing(['--admin', 'anna'], '--stdin')
  const { stdout } = await run(t, dataDir, ['account', 'list'])
  t.equal(stdout, '')
})

t.test('the admin of the environment counts on a stopped server, too', async (t) => {
  const dataDir = await temporaryFolder(t)
  await cheapHashes(dataDir)
  const env = { SETTEE_DATA: dataDir, COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
  const settee = async (...args: string[]) => {
    const { code, stdout, stderr } = await builtSettee(t, [...args, '--json'], { env }).ended
    t.strictSame([code, stderr], [0, ''])
    return JSON.parse(stdout)
  }
  const made = await settee('setup', '--vault', 'obsidian', '--for', 'livesync')
  t.match(made, { admin: null, admins_before: ['anna'], vault: { done: { account: 'made' } } })
  t.ok(
    made.vault.done.settings.includes('chttpd/require_valid_user'),
    'chttpd/require_valid_user is among the changed settings',
  )
  t.notMatch(made.vault.notes.join('\n'), 'There is no server admin')
  const own = await settee('vault', 'add', 'own', '--for', 'pouchdb', '--account', 'anna')
  t.match(own.done, { account: 'there', token: 'made' })

  const server = await startTestServer(t, { dataDir, env })
  t.equal((await server.request('GET', '/_all_dbs', { auth: 'anna:secret' })).status, 200)
  const auth = `anna:${new URL(own.address).password}`
  const status = async (path: string) => (await server.request('GET', path, { auth })).status
  t.strictSame(
    [await status('/own'), await status('/_all_dbs')],
    [200, 401],
    "a device of an admin's is none",
  )
})

t.test('in hosted mode a vault is created only while the server runs', async (t) => {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), '[settee]\nmode = hosted\n\n[admins]\nanna = secret\n')
  const { code, stderr } = await run(t, dataDir, ['vault', 'add', 'work', '--for', 'inkdrop'])
  t.equal(code, 1)
  t.match(stderr, /^settee: In hosted mode, a vault can only be created while the server is running[^\n]+\n$/)
  t.equal((await run(t, dataDir, ['account', 'list'])).stdout, 'anna\tadmin\t_admin\n')
})

const BASE = 'obsidian://setuplivesync?settings='

function settingsOf(text: string, passphrase = 'of the notes ✨') {
  const result = parseAddress(text)
  if (!result.ok) throw new Error(JSON.stringify(result.faults))
  return liveSyncSettings(result.address, passphrase)
}

/** Like decodeSettingsFromSetupURI of livesync-commonlib 0.1.18. */
async function decoded(uri: string, passphrase: string): Promise<unknown> {
  if (!uri.startsWith(BASE)) throw new Error(uri)
  return JSON.parse(await decryptWithEphemeralSalt(decodeURIComponent(uri.slice(BASE.length)), passphrase))
}

/** Like ConnectionStringParser of livesync-commonlib 0.1.18. */
function connection(uri: string) {
  const [, scheme, rest] = /^sls\+([^:]+):(.*)$/.exec(uri) ?? []
  const { host, username, password, searchParams } = new URL(`https:${rest}`)
  return {
    couchDB_URI: `${scheme}://${host}`,
    couchDB_USER: decodeURIComponent(username),
    couchDB_PASSWORD: decodeURIComponent(password),
    couchDB_DBNAME: searchParams.get('db'),
  }
}

t.test("LiveSync's library decrypts the Setup URI", async (t) => {
  const settings = settingsOf('https://anna:p%40ss%3A@notes.example.com:6984/obsidian')
  const uri = await setupUri(settings, 'öffne dich')
  t.match(
    uri,
    /^obsidian:\/\/setuplivesync\?settings=%25%24[A-Za-z0-9%]+$/,
    'nothing is in it that breaks a link',
  )
  t.strictSame(await decoded(uri, 'öffne dich'), settings)
  await t.rejects(decoded(uri, 'offne dich'))
  t.not(await setupUri(settings, 'öffne dich'), uri, 'a salt and an IV of its own')
})

t.test("the settings are those of LiveSync's own script", async (t) => {
  const { remoteConfigurations, activeConfigurationId, ...flat } = settingsOf(
    'https://anna:p%40ss%3A@notes.example.com:6984/obsidian',
  )
  t.strictSame(flat, {
    couchDB_URI: 'https://notes.example.com:6984',
    couchDB_USER: 'anna',
    couchDB_PASSWORD: 'p@ss:',
    couchDB_DBNAME: 'obsidian',
    isConfigured: true,
    encrypt: true,
    passphrase: 'of the notes ✨',
    usePathObfuscation: true,
    usePluginSyncV2: true,
    handleFilenameCaseSensitive: false,
    customChunkSize: 60,
    concurrencyOfReadChunksOnline: 30,
    minimumIntervalOfReadChunksOnline: 25,
    batchSave: true,
    periodicReplication: true,
    syncOnStart: true,
    syncOnFileOpen: true,
    syncAfterMerge: true,
    configPassphraseStore: '',
    encryptedCouchDBConnection: '',
    encryptedPassphrase: '',
  })
  const remotes = remoteConfigurations as Record<string, Record<string, unknown>>
  t.strictSame(Object.keys(remotes), [activeConfigurationId])
  t.match(remotes[activeConfigurationId as string], {
    id: activeConfigurationId,
    name: 'CouchDB notes.example.com:6984',
    uri: /^sls\+https:\/\//,
    isEncrypted: false,
  })
})

t.test('the remote and the plain settings are equal', async (t) => {
  for (const address of [
    'https://anna:p%40ss%3A@h:443/n',
    'http://anna:p%40ss%3A@h:80/n',
    'http://j%C3%B6rg:%2F%3F%23%25%20%27%22@127.0.0.1:5984/a%2Fb',
    'https://u:p@[2001:db8::1]:6984/n',
  ]) {
    const { remoteConfigurations, ...flat } = settingsOf(address)
    const [remote] = Object.values(remoteConfigurations as Record<string, { uri: string }>)
    t.match(flat, connection(remote?.uri ?? ''), address)
  }
})
