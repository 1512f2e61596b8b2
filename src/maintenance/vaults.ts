/**
 * Vaults for the command line: a database for one note app, an account that may do nothing else, and the token of a
 * device. Each step looks first whether it was done before, so that the same command twice comes to the same end.
 */
import { randomBytes } from 'node:crypto'
import { dirname } from 'node:path'
import type { Operator } from '../auth/operator.ts'
import type { TokenMaker } from '../auth/token-maker.ts'
import { HOUSE } from '../auth/users-feed.ts'
import { CouchError } from '../core/errors.ts'
import { MOBILE_DESIGN_ID } from '../core/mobile-filter.ts'
import { WorkQueue } from '../core/work-queue.ts'
import { databaseRole } from '../documents/security.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { LIVESYNC_VERSION_ID, liveSyncChanges, liveSyncFaults } from './livesync-keys.ts'
import { checkOrder, isGuest, userText } from './vault-checks.ts'
import type {
  StepOutcome,
  VaultControls,
  VaultOrder,
  VaultOutcome,
  VaultQuery,
  VaultServices,
  VaultState,
} from './vault-controls.ts'
import { openedTo, withMobileFilter } from './vault-documents.ts'
import { ownUrl } from './vault-place.ts'

/** Of a password that nobody knows. */
const PASSWORD_BYTES = 32

/** Commands that wait for another to be done with its vault. */
const WAITING = 16

/** @returns what works on the databases that are open in this process */
export function localVaults(services: VaultServices, operator: Pick<Operator, 'addAccount'>): VaultControls {
  // Two that let somebody into the same database would each write the list that they have read.
  const turns = new WorkQueue(1, WAITING)
  return {
    readVault: (query) => readVault(services, query),
    addVault: (order) => turns.take(() => addVault(services, operator, order)),
  }
}

async function addVault(
  services: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
  order: VaultOrder,
): Promise<VaultOutcome> {
  await checkOrder(services, order)
  const { databases, tokenMaker } = services
  // First, since a local.ini that cannot be written is the likeliest to fail.
  const keys = order.liveSync ? await setKeys(services, order.account) : { settings: [], faults: [] }
  const account = await makeAccount(services, operator, order)
  const database = await makeDatabase(services, order)
  const handle = databases.get(order.database)
  const security = isGuest(services, order) ? 'there' : await letIn(handle, order.account)
  return {
    account,
    database,
    // In hosted mode it is made with its security object.
    security: database === 'made' && security === 'there' ? 'made' : security,
    filter: order.mobileFilter ? await putFilter(handle) : null,
    ...keys,
    ...(await makeToken(tokenMaker, order)),
  }
}

async function readVault(services: VaultServices, { database, account }: VaultQuery): Promise<VaultState> {
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
  if (!databases.names().includes(name)) return { documents: null, hasMembers: false, hasLiveSync: false }
  const database = databases.get(name)
  const { admins, members } = (await database.security()) ?? {}
  const named = [admins, members].flatMap((list) => list?.names ?? [])
  const { doc_count: documents } = await database.info(HOUSE)
  const hasLiveSync = (await readDocument(database, LIVESYNC_VERSION_ID)) !== null
  return { documents, hasMembers: named.length > 0, hasLiveSync }
}

async function makeAccount(
  { adminNames, databases }: VaultServices,
  operator: Pick<Operator, 'addAccount'>,
  { account: name, password }: VaultOrder,
): Promise<StepOutcome> {
  // A token of a server admin lets nobody in as an admin.
  if ((await adminNames()).includes(name) || (await userText(databases, name)) !== null) return 'there'
  const unknown = randomBytes(PASSWORD_BYTES).toString('base64url')
  await operator.addAccount({ name, password: password ?? unknown, roles: [] })
  return 'made'
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

const NOBODY = { name: null, roles: [] }

async function letIn(database: DatabaseHandle, account: string): Promise<StepOutcome> {
  const before = await database.security()
  const after = openedTo(before, account)
  if (after === null) return 'there'
  await database.setSecurity(HOUSE, after)
  if (databaseRole(NOBODY, before) !== 'none') return 'closed'
  return before === null ? 'made' : 'changed'
}

async function putFilter(database: DatabaseHandle): Promise<StepOutcome> {
  const before = await readDocument(database, MOBILE_DESIGN_ID)
  const after = withMobileFilter(before)
  if (typeof after === 'string') return after
  await database.put(HOUSE, MOBILE_DESIGN_ID, { bytes: Buffer.from(JSON.stringify(after)) }, {})
  return before === null ? 'made' : 'changed'
}

async function readDocument(database: DatabaseHandle, id: string): Promise<Record<string, unknown> | null> {
  try {
    const { json } = await database.open(HOUSE, id, {})
    const bytes = typeof json === 'string' ? Buffer.from(json, 'latin1') : Buffer.from(json)
    return JSON.parse(bytes.toString()) as Record<string, unknown>
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  }
}

/** In hosted mode the configuration is not one vault's to change. */
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
