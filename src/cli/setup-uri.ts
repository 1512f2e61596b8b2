/**
 * The Setup URI of Obsidian LiveSync: its settings, encrypted by a passphrase, in an address that Obsidian opens. The
 * settings are those that LiveSync's own script makes for CouchDB, less what is its default anyway (obsidian-livesync
 * 1.0.16, utils/setup/generate_setup_uri.ts; livesync-commonlib 0.1.18, API/processSetting.ts).
 */
import { createCipheriv, hkdfSync, pbkdf2, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import type { Address } from '../core/address.ts'

const BASE = 'obsidian://setuplivesync?settings='

/** Of text that is encrypted with a salt of its own (octagonal-wheels 0.1.45, encryption/hkdf). */
const PREFIX = '%$'
const ITERATIONS = 310_000
const SALT_BYTES = 32
const IV_BYTES = 12
const KEY_BYTES = 32

/**
 * The settings of a vault that is encrypted end to end.
 * @param address with credentials
 * @param passphrase encrypts the notes
 */
export function liveSyncSettings(address: Address, passphrase: string): Record<string, unknown> {
  const { username = '', password = '', database, url } = address
  const { host, origin } = new URL(url)
  const id = `remote-${Date.now().toString(36)}-${randomBytes(3).toString('hex')}`
  const remote = { id, name: `CouchDB ${host}`, uri: connectionUri(address), isEncrypted: false }
  return {
    couchDB_URI: origin,
    couchDB_USER: username,
    couchDB_PASSWORD: password,
    couchDB_DBNAME: database,
    remoteConfigurations: { [id]: remote },
    activeConfigurationId: id,
    isConfigured: true,
    encrypt: true,
    passphrase,
    usePathObfuscation: true,
    ...FOR_NEW_VAULTS,
    ...FOR_OWN_SERVERS,
    ...WHEN_TO_SYNC,
    ...FILLED_IN_LATER,
  }
}

const FOR_NEW_VAULTS = { usePluginSyncV2: true, handleFilenameCaseSensitive: false }
const FOR_OWN_SERVERS = {
  customChunkSize: 60,
  concurrencyOfReadChunksOnline: 30,
  minimumIntervalOfReadChunksOnline: 25,
}
const WHEN_TO_SYNC = {
  batchSave: true,
  periodicReplication: true,
  syncOnStart: true,
  syncOnFileOpen: true,
  syncAfterMerge: true,
}
const FILLED_IN_LATER = { configPassphraseStore: '', encryptedCouchDBConnection: '', encryptedPassphrase: '' }

/** One remote among several, as LiveSync keeps them. */
function connectionUri({ url, scheme, username = '', password = '', database }: Address): string {
  const uri = new URL(new URL(url).origin.replace(/^http:/, 'https:'))
  uri.username = encodeURIComponent(username)
  uri.password = encodeURIComponent(password)
  uri.searchParams.set('db', database)
  return uri.href.replace(/^https:/, `sls+${scheme}:`)
}

/**
 * @param settings JSON
 * @param passphrase which the device asks for
 */
export async function setupUri(settings: object, passphrase: string): Promise<string> {
  return BASE + encodeURIComponent(await encrypted(JSON.stringify(settings), passphrase))
}

/** `%$` and base64 of: the salt of PBKDF2, IV, the salt of HKDF, what AES-256-GCM gives, its tag. */
async function encrypted(text: string, passphrase: string): Promise<string> {
  const [salt, iv, keySalt] = [SALT_BYTES, IV_BYTES, SALT_BYTES].map((size) => randomBytes(size)) as [
    Buffer,
    Buffer,
    Buffer,
  ]
  const master = await promisify(pbkdf2)(passphrase, salt, ITERATIONS, KEY_BYTES, 'sha256')
  const key = Buffer.from(hkdfSync('sha256', master, keySalt, '', KEY_BYTES))
  const cipher = createCipheriv('aes-256-gcm', key, iv)
  const data = [cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]
  return PREFIX + Buffer.concat([salt, iv, keySalt, ...data]).toString('base64')
}
