/**
 * Vaults for the command line: a database for one note app, an account that may do nothing else, and the token of a
 * device. Each step looks first whether it was done before, so that the same command twice comes to the same end.
 */
import { randomBytes } from 'node:crypto'
import type { Operator } from '../auth/operator.ts'
import { verifyPassword } from '../auth/password.ts'
import type { TokenMaker } from '../auth/token-maker.ts'
import { userAccount } from '../auth/user-account.ts'
import { readUser } from '../auth/user-documents.ts'
import { HOUSE } from '../auth/users-feed.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { MOBILE_DESIGN_ID } from '../core/mobile-filter.ts'
import { USERS_DATABASE } from '../core/user-ids.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { liveSyncChanges } from './livesync-keys.ts'
import { openedTo, withMobileFilter } from './vault-documents.ts'

export interface VaultQuery {
  readonly database: string
  readonly account: string
}

/** What is there of a vault. */
export interface VaultState {
  /** Documents that are not deleted; null: there is no such database. */
  readonly documents: number | null
  readonly hasAccount: boolean
  /** The names of the account's tokens. */
  readonly devices: readonly string[]
  /** Names of server admins. */
  readonly admins: readonly string[]
  /** Where the server listens; null: none runs. */
  readonly listening: string | null
  /** Where it listens, or would by its configuration. */
  readonly url: string
  readonly isHosted: boolean
}

export interface VaultOrder extends VaultQuery {
  /** The token to make; null: the account's password is used instead. */
  readonly device: string | null
  /** Of a new account, and the one that an account must have that is there; null: nobody knows it. */
  readonly password: string | null
  /** Makes a new token in the place of one of this name. */
  readonly renew: boolean
  readonly mobileFilter: boolean
  /** Writes the keys of the configuration that Obsidian LiveSync looks at. */
  readonly liveSync: boolean
}

/** `differs`: there is another, which was left as it is. */
export type StepOutcome = 'made' | 'there' | 'changed' | 'differs'

export interface VaultOutcome {
  readonly account: StepOutcome
  readonly database: StepOutcome
  readonly security: StepOutcome
  /** null: not asked for. */
  readonly filter: StepOutcome | null
  /** `section/key` of what was changed in the configuration. */
  readonly settings: readonly string[]
  /** null: not asked for. */
  readonly token: StepOutcome | null
  /** Of a token that was made. */
  readonly secret: string | null
}

export interface VaultControls {
  readVault(query: VaultQuery): Promise<VaultState>
  /**
   * Makes what is missing of a vault.
   * @throws conflict when the account has another password than the one given, or is a server admin; hosted_design
   *   for a mobile filter in hosted mode, before anything is made; what making the parts throws
   */
  addVault(order: VaultOrder): Promise<VaultOutcome>
}

export interface VaultServices {
  readonly config: Config
  readonly databases: Databases
  readonly tokenMaker: TokenMaker
  /** Makes a database, which in hosted mode the account owns. @throws as `Databases.create` */
  createDatabase(name: string, account: string): Promise<void>
  /** Where the server listens; null: none runs. */
  listening(): string | null
}

/** Of a password that nobody knows. */
const PASSWORD_BYTES = 32

/** @returns what works on the databases that are open in this process */
export function localVaults(
  services: VaultServices,
  operator: Pick<Operator, 'addAccount' | 'listAccounts'>,
): VaultControls {
  return {
    readVault: (query) => readVault(services, query),
    addVault: async (order) => {
      checkOrder(services, order)
      return {
        account: await makeAccount(services, operator, order),
        database: await makeDatabase(services, order),
        security: await letIn(services.databases.get(order.database), order.account),
        filter: order.mobileFilter ? await putFilter(services.databases.get(order.database)) : null,
        settings: order.liveSync ? await setKeys(services.config) : [],
        ...(await makeToken(services.tokenMaker, order)),
      }
    },
  }
}

async function readVault(services: VaultServices, { database, account }: VaultQuery): Promise<VaultState> {
  const { config, databases, tokenMaker } = services
  const isThere = databases.names().includes(database)
  const listening = services.listening()
  return {
    documents: isThere ? (await databases.get(database).info(HOUSE)).doc_count : null,
    hasAccount: (await userText(databases, account)) !== null,
    devices: await tokenMaker.names(account),
    admins: Object.keys(config.section('admins')).sort(),
    listening,
    url: listening ?? configuredUrl(config),
    isHosted: config.isHosted,
  }
}

