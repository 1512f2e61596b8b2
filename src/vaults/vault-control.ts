/** The control commands of vaults, and the checks before a vault is created. */
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

/** The current state of a vault. */
export interface VaultState {
  /** Documents that are not deleted; null: the database does not exist. */
  readonly documents: number | null
  /** Whether its security object names anybody. */
  readonly hasMembers: boolean
  /** Whether Obsidian LiveSync has used the database. */
  readonly hasLiveSync: boolean
  readonly hasAccount: boolean
  /** The names of the account's tokens. */
  readonly devices: readonly string[]
  /** Names of server admins, including one that the environment creates at the next start. */
  readonly admins: readonly string[]
  /** Where the server listens; null: none runs. */
  readonly listening: string | null
  /** The server's address, or the one of its configuration if it is stopped, with a slash at the end. */
  readonly url: string
  readonly isHosted: boolean
  /** The data folder, absolute. */
  readonly folder: string
}

export interface VaultOrder extends VaultQuery {
  /** The token to make; null: the account's password is used instead. */
  readonly device: string | null
  /** Password of a new account, which an existing account must have, too; null: no check, and no password. */
  readonly password: string | null
  /** Whether to replace an existing token of this name. */
  readonly renew: boolean
  readonly mobileFilter: boolean
  /** Writes the keys of the configuration that Obsidian LiveSync looks at. */
  readonly liveSync: boolean
}

/** `differs`: another one exists and was left unchanged; `closed`: it was open to everyone before. */
export type StepOutcome = 'made' | 'there' | 'changed' | 'differs' | 'closed'

export interface VaultOutcome {
  readonly account: StepOutcome
  readonly database: StepOutcome
  readonly security: StepOutcome
  /** null: not requested. */
  readonly filter: StepOutcome | null
  /** `section/key` of each changed setting. */
  readonly settings: readonly string[]
  /** `section/key` of each setting that LiveSync's check will complain about and that this command may not change. */
  readonly faults: readonly string[]
  /** null: not requested. */
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

/** Checks everything before any part is created. @throws as `VaultControl.addVault` */
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
  // All tenants share one name space, so two tenants with the same name must not get one database.
  const security = await databases.get(database).security()
  if (databaseRole({ name: account, roles: [] }, security) !== 'none') return
  throw new CouchError(
    'conflict',
    `The database ${database} exists, and ${account} has no access to it: choose another name, or see ` +
      'docs/hosted.md for how its owner can give access.',
  )
}

/** @returns whether the account is not the owner of the database, in hosted mode */
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

/** A server's own addresses, each with a slash at the end. */
interface Listening {
  readonly url: string
  /** With its own TLS; null: it has none. */
  readonly secureUrl: string | null
}

const LOOPBACK = /^(?:127\.|localhost\.?$|::1$)/

/** @param host of a URL: an IPv6 address in brackets or without */
export function isThisMachine(host: string): boolean {
  return LOOPBACK.test(host.replace(/[[\]]/g, ''))
}

/**
 * Finds the server's own address. With its own TLS, it is https under a name of the certificate, since phones require
 * both. If no name of the certificate fits, it is http.
 * @param listening null: no server runs, so the configuration decides
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
