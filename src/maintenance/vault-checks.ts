/** What is looked at before any part of a vault is made, so that who is refused leaves nothing half done. */
import { verifyPassword } from '../auth/password.ts'
import { userAccount } from '../auth/user-account.ts'
import { readUser } from '../auth/user-documents.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import { databaseRole } from '../documents/security.ts'
import type { Databases } from '../threads/databases.ts'
import type { VaultOrder, VaultServices } from './vault-controls.ts'

/** @throws as `VaultControls.addVault`, for all that can be known before */
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
      'This server runs in hosted mode, which takes no design documents, so there can be no mobile filter. ' +
        'Leave --mobile-filter out: no pictures come to a hosted database, so there is nothing to leave out.',
    )
  }
  if (listening() === null) {
    throw new CouchError(
      'conflict',
      'In hosted mode a vault is made while the server runs, so that the account owns its database: start it first.',
    )
  }
  if (!databases.names().includes(database) || !isGuest(services, order)) return
  // Names are one for all tenants: two who call their notes alike are not to find themselves in one database.
  const security = await databases.get(database).security()
  if (databaseRole({ name: account, roles: [] }, security) !== 'none') return
  throw new CouchError(
    'conflict',
    `There is a database ${database} that is not ${account}'s, who was not let in: choose another name, or see ` +
      'docs/hosted.md for how its owner lets somebody in.',
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
      `${account} is a server admin, whose password is for no device: choose another --account, or a token by --device.`,
    )
  }
  const text = await userText(services.databases, account)
  if (text === null) return
  const stored = userAccount(account, JSON.parse(text))?.stored ?? null
  if (stored !== null && (await verifyPassword(password, stored))) return
  throw new CouchError(
    'conflict',
    `There is an account ${account} with another password, which was left as it is. ` +
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
