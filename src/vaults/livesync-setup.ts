/** The Setup URI of Obsidian LiveSync: encrypted settings that one scan of a QR code brings to a device. */
import { createCipheriv, hkdfSync, pbkdf2, randomBytes, randomInt } from 'node:crypto'
import { promisify } from 'node:util'
import type { Address } from '../core/address.ts'
import { Limiter } from '../core/concurrency.ts'

export interface LiveSyncSetup {
  readonly uri: string
  /** Decrypts the URI. */
  readonly passphrase: string
  /** Encrypts the notes; null: the user gave the passphrase. */
  readonly newEncryption: string | null
}

/** The passphrase that encrypts the notes of a vault. */
export interface Encryption {
  readonly passphrase: string
  readonly isNew: boolean
}

/** A Setup URI takes about 0.1 s on one of libuv's threads, which the server needs for other work. */
const turns = new Limiter(1, 16)

/**
 * Runs a task that makes a Setup URI, one at a time; accounts take turns.
 * @throws unavailable when too many wait, before the task has begun; what the task throws
 */
export function inTurn<T>(account: string, task: () => Promise<T>): Promise<T> {
  return turns.run(task, account)
}

/**
 * Makes a Setup URI with its own passphrase. Call it in a turn ({@link inTurn}).
 * @param address with credentials
 */
export async function setupOf(address: Address, { passphrase, isNew }: Encryption): Promise<LiveSyncSetup> {
  const uriPassphrase = newPassphrase()
  const settings = liveSyncSettings(address, passphrase)
  const uri = await setupUri(settings, uriPassphrase)
  return { uri, passphrase: uriPassphrase, newEncryption: isNew ? passphrase : null }
}

const SETUP_URI_BASE = 'obsidian://setuplivesync?settings='

/** Marks text that is encrypted with its own salt (octagonal-wheels 0.1.45, encryption/hkdf). */
const PREFIX = '%$'
const ITERATIONS = 310_000
const SALT_BYTES = 32
const IV_BYTES = 12
const KEY_BYTES = 32

/**
 * The LiveSync settings of a vault with end-to-end encryption. They are those of LiveSync's own script for CouchDB,
 * without default values (obsidian-livesync 1.0.16, utils/setup/generate_setup_uri.ts; livesync-commonlib 0.1.18,
 * API/processSetting.ts).
 * @param address with credentials
 * @param passphrase encrypts the notes
 */
export function liveSyncSettings(address: Address, passphrase: string): Record<string, unknown> {
  const { username = '', password = '', prefix = '', database, url } = address
  const { host, origin } = new URL(url)
  const id = `remote-${Date.now().toString(36)}-${randomBytes(3).toString('hex')}`
  const remote = { id, name: `CouchDB ${host}`, uri: connectionUri(address), isEncrypted: false }
  return {
    couchDB_URI: `${origin}${prefix}`,
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

/** The URI of a remote in LiveSync's list of remotes. */
function connectionUri({
  url,
  scheme,
  username = '',
  password = '',
  prefix = '',
  database,
}: Address): string {
  const uri = new URL(prefix, new URL(url).origin.replace(/^http:/, 'https:'))
  uri.username = encodeURIComponent(username)
  uri.password = encodeURIComponent(password)
  uri.searchParams.set('db', database)
  return uri.href.replace(/^https:/, `sls+${scheme}:`)
}

/**
 * The Setup URI of Obsidian LiveSync: encrypted settings in an address that Obsidian opens.
 * @param passphrase decrypts the settings; the device asks for it
 */
export async function setupUri(settings: object, passphrase: string): Promise<string> {
  return SETUP_URI_BASE + encodeURIComponent(await encrypted(JSON.stringify(settings), passphrase))
}

/** `%$` and base64 of: the salt of PBKDF2, IV, the salt of HKDF, the AES-256-GCM ciphertext, its tag. */
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

/** Without characters that look alike in some fonts, because users copy passphrases by hand. */
const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789'
const GROUPS = 5

/** @returns five groups of five letters: about 124 random bits */
export function newPassphrase(): string {
  const group = () => Array.from({ length: 5 }, () => LETTERS[randomInt(LETTERS.length)]).join('')
  return Array.from({ length: GROUPS }, group).join('-')
}
