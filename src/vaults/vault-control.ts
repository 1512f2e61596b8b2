/** What the command line may ask about vaults, and what is needed to answer. */
import { readUser, userAccount } from '../auth/accounts.ts'
import { verifyPassword } from '../auth/password.ts'
import type { TokenMaker } from '../auth/tokens.ts'
import type { Config } from '../config/config.ts'
import { bindAddress, secureBindAddress } from '../config/settings.ts'
import { certificateHosts, isTlsEnabled } from '../config/tls-files.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import { databaseRole } from '../documents/security.ts'
import type { Databases } from '../threads/databases.ts'

export interface VaultQuery {
  readonly database: string
  readonly account: string
}

/** What is there of a vault. */
export interface VaultState {
  /** Documents that are not deleted; null: there is no such database. */
  readonly documents: number | null
  /** Whether its security object names anybody. */
  readonly hasMembers: boolean
  /** Whether Obsidian LiveSync has been at work there. */
  readonly hasLiveSync: boolean
  readonly hasAccount: boolean
  /** The names of the account's tokens. */
  readonly devices: readonly string[]
  /** Names of server admins, also of one that the environment makes at the next start. */
  readonly admins: readonly string[]
  /** Where the server listens; null: none runs. */
  readonly listening: string | null
  /** By which address it is reached where it listens, or would by its configuration, with a slash at the end. */
  readonly url: string
  readonly isHosted: boolean
  /** The data folder, absolute. */
  readonly folder: string
}

export interface VaultOrder extends VaultQuery {
  /** The token to make; null: the account's password is used instead. */
  readonly device: string | null
  /** Of a new account, and the one that an account must have that is there; null: none, and whichever it has. */
  readonly password: string | null
  /** Makes a new token in the place of one of this name. */
  readonly renew: boolean
  readonly mobileFilter: boolean
  /** Writes the keys of the configuration that Obsidian LiveSync looks at. */
  readonly liveSync: boolean
}

/** `differs`: there is another, which was left as it is; `closed`: it was open to everybody before. */
export type StepOutcome = 'made' | 'there' | 'changed' | 'differs' | 'closed'

export interface VaultOutcome {
  readonly account: StepOutcome
  readonly database: StepOutcome
  readonly security: StepOutcome
  /** null: not asked for. */
  readonly filter: StepOutcome | null
  /** `section/key` of what was changed in the configuration. */
  readonly settings: readonly string[]
  /** `section/key` of what is not as LiveSync's check of this account wants it, and was not this vault's to change. */
  readonly faults: readonly string[]
  /** null: not asked for. */
  readonly token: StepOutcome | null
  /** Of a token that was made. */
  readonly secret: string | null
}

export interface VaultControl {
  readVault(query: VaultQuery): Promise<VaultState>
  /**
   * Makes what is missing of a vault.
   * @throws before anything is made: conflict when the account has another password than the one given, or is a server
   *   admin, and in hosted mode when no server runs, or the database is another's; hosted_design for a mobile filter in
   *   hosted mode; illegal_database_name, database_name_too_long; as `TokenMaker.make`; unavailable when too many wait.
   *   Also what making the parts throws
   */
  addVault(order: VaultOrder): Promise<VaultOutcome>
}

export interface VaultServices {
  readonly config: Config
  readonly databases: Databases
  readonly tokenMaker: TokenMaker
  /** Makes a database, which in hosted mode the account owns. @throws as `Databases.create` */
  createDatabase(name: string, account: string): Promise<void>
  /** Names of server admins, sorted; also of one that the environment makes when the server starts. */
  adminNames(): Promise<readonly string[]>
  /** Null: no server runs. */
  listening(): Listening | null
  /** Whose a database is, in hosted mode. */
  ownerOf(database: string): string | undefined
}

// What is looked at before any part of a vault is made, so that who is refused leaves nothing half done.

/** @throws as `VaultControl.addVault`, for all that can be known before */
export async function checkOrder(services: VaultServices, order: VaultOrder): Promise<void> {
  checkDatabaseName(order.database)
  if (services.config.isHosted) await checkHosted(services, order)
  await checkPassword(services, order)
  await checkToken(services, order)
}

