/**
 * Creates vaults: a database for one note app, an account that can use only this database, and the token of a device.
 * Each step first checks whether its result exists, so that a command can be repeated.
 */
import { dirname } from 'node:path'
import type { Operator } from '../auth/operator.ts'
import type { TokenMaker } from '../auth/token-maker.ts'
import { decodeSendable } from '../core/bytes.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { type SecurityList, type SecurityObject, SYSTEM_USER, type UserCtx } from '../core/types.ts'
import { databaseRole } from '../documents/security.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import {
  LIVESYNC_VERSION_ID,
  liveSyncChanges,
  liveSyncFaults,
  MOBILE_DESIGN_ID,
  MOBILE_FILTER,
} from './livesync.ts'
import {
  checkOrder,
  isGuest,
  ownUrl,
  type StepOutcome,
  userText,
  type VaultControl,
  type VaultOrder,
  type VaultOutcome,
  type VaultQuery,
  type VaultServices,
  type VaultState,
} from './vault-control.ts'

/** How many commands may wait for another one. */
const MAX_WAITING = 16

/** @returns the commands, on the databases that are open in this process */
export function localVaultControl(
  services: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
): VaultControl {
  // Two commands for the same database would overwrite each other's list of members.
  const limiter = new Limiter(1, MAX_WAITING)
  return {
    readVault: (query) => readVault(services, query),
    addVault: (order) => limiter.run(() => addVault(services, operator, order)),
  }
}

async function addVault(
  services: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
  order: VaultOrder,
): Promise<VaultOutcome> {
  await checkOrder(services, order)
  const { databases, tokenMaker } = services
  // First, because writing local.ini is the step that is most likely to fail.
  const keys = order.liveSync ? await setKeys(services, order.account) : { settings: [], faults: [] }
  const account = await makeAccount(services, operator, order)
  const database = await makeDatabase(services, order)
  const handle = await databases.get(order.database)
  const security = (await isGuest(services, order)) ? 'there' : await grantAccess(handle, order.account)
  return {
    account,
    database,
    // In hosted mode, a database is made with its security object.
    security: database === 'made' && security === 'there' ? 'made' : security,
    filter: order.mobileFilter ? await putFilter(handle, SYSTEM_USER) : null,
    ...keys,
    ...(await makeToken(tokenMaker, order)),
  }
}

export async function readVault(
  services: VaultServices,
  { database, account }: VaultQuery,
): Promise<VaultState> {
  const { config, databases, tokenMaker } = services
  const listening = services.listening()
  return {
    ...(await readDatabase(databases, database)),
    hasAccount: (await userText(databases, account)) !== null,
    devices: await tokenMaker.names(account),
    admins: await services.adminNames(),
    listening: listening?.url ?? null,
    url: await ownUrl(config, listening),
    isHosted: config.isHosted,
    folder: dirname(config.path),
  }
}

async function readDatabase(
  databases: Databases,
  name: string,
): Promise<Pick<VaultState, 'documents' | 'hasMembers' | 'hasLiveSync'>> {
  if (!(await databases.has(name))) return { documents: null, hasMembers: false, hasLiveSync: false }
  const database = await databases.get(name)
  const { admins, members } = (await database.security()) ?? {}
  const named = [admins, members].flatMap((list) => list?.names ?? [])
  const { doc_count: documents } = await database.info(SYSTEM_USER)
  const hasLiveSync = (await readDocument(database, LIVESYNC_VERSION_ID)) !== null
  return { documents, hasMembers: named.length > 0, hasLiveSync }
}

async function makeAccount(
  { adminNames, databases }: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
  { account: name, password }: VaultOrder,
): Promise<StepOutcome> {
  // A token of a server admin gives no admin rights.
  if ((await adminNames()).includes(name) || (await userText(databases, name)) !== null) return 'there'
  await operator.addAccount({ name, password, roles: [] })
  return 'made'
}

async function makeDatabase(
  { databases, createDatabase }: VaultServices,
  { database, account }: VaultOrder,
): Promise<StepOutcome> {
  if (await databases.has(database)) return 'there'
  try {
    await createDatabase(database, account)
    return 'made'
  } catch (error) {
    // Another request has just created it.
    if (error instanceof CouchError && error.code === 'file_exists') return 'there'
    throw error
  }
}

