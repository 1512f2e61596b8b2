/** `settee vault add`: a database for a note app, and the address that the app takes. */
import { type Address, formatAddress, parseAddress } from '../core/address.ts'
import type { VaultControls, VaultOrder, VaultState } from '../maintenance/vault-controls.ts'
import { type Asker, terminalAsker } from './asker.ts'
import { dataFolder } from './data-folder.ts'
import { oneLine } from './one-line.ts'
import { withControls } from './operate.ts'
import { newPassphrase, readPassphrase } from './passphrase.ts'
import { readPassword } from './password.ts'
import { liveSyncSettings, setupUri } from './setup-uri.ts'
import type { VaultCommand } from './vault-arguments.ts'
import { type LiveSyncSetup, type VaultReport, vaultJson, vaultText } from './vault-report.ts'

/** What is to be made, with all that there was to ask. */
export interface VaultPlan {
  readonly command: VaultCommand
  readonly order: VaultOrder
  readonly place: Address
  /** Null: there is none, it is not known, or nothing is told that holds it. */
  readonly encryption: Encryption | null
}

interface Encryption {
  readonly passphrase: string
  readonly isNew: boolean
}

/** @returns the exit code: 1 when it failed, which one line on the standard error explains */
export async function runVaultCommand(command: VaultCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const password = command.stdin ? await readPassword(process.stdin) : null
    const asker = password === null ? await terminalAsker() : null
    const report = await withControls(dataFolder(command.data, env), env, async (controls) =>
      makeVault(await planVault(command, password, controls, asker), controls),
    )
    process.stdout.write(
      command.json ? vaultJson(report) : vaultText(report, { columns: columnsFor(command) }),
    )
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/** @returns the columns that a QR code may take; 0: there is to be none */
export function columnsFor({ qr }: { readonly qr: boolean }): number {
  if (!qr && !process.stdout.isTTY) return 0
  return process.stdout.columns ?? Number.POSITIVE_INFINITY
}

/**
 * Looks what there is of a vault, and asks for what is missing; nothing is made.
 * @param password the account's, which takes the place of a token; null: the device gets a token
 * @param asker null: nobody can be asked
 * @throws Error with one clear line: an address that could not be, nobody to ask, cancelled
 */
export async function planVault(
  command: VaultCommand,
  password: string | null,
  controls: Pick<VaultControls, 'readVault'>,
  asker: Asker | null,
): Promise<VaultPlan> {
  const { vault: database, app, host, renew, mobileFilter } = command
  const account = command.account ?? database
  const device = password === null ? (command.device ?? app) : null
  const state = await controls.readVault({ database, account })
  const place = placeOf(host ?? state.url, database)
  // What no address can hold is refused before it is anybody's.
  withCredentials(place, account, password ?? 'a token')
  const isLiveSync = app === 'livesync'
  const isToldNothing = device !== null && state.devices.includes(device) && !renew
  const encryption =
    isLiveSync && !isToldNothing ? await encryptionOf(command, state, asker, device === null) : null
  const order = { database, account, device, password, renew, mobileFilter, liveSync: isLiveSync }
  return { command, order, place, encryption }
}

/**
 * Makes what is missing of a vault.
 * @throws as `VaultControls.addVault`
 */
export async function makeVault(
  { command, order, place, encryption }: VaultPlan,
  controls: VaultControls,
): Promise<VaultReport> {
  const { account, device } = order
  const outcome = await controls.addVault(order)
  const secret = order.password ?? outcome.secret
  const address = secret === null ? null : withCredentials(place, account, secret)
  const setup = address === null || encryption === null ? null : await setupOf(address, encryption)
  const state = await controls.readVault(order)
  return { command, account, device, state, outcome, address, url: place.url, setup }
}

/** @throws Error for a place that is none */
function placeOf(base: string, database: string): Address {
  // Where it listens on all networks, this machine's own is one; and PouchDB understands no IPv6 address.
  const reachable = base.trim().replace(/^(https?:\/\/)(?:0\.0\.0\.0|\[::\]):/, '$1127.0.0.1:')
  return readable(`${reachable.replace(/\/$/, '')}/${encodeURIComponent(database)}`)
}

function withCredentials(place: Address, username: string, password: string): Address {
  return readable(formatAddress({ ...place, username, password }))
}

function readable(text: string): Address {
  const result = parseAddress(text)
  if (result.ok) return result.address
  throw new Error(result.faults.map(({ reason, mend }) => `${reason} ${mend}`).join(' '))
}

/**
 * The passphrase that encrypts the notes. It is made for a vault that nobody can have put notes into; any other has one
 * already, which the server does not know.
 * @param isPassword the address is made of a password, and can be had again at any time
 * @returns null: it is not known
 * @throws Error when it is needed and nobody can be asked
 */
async function encryptionOf(
  { passphraseFile }: VaultCommand,
  state: VaultState,
  asker: Asker | null,
  isPassword: boolean,
): Promise<Encryption | null> {
  if (passphraseFile !== undefined) return { passphrase: await readPassphrase(passphraseFile), isNew: false }
  if (isNewVault(state)) return { passphrase: newPassphrase(), isNew: true }
  if (asker !== null) {
    const question = 'The passphrase by which the other devices encrypt this vault'
    const check = (given: string) => (given.trim() === '' ? 'It must not be empty.' : undefined)
    return { passphrase: await asker.password(question, check), isNew: false }
  }
  if (isPassword) return null
  throw new Error(
    'The vault may be in use already, and its notes encrypted: give the passphrase that its other devices have, or, ' +
      'where there are none yet, one of your own, by --passphrase-file. Nothing has changed.',
  )
}

/** Where the database was deleted to begin anew, its devices still have the passphrase that they had. */
function isNewVault({ documents, hasMembers, devices }: VaultState): boolean {
  return documents === null ? devices.length === 0 : documents === 0 && !hasMembers
}

async function setupOf(address: Address, { passphrase, isNew }: Encryption): Promise<LiveSyncSetup> {
  const opening = newPassphrase()
  const uri = await setupUri(liveSyncSettings(address, passphrase), opening)
  return { uri, passphrase: opening, newEncryption: isNew ? passphrase : null }
}
