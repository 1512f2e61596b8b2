/** What somebody asks of a vault, as a plan: names, address and passphrase are checked before anything is made. */
import {
  type Address,
  type AddressFaultCode,
  DATABASE_NAME,
  formatAddress,
  parseAddress,
} from '../core/address.ts'
import { type Encryption, newPassphrase } from './livesync-setup.ts'
import type { VaultOrder, VaultQuery, VaultState } from './vault-control.ts'

export const APPS = ['inkdrop', 'livesync', 'pouchdb'] as const
export type App = (typeof APPS)[number]

export interface VaultWish {
  readonly vault: string
  readonly app: App
  /** Scheme, host and port at which devices reach the server; undefined: where it listens. */
  readonly host: string | undefined
  readonly account: string | undefined
  readonly device: string | undefined
  readonly mobileFilter: boolean
  readonly renew: boolean
}

export interface VaultPlan {
  readonly wish: VaultWish
  readonly order: VaultOrder
  readonly place: Address
  /** null: there is none, it is unknown, or the output does not contain it. */
  readonly encryption: Encryption | null
}

/** Whoever knows the passphrase with which the devices of a vault encrypt the notes. */
export interface PassphraseSource {
  /** @returns null: none was given, and a new vault gets a new one */
  given(state: VaultState): Promise<Encryption | null>
  /**
   * Called for a vault that may hold encrypted notes.
   * @returns null: it stays unknown, and there is no Setup URI
   */
  ask(): Promise<Encryption | null>
}

/** @returns the names of the vault's database and account */
export function vaultOf({ vault, account }: Pick<VaultWish, 'vault' | 'account'>): VaultQuery {
  return { database: vault, account: account ?? vault }
}

/**
 * Creates nothing yet.
 * @param password the account's password, used instead of a token; null: the device gets a token
 * @param state the current state of the vault
 * @throws Error with a one-line message: an invalid address; as the source of passphrases
 */
export async function planVault(
  wish: VaultWish,
  password: string | null,
  state: VaultState,
  passphrases: PassphraseSource,
): Promise<VaultPlan> {
  const { app, host, renew, mobileFilter } = wish
  const { database, account } = vaultOf(wish)
  const device = password === null ? (wish.device ?? app) : null
  const place = vaultAddress(host ?? state.url, database)
  // Throws before anything is created if a name does not fit into an address.
  withCredentials(place, account, password ?? 'a token')
  const isLiveSync = app === 'livesync'
  const keepsToken = device !== null && state.devices.includes(device) && !renew
  const encryption = isLiveSync && !keepsToken ? await encryptionOf(state, passphrases) : null
  const order = { database, account, device, password, renew, mobileFilter, liveSync: isLiveSync }
  return { wish, order, place, encryption }
}

/** A new vault gets a new passphrase. Any other may already have one, which the server does not know. */
async function encryptionOf(state: VaultState, passphrases: PassphraseSource): Promise<Encryption | null> {
  const given = await passphrases.given(state)
  if (given !== null) return given
  return isNewVault(state) ? { passphrase: newPassphrase(), isNew: true } : passphrases.ask()
}

/** If the database was deleted and created again, its devices still have their old passphrase. */
function isNewVault({ documents, hasMembers, devices }: VaultState): boolean {
  return documents === null ? devices.length === 0 : documents === 0 && !hasMembers
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

/** @throws Error if the name or the password does not fit into an address */
export function withCredentials(place: Address, username: string, password: string): Address {
  return requireAddress(formatAddress({ ...place, username, password }))
}

function requireAddress(text: string): Address {
  const result = parseAddress(text)
  if (result.ok) return result.address
  throw new Error(result.faults.map(({ reason, mend }) => `${reason} ${mend}`).join(' '))
}

// The faults of names and addresses, as sentences.

/**
 * @param app undefined: not known yet
 * @returns the fault of a vault's name, as a sentence; undefined: none
 */
export function vaultFault(name: string, app?: App): string | undefined {
  if (!DATABASE_NAME.test(name))
    return "A vault's name starts with a lowercase letter, followed by lowercase letters, digits and any of _ $ ( ) + - /."
  // LiveSync appends the name to the server's URL unescaped (livesync-commonlib 0.1.18, connectRemoteCouchDB).
  if (app !== 'livesync' || !name.includes('/')) return undefined
  return "With LiveSync, a vault's name must not contain a slash."
}

/** Faults after the port. Their texts about a database would not help, because only the server's address is needed. */
const AFTER_THE_PORT: ReadonlySet<AddressFaultCode> = new Set([
  'path',
  'query',
  'database',
  'database_missing',
])

/** @returns the faults of the address at which devices reach the server; undefined: none */
export function hostFault(host: string): string | undefined {
  const result = parseAddress(`${host.trim().replace(/\/$/, '')}/n`)
  if (result.ok)
    return result.address.username === undefined
      ? undefined
      : 'The address must not contain a user name or password.'
  const faults = result.faults.filter(({ code }) => !AFTER_THE_PORT.has(code))
  const messages = faults.map(({ reason, mend }) => `${reason} ${mend}`)
  if (faults.length < result.faults.length)
    messages.push('After the port there is nothing, or the path at which a proxy serves the server.')
  return messages.join(' ')
}
