/** `settee vault add`: creates a database for a note app, and prints the address for the app. */
import { createCipheriv, hkdfSync, pbkdf2, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import { type Address, formatAddress, parseAddress } from '../core/address.ts'
import { oneLine } from '../core/errors.ts'
import type { VaultControl, VaultOrder, VaultQuery, VaultState } from '../vaults/vault-control.ts'
import { dataFolder, withControl } from './operate.ts'
import { newPassphrase, type Prompts, readPassphrase, readPassword, terminalPrompts } from './prompts.ts'
import type { VaultCommand } from './vault-arguments.ts'
import { type LiveSyncSetup, type VaultReport, vaultJson, vaultText } from './vault-report.ts'

/** A vault to create, after all questions are answered. */
export interface VaultPlan {
  readonly command: VaultCommand
  readonly order: VaultOrder
  readonly place: Address
  /** null: there is none, it is unknown, or the output does not contain it. */
  readonly encryption: Encryption | null
}

interface Encryption {
  readonly passphrase: string
  readonly isNew: boolean
}

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runVaultCommand(command: VaultCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const password = command.stdin ? await readPassword(process.stdin) : null
    const prompts = password === null ? await terminalPrompts() : null
    const operate = <T>(use: (controls: VaultControl) => Promise<T>) =>
      withControl(dataFolder(command.data, env), env, use)
    // Two separate calls: the folder is not locked while the user answers, so that a server can start on it.
    const state = await operate((controls) => controls.readVault(vaultOf(command)))
    const plan = await planVault(command, password, state, prompts)
    const report = await operate((controls) => makeVault(plan, controls))
    process.stdout.write(
      command.json ? vaultJson(report) : vaultText(report, { columns: columnsFor(command) }),
    )
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/** @returns the columns for a QR code; 0: print no code */
export function columnsFor({ qr }: { readonly qr: boolean }): number {
  if (!qr && !process.stdout.isTTY) return 0
  return process.stdout.columns ?? Number.POSITIVE_INFINITY
}

/** @returns the names of the command's database and account */
export function vaultOf({ vault, account }: Pick<VaultCommand, 'vault' | 'account'>): VaultQuery {
  return { database: vault, account: account ?? vault }
}

/**
 * Asks for what is missing, and creates nothing yet.
 * @param password the account's password, used instead of a token; null: the device gets a token
 * @param state the current state of the vault
 * @param prompts null: no terminal
 * @throws Error with a one-line message: an invalid address, no terminal, cancelled
 */
export async function planVault(
  command: VaultCommand,
  password: string | null,
  state: VaultState,
  prompts: Prompts | null,
): Promise<VaultPlan> {
  const { app, host, renew, mobileFilter } = command
  const { database, account } = vaultOf(command)
  const device = password === null ? (command.device ?? app) : null
  const place = vaultAddress(host ?? state.url, database)
  // Throws before anything is created if a name does not fit into an address.
  withCredentials(place, account, password ?? 'a token')
  const isLiveSync = app === 'livesync'
  const keepsToken = device !== null && state.devices.includes(device) && !renew
  const encryption =
    isLiveSync && !keepsToken ? await encryptionOf(command, state, prompts, device === null) : null
  const order = { database, account, device, password, renew, mobileFilter, liveSync: isLiveSync }
  return { command, order, place, encryption }
}

/**
 * Creates the missing parts of a vault.
 * @throws as `VaultControl.addVault`
 */
export async function makeVault(
  { command, order, place, encryption }: VaultPlan,
  controls: VaultControl,
): Promise<VaultReport> {
  const { account, device } = order
  const outcome = await controls.addVault(order)
  const secret = order.password ?? outcome.secret
  const address = secret === null ? null : withCredentials(place, account, secret)
  const setup = address === null || encryption === null ? null : await setupOf(address, encryption)
  const state = await controls.readVault(order)
  return { command, account, device, state, outcome, address, url: place.url, setup }
}

/** @throws Error for an invalid address */
function vaultAddress(base: string, database: string): Address {
  return requireAddress(`${reachable(base)}/${encodeURIComponent(database)}`)
}

/**
 * Replaces a wildcard address with 127.0.0.1, because PouchDB cannot use IPv6 addresses.
 * @returns the address without the slash at the end
 */
export function reachable(base: string): string {
  const place = base.trim().replace(/\/$/, '')
  return place.replace(/^(https?:\/\/)(?:0\.0\.0\.0|\[::\]):/, '$1127.0.0.1:')
}

function withCredentials(place: Address, username: string, password: string): Address {
  return requireAddress(formatAddress({ ...place, username, password }))
}

function requireAddress(text: string): Address {
  const result = parseAddress(text)
  if (result.ok) return result.address
  throw new Error(result.faults.map(({ reason, mend }) => `${reason} ${mend}`).join(' '))
}

/**
 * Finds the passphrase that encrypts the notes. A new vault gets a new passphrase. Any other may already have one,
 * which the server does not know.
 * @param isPassword whether the address has the account's password, so that it can be printed again at any time
 * @returns null if the passphrase is unknown
 * @throws Error if the passphrase is needed, and there is no terminal
 */
async function encryptionOf(
  { passphraseFile }: VaultCommand,
  state: VaultState,
  prompts: Prompts | null,
  isPassword: boolean,
): Promise<Encryption | null> {
  if (passphraseFile !== undefined) return { passphrase: await readPassphrase(passphraseFile), isNew: false }
  if (isNewVault(state)) return { passphrase: newPassphrase(), isNew: true }
  if (prompts !== null) {
    const question = 'Passphrase with which the other devices encrypt this vault'
    const check = (given: string) => (given.trim() === '' ? 'The passphrase must not be empty.' : undefined)
    return { passphrase: await prompts.password(question, check), isNew: false }
  }
  if (isPassword) return null
  throw new Error(
    'The vault may hold encrypted notes already. Use --passphrase-file to give the passphrase of its other devices, ' +
      'or one of your own if there are none yet. Nothing has changed.',
  )
}

/** If the database was deleted and created again, its devices still have their old passphrase. */
function isNewVault({ documents, hasMembers, devices }: VaultState): boolean {
  return documents === null ? devices.length === 0 : documents === 0 && !hasMembers
}

async function setupOf(address: Address, { passphrase, isNew }: Encryption): Promise<LiveSyncSetup> {
  const uriPassphrase = newPassphrase()
  const uri = await setupUri(liveSyncSettings(address, passphrase), uriPassphrase)
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

/** The URI of a remote in LiveSync's list of remotes. */
function connectionUri({ url, scheme, username = '', password = '', database }: Address): string {
  const uri = new URL(new URL(url).origin.replace(/^http:/, 'https:'))
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