function configuredUrl(config: Config): string {
  const host = config.get('chttpd', 'bind_address') ?? '127.0.0.1'
  return `http://${host.includes(':') ? `[${host}]` : host}:${config.integer('chttpd', 'port')}/`
}

function checkOrder({ config }: VaultServices, { account, password, mobileFilter }: VaultOrder): void {
  if (config.isHosted && mobileFilter) {
    throw new CouchError(
      'hosted_design',
      'This server runs in hosted mode, which takes no design documents, so there can be no mobile filter. ' +
        'Leave --mobile-filter out: no pictures come to a hosted database, so there is nothing to leave out.',
    )
  }
  if (password === null || config.get('admins', account) === undefined) return
  throw new CouchError(
    'conflict',
    `${account} is a server admin, whose password is for no device: choose another --account, or a token by --device.`,
  )
}

async function makeAccount(
  { config, databases }: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
  { account: name, password }: VaultOrder,
): Promise<StepOutcome> {
  // A token of a server admin lets nobody in as an admin.
  if (config.get('admins', name) !== undefined) return 'there'
  const text = await userText(databases, name)
  if (text === null) {
    await operator.addAccount({
      name,
      password: password ?? randomBytes(PASSWORD_BYTES).toString('base64url'),
      roles: [],
    })
    return 'made'
  }
  const stored = userAccount(name, JSON.parse(text))?.stored ?? null
  if (password === null || (stored !== null && (await verifyPassword(password, stored)))) return 'there'
  throw new CouchError(
    'conflict',
    `There is an account ${name} with another password, which was left as it is. To change it: settee passwd ${name}`,
  )
}

async function userText(databases: Databases, name: string): Promise<string | null> {
  if (name === '' || !databases.names().includes(USERS_DATABASE)) return null
  return readUser(databases.get(USERS_DATABASE), name)
}

async function makeDatabase(
  { databases, createDatabase }: VaultServices,
  { database, account }: VaultOrder,
): Promise<StepOutcome> {
  if (databases.names().includes(database)) return 'there'
  try {
    await createDatabase(database, account)
    return 'made'
  } catch (error) {
    // Somebody was faster.
    if (error instanceof CouchError && error.code === 'file_exists') return 'there'
    throw error
  }
}

async function letIn(database: DatabaseHandle, account: string): Promise<StepOutcome> {
  const before = await database.security()
  const after = openedTo(before, account)
  if (after === null) return 'there'
  await database.setSecurity(HOUSE, after)
  return before === null ? 'made' : 'changed'
}

async function putFilter(database: DatabaseHandle): Promise<StepOutcome> {
  const before = await readFilter(database)
  const after = withMobileFilter(before)
  if (typeof after === 'string') return after
  await database.put(HOUSE, MOBILE_DESIGN_ID, { bytes: Buffer.from(JSON.stringify(after)) }, {})
  return before === null ? 'made' : 'changed'
}

async function readFilter(database: DatabaseHandle): Promise<Record<string, unknown> | null> {
  try {
    const { json } = await database.open(HOUSE, MOBILE_DESIGN_ID, {})
    const bytes = typeof json === 'string' ? Buffer.from(json, 'latin1') : Buffer.from(json)
    return JSON.parse(bytes.toString()) as Record<string, unknown>
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  }
}

/** In hosted mode the configuration is not one vault's to change. */
async function setKeys(config: Config): Promise<string[]> {
  if (config.isHosted) return []
  const hasAdmin = Object.keys(config.section('admins')).length > 0
  const changes = liveSyncChanges((section, key) => config.get(section, key), hasAdmin)
  for (const { section, key, value } of changes) await config.set(section, key, value)
  return changes.map(({ section, key }) => `${section}/${key}`)
}

async function makeToken(
  maker: TokenMaker,
  { account, device, renew }: VaultOrder,
): Promise<Pick<VaultOutcome, 'token' | 'secret'>> {
  if (device === null) return { token: null, secret: null }
  const isThere = (await maker.names(account)).includes(device)
  if (isThere && !renew) return { token: 'there', secret: null }
  if (isThere) await maker.revoke(account, device)
  return { token: isThere ? 'changed' : 'made', secret: await maker.make(account, device) }
}