async function checkHosted(services: VaultServices, order: VaultOrder): Promise<void> {
  const { databases, listening } = services
  const { database, account, mobileFilter } = order
  if (mobileFilter) {
    throw new CouchError(
      'hosted_design',
      'This server runs in hosted mode, which allows no design documents and so no mobile filter. ' +
        'Leave out --mobile-filter: hosted databases hold no pictures.',
    )
  }
  if (listening() === null) {
    throw new CouchError(
      'conflict',
      'In hosted mode, a vault can only be created while the server is running: start it first.',
    )
  }
  if (!databases.names().includes(database) || !isGuest(services, order)) return
  // Names are one for all tenants: two who call their notes alike are not to find themselves in one database.
  const security = await databases.get(database).security()
  if (databaseRole({ name: account, roles: [] }, security) !== 'none') return
  throw new CouchError(
    'conflict',
    `The database ${database} exists, and ${account} has no access to it: choose another name, or see ` +
      'docs/hosted.md for how its owner can give access.',
  )
}

/** @returns whether the account has a place in the database only as far as its owner gives it one */
export function isGuest(
  { config, ownerOf }: Pick<VaultServices, 'config' | 'ownerOf'>,
  { database, account }: Pick<VaultOrder, 'database' | 'account'>,
): boolean {
  return config.isHosted && ownerOf(database) !== account
}

async function checkPassword(services: VaultServices, { account, password }: VaultOrder): Promise<void> {
  if (password === null) return
  if ((await services.adminNames()).includes(account)) {
    throw new CouchError(
      'conflict',
      `${account} is a server admin, whose password must not be on a device: choose another --account, or use --device for a token.`,
    )
  }
  const text = await userText(services.databases, account)
  if (text === null) return
  const stored = userAccount(account, JSON.parse(text))?.stored ?? null
  if (stored !== null && (await verifyPassword(password, stored))) return
  throw new CouchError(
    'conflict',
    `The account ${account} exists with another password, and was left unchanged. ` +
      `To change it: settee passwd ${account}`,
  )
}

async function checkToken({ tokenMaker }: VaultServices, { account, device }: VaultOrder): Promise<void> {
  if (device === null || (await tokenMaker.names(account)).includes(device)) return
  await tokenMaker.check(account, device)
}

/** @returns the account's document; null when there is none */
export async function userText(databases: Databases, name: string): Promise<string | null> {
  if (name === '' || !databases.names().includes(databases.usersDatabase)) return null
  return readUser(databases.get(databases.usersDatabase), name)
}

// Where devices reach a server, as far as it can tell by itself.

/** A server's own addresses, each with a slash at the end. */
interface Listening {
  readonly url: string
  /** By its own TLS; null: it speaks none. */
  readonly secureUrl: string | null
}

const LOOPBACK = /^(?:127\.|localhost\.?$|::1$)/

/** @param host of a URL: an IPv6 address in brackets or without */
export function isThisMachine(host: string): boolean {
  return LOOPBACK.test(host.replace(/[[\]]/g, ''))
}

/**
 * Where settee speaks TLS itself, by TLS, since phones take nothing else: under a name of its certificate, the only
 * ones under which clients trust it. Where that names none that leads to where it listens, without.
 * @param listening null: none runs, and the configuration says where it would
 * @returns with a slash at the end
 */
export async function ownUrl(config: Config, listening: Listening | null): Promise<string> {
  const { url, secureUrl } = listening ?? configured(config)
  if (secureUrl === null) return url
  const { hostname, port } = /^https:\/\/(?<hostname>.*):(?<port>\d+)\/$/.exec(secureUrl)?.groups ?? {}
  const isHere = isThisMachine(hostname ?? '')
  const named = (await certificateHosts(config)).find((host) => isThisMachine(host) === isHere)
  return named === undefined ? url : `https://${named}:${port}/`
}

function configured(config: Config): Listening {
  const at = (host: string) => (host.includes(':') ? `[${host}]` : host)
  return {
    url: `http://${at(bindAddress(config))}:${config.integer('chttpd', 'port')}/`,
    secureUrl: isTlsEnabled(config)
      ? `https://${at(secureBindAddress(config))}:${config.integer('ssl', 'port')}/`
      : null,
  }
}
