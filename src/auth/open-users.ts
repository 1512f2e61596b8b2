/** The accounts of a server, put together: server admins of the configuration, and `_users`. */
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { hashingOf } from '../config/settings.ts'
import { CouchError } from '../core/errors.ts'
import type { Databases } from '../threads/databases.ts'
import type { Accounts } from './accounts.ts'
import { adminAccounts } from './admins.ts'
import { HashUpgrades } from './hash-upgrades.ts'
import { PerUserDatabases, type PerUserOptions } from './peruser.ts'
import { combinedAccounts, usersAccounts } from './users.ts'

export interface OpenedUsers {
  readonly accounts: Accounts
  readonly upgrades: HashUpgrades
  /** Before the databases are closed. */
  close(): Promise<void>
}

export interface OpenUsersOptions {
  readonly config: Config
  readonly databases: Databases
  /** What databases of users' own are made and deleted in. */
  readonly perUser: PerUserOptions['databases']
  readonly logger: Pick<Logger, 'error' | 'warn'>
}

/**
 * Makes `_users` if it is not there, follows it, and gives each user a database where that is wished for.
 * @throws what keeps `_users` from being made, but for a full disk
 */
export async function openUsers({
  config,
  databases,
  perUser: perUserDatabases,
  logger,
}: OpenUsersOptions): Promise<OpenedUsers> {
  await databases.create(databases.usersDatabase).catch((error: unknown) => {
    // A disk that is full must not keep an admin from starting the server to make room.
    const code = error instanceof CouchError ? error.code : null
    if (code === 'insufficient_storage')
      logger.error({ err: error }, 'the database of accounts cannot be made')
    else if (code !== 'file_exists') throw error
  })
  const hashing = () => hashingOf(config)
  const users = usersAccounts(databases, { hashing })
  const upgrades = new HashUpgrades({
    databases,
    isOn: () => config.boolean('chttpd_auth', 'upgrade_hash_on_auth'),
    hashing,
    onFault: (fault) => logger.warn({ err: fault }, "a user's weak hash could not be made anew"),
  })
  const perUser = new PerUserDatabases({
    databases: perUserDatabases,
    config,
    onFault: (fault, user) =>
      logger.warn({ err: fault, user }, 'couch_peruser could not do its work for a user, or for now'),
  })
  perUser.start()
  return {
    accounts: combinedAccounts(adminAccounts(config), users),
    upgrades,
    close: async () => {
      users.close()
      await perUser.close()
    },
  }
}
