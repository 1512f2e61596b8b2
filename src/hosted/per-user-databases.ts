/** Databases as `couch_peruser` sees them in hosted mode: those that it makes belong to their users. */
import type { Config } from '../config/config.ts'
import type { Databases } from '../threads/databases.ts'
import { perUserPrefix } from './per-user-prefix.ts'
import type { TenantDatabases } from './tenant-databases.ts'

const HEX = /^(?:[0-9a-f]{2})+$/

/** The same databases; one that is made is the account's whose name in hex it bears. */
export function perUserDatabases(
  databases: Databases,
  tenantDatabases: TenantDatabases,
  config: Config,
): PerUserView {
  const accountOf = (name: string): string | null => {
    const hex = name.slice(perUserPrefix(config).length)
    return HEX.test(hex) ? Buffer.from(hex, 'hex').toString() : null
  }
  return {
    usersDatabase: databases.usersDatabase,
    get: (name) => databases.get(name),
    create: (name) => tenantDatabases.create(name, accountOf(name)),
    delete: (name) => tenantDatabases.delete(name),
    watchUpdates: (listener) => databases.watchUpdates(listener),
    readRecords: (kind) => databases.readRecords(kind),
    writeRecords: (writes) => databases.writeRecords(writes),
  }
}

/** What `couch_peruser` needs of databases. */
type PerUserView = Pick<
  Databases,
  'usersDatabase' | 'get' | 'create' | 'delete' | 'watchUpdates' | 'readRecords' | 'writeRecords'
>
