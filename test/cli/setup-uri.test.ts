/** LiveSync's Setup URI: its own library reads what is made here, and finds the settings that it makes itself. */
import { decryptWithEphemeralSalt } from 'octagonal-wheels/encryption/hkdf'
import t from 'tap'
import { liveSyncSettings, setupUri } from '../../src/cli/vault-command.ts'
import { parseAddress } from '../../src/core/address.ts'

const BASE = 'obsidian://setuplivesync?settings='

function settingsOf(text: string, passphrase = 'of the notes ✨') {
  const result = parseAddress(text)
  if (!result.ok) throw new Error(JSON.stringify(result.faults))
  return liveSyncSettings(result.address, passphrase)
}

/** As decodeSettingsFromSetupURI of livesync-commonlib 0.1.18 does. */
async function decoded(uri: string, passphrase: string): Promise<unknown> {
  if (!uri.startsWith(BASE)) throw new Error(uri)
  return JSON.parse(await decryptWithEphemeralSalt(decodeURIComponent(uri.slice(BASE.length)), passphrase))
}

/** As ConnectionStringParser of livesync-commonlib 0.1.18 does. */
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

t.test('the library decrypts it', async (t) => {
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

t.test('the settings are those of its own script', async (t) => {
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

t.test('the remote and the plain settings say the same', async (t) => {
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