const ANONYMOUS = { name: null, roles: [] }

async function grantAccess(database: DatabaseHandle, account: string): Promise<StepOutcome> {
  const before = await database.security()
  const after = withAccess(before, account)
  if (after === null) return 'there'
  await database.setSecurity(SYSTEM_USER, after)
  if (databaseRole(ANONYMOUS, before) !== 'none') return 'closed'
  return before === null ? 'made' : 'changed'
}

/** Adds the mobile filter to a database, with the rights of a user. @throws forbidden, hosted_design */
export async function putFilter(database: DatabaseHandle, user: UserCtx): Promise<StepOutcome> {
  const before = await readDocument(database, MOBILE_DESIGN_ID)
  const after = withMobileFilter(before)
  if (typeof after === 'string') return after
  await database.put(user, MOBILE_DESIGN_ID, { bytes: Buffer.from(JSON.stringify(after)) }, {})
  return before === null ? 'made' : 'changed'
}

async function readDocument(database: DatabaseHandle, id: string): Promise<Record<string, unknown> | null> {
  try {
    const { json } = await database.open(SYSTEM_USER, id, {})
    return JSON.parse(decodeSendable(json)) as Record<string, unknown>
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  }
}

/** Leaves the configuration unchanged in hosted mode, because it concerns all tenants. */
async function setKeys(
  { config, adminNames }: VaultServices,
  account: string,
): Promise<Pick<VaultOutcome, 'settings' | 'faults'>> {
  const hasAdmin = (await adminNames()).length > 0
  const changes = config.isHosted ? [] : liveSyncChanges((section, key) => config.get(section, key), hasAdmin)
  for (const { section, key, value } of changes) await config.set(section, key, value)
  return {
    settings: changes.map(({ section, key }) => `${section}/${key}`),
    faults: liveSyncFaults(config, account),
  }
}

/** Makes the token of a device; an existing one stays unless it is to be renewed. */
export async function makeToken(
  maker: TokenMaker,
  { account, device, renew }: VaultOrder,
): Promise<Pick<VaultOutcome, 'token' | 'secret'>> {
  if (device === null) return { token: null, secret: null }
  const isThere = (await maker.names(account)).includes(device)
  if (isThere && !renew) return { token: 'there', secret: null }
  if (isThere) await maker.revoke(account, device)
  return { token: isThere ? 'changed' : 'made', secret: await maker.make(account, device) }
}

/**
 * Adds an account to a security object, as a member and admin of this database. Existing members stay.
 * @returns null if the account already has access
 */
export function withAccess(security: SecurityObject | null, account: string): SecurityObject | null {
  const { admins, members = security?.readers as SecurityList | undefined, ...others } = security ?? {}
  const names = [admins, members].map((list) => list?.names ?? [])
  if (members !== undefined && names.every((listed) => listed.includes(account))) return null
  return { ...others, admins: withName(admins, account), members: withName(members, account) }
}

function withName({ names = [], roles = [], ...others }: SecurityList = {}, name: string): SecurityList {
  return { ...others, names: names.includes(name) ? names : [...names, name], roles }
}

/**
 * The design document with the mobile filter.
 * @param before the existing document; null: none
 * @returns the document to store; `there`: it already has the filter; `differs`: it has another filter, which stays
 */
export function withMobileFilter(
  before: Readonly<Record<string, unknown>> | null,
): object | 'there' | 'differs' {
  const filters = before?.filters ?? {}
  if (!isJsonObject(filters)) return 'differs'
  if (filters.sync === undefined) return { ...before, filters: { ...filters, sync: MOBILE_FILTER } }
  const isSame = typeof filters.sync === 'string' && normalized(filters.sync) === normalized(MOBILE_FILTER)
  return isSame ? 'there' : 'differs'
}

/** Removes differences without a meaning: white space, quotes and semicolons. */
function normalized(source: string): string {
  return source.replace(/[\s;]/g, '').replaceAll('"', "'")
}
