/** The control commands of vaults, and the checks before a vault is created. */
import { readUser, userAccount } from '../auth/accounts.ts'
import { verifyPassword } from '../auth/password.ts'
import type { TokenMaker } from '../auth/token-maker.ts'
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
  /** The number of documents that are not deleted; null: the database does not exist. */
  readonly documents: number | null
  /** Whether its security object names any user. */
  readonly hasMembers: boolean
  /** Whether Obsidian LiveSync has used the database. */
  readonly hasLiveSync: boolean
  readonly hasAccount: boolean
  /** The names of the account's tokens. */
  readonly devices: readonly string[]
  /** Names of server admins, including one that the environment creates at the next start. */
  readonly admins: readonly string[]
  /** The URL where the server listens; null: no server is running. */
  readonly listening: string | null
  /** The URL of the server, from its configuration if it is stopped, with a slash at the end. */
  readonly url: string
  readonly isHosted: boolean
  /** The data folder, absolute. */
  readonly folder: string
}

export interface VaultOrder extends VaultQuery {
  /** The token to make; null: the account's password is used instead. */
  readonly device: string | null
  /** The password of a new account, or the one that an existing account must have; null: no password, and no check. */
  readonly password: string | null
  /** Whether to replace an existing token of this name. */
  readonly renew: boolean
  readonly mobileFilter: boolean
  /** Whether to write the configuration keys that Obsidian LiveSync checks. */
  readonly liveSync: boolean
}

/**
 * `there`: it existed; `differs`: another one exists and was left unchanged; `closed`: it was open to everyone before.
 */
export type StepOutcome = 'made' | 'there' | 'changed' | 'differs' | 'closed'

export interface VaultOutcome {
  readonly account: StepOutcome
  readonly database: StepOutcome
  readonly security: StepOutcome
  /** null: not requested. */
  readonly filter: StepOutcome | null
  /** `section/key` of each changed setting. */
  readonly settings: readonly string[]
  /** `section/key` of each setting that LiveSync's check will complain about, and that this command may not change. */
  readonly faults: readonly string[]
  /** null: not requested. */
  readonly token: StepOutcome | null
  /** The new token; null: none was made. */
  readonly secret: string | null
}

export interface VaultControl {
  readVault(query: VaultQuery): Promise<VaultState>
  /**
   * Makes the missing parts of a vault.
   * @throws before anything is made: conflict when the account has another password than the given one, or is a server
   *   admin, and in hosted mode when no server runs, or the database belongs to another tenant; hosted_design for a
   *   mobile filter in hosted mode; illegal_database_name, database_name_too_long; as `TokenMaker.make`; unavailable
   *   when too many calls wait. Also the errors of making the parts
   */
  addVault(order: VaultOrder): Promise<VaultOutcome>
}

export interface VaultServices {
  readonly config: Config
  readonly databases: Databases
  readonly tokenMaker: TokenMaker
  /** Makes a database. In hosted mode, the account owns it. @throws as `Databases.create` */
  createDatabase(name: string, account: string): Promise<void>
  /** Sorted names of server admins, including one that the environment creates at the next start. */
  adminNames(): Promise<readonly string[]>
  /** null: no server is running. */
  listening(): Listening | null
  /** The owner of a database, in hosted mode. */
  ownerOf(database: string): Promise<string | undefined>
}

/** Checks everything before any part is created. @throws as `VaultControl.addVault` */
export async function checkOrder(services: VaultServices, order: VaultOrder): Promise<void> {
  checkDatabaseName(order.database)
  if (services.config.isHosted) await checkHosted(services, order)
  await checkPassword(services, order)
  await requireToken(services, order)
}

async function checkHosted(services: VaultServices, order: VaultOrder): Promise<void> {
  const { databases, listening } = services
  const { database, account, mobileFilter } = order
  if (mobileFilter) refuseHostedFilter()
  if (listening() === null) {
    throw new CouchError(
      'conflict',
      'In hosted mode, a vault can only be created while the server is running: start it first.',
    )
  }
  if (!(await databases.has(database)) || !(await isGuest(services, order))) return
  // All tenants share one namespace, so two vaults of the same name must not share one database.
  const security = await (await databases.get(database)).security()
  if (databaseRole({ name: account, roles: [] }, security) !== 'none') return
  throw new CouchError(
    'conflict',
    `The database ${database} exists, and ${account} has no access to it: choose another name, or see ` +
      'docs/hosted.md for how its owner can give access.',
  )
}

/** @throws hosted_design */
export function refuseHostedFilter(): never {
  throw new CouchError(
    'hosted_design',
    'This server runs in hosted mode, which allows no design documents and so no mobile filter. ' +
      'Leave it out: hosted databases hold no pictures.',
  )
}

/** @returns whether the account is not the owner of the database, in hosted mode */
export async function isGuest(
  { config, ownerOf }: Pick<VaultServices, 'config' | 'ownerOf'>,
  { database, account }: Pick<VaultOrder, 'database' | 'account'>,
): Promise<boolean> {
  return config.isHosted && (await ownerOf(database)) !== account
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

/** Checks that the order's token can be made, unless it exists. @throws as `TokenMaker.make` */
export async function requireToken(
  { tokenMaker }: VaultServices,
  { account, device }: VaultOrder,
): Promise<void> {
  if (device === null || (await tokenMaker.names(account)).includes(device)) return
  await tokenMaker.check(account, device)
}

/** @returns the account's document; null when there is none */
export async function userText(databases: Databases, name: string): Promise<string | null> {
  if (name === '' || !(await databases.has(databases.usersDatabase))) return null
  return readUser(await databases.get(databases.usersDatabase), name)
}

/** The URLs where a server listens, each with a slash at the end. */
interface Listening {
  readonly url: string
  /** The URL of the server's own TLS; null: it has none. */
  readonly secureUrl: string | null
}

const LOOPBACK = /^(?:127\.|localhost\.?$|::1$)/

/** @param host of a URL; an IPv6 address may have brackets */
export function isThisMachine(host: string): boolean {
  return LOOPBACK.test(host.replace(/[[\]]/g, ''))
}

/**
 * Finds the server's own URL. With its own TLS, that is https with a name of the certificate, because phones require
 * both. If no name of the certificate fits, it is http.
 * @param listening null: no server is running, so the configuration decides
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
