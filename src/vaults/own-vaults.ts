/**
 * Vaults as an account may make them for itself: the token of another device for a database that it may use, and in
 * hosted mode also the database. Everything is done with the rights of the account, and no setting is changed.
 */
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { databaseRole } from '../documents/security.ts'
import { liveSyncFaults } from './livesync.ts'
import {
  refuseHostedFilter,
  requireToken,
  type VaultControl,
  type VaultOrder,
  type VaultOutcome,
  type VaultServices,
  type VaultState,
} from './vault-control.ts'
import { makeToken, putFilter, readVault } from './vaults.ts'

export interface OwnVaultServices extends VaultServices {
  /** Makes a database of a tenant, in hosted mode. @throws as `Policy.createDatabase` */
  createOwn(name: string, user: UserCtx): Promise<void>
}

/**
 * @returns the commands for one account. Orders are for this account and have no password. Errors beside those of
 *   `VaultControl`: forbidden if the account may not use the database, or create it; file_exists in hosted mode
 */
export function ownVaultControl(services: OwnVaultServices, user: UserCtx): VaultControl {
  return {
    readVault: async (query) => {
      checkDatabaseName(query.database)
      const state = await readVault(services, query)
      return (await isUsable(services, user, query.database)) ? state : asAbsent(state)
    },
    addVault: (order) => addOwn(services, user, order),
  }
}

async function addOwn(services: OwnVaultServices, user: UserCtx, order: VaultOrder): Promise<VaultOutcome> {
  const { config, databases, tokenMaker, createOwn } = services
  const { database, account, mobileFilter, liveSync } = order
  checkDatabaseName(database)
  if (config.isHosted && mobileFilter) refuseHostedFilter()
  await requireToken(services, order)
  const isThere = await isUsable(services, user, database)
  if (!isThere) await createOwn(database, user)
  return {
    account: 'there',
    database: isThere ? 'there' : 'made',
    security: isThere ? 'there' : 'made',
    filter: mobileFilter ? await putFilter(await databases.get(database), user) : null,
    settings: [],
    faults: liveSync ? liveSyncFaults(config, account) : [],
    ...(await makeToken(tokenMaker, order)),
  }
}

/** @throws forbidden in single mode, where accounts may know of a database, but not create one */
async function isUsable({ config, databases }: VaultServices, user: UserCtx, name: string): Promise<boolean> {
  const isThere = await databases.has(name)
  if (isThere && databaseRole(user, await (await databases.get(name)).security()) !== 'none') return true
  if (config.isHosted) return false
  throw new CouchError(
    'forbidden',
    isThere
      ? `Your account has no access to the database ${name}: ask a server admin for it.`
      : `There is no database ${name}, and only a server admin can create one.`,
  )
}

/** A database of somebody else looks as if it did not exist. */
function asAbsent(state: VaultState): VaultState {
  return { ...state, documents: null, hasMembers: false, hasLiveSync: false }
}
