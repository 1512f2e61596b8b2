/** Where the bytes of databases are, for the command line. */
import { HOUSE } from '../auth/users-feed.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { DatabaseSize } from '../documents/database.ts'
import type { Databases } from '../threads/databases.ts'

export interface SizeRow {
  readonly database: string
  /** null: it could not be read, which `fault` explains. */
  readonly size: DatabaseSize | null
  readonly fault: string | null
}

/** Arguments and answers are plain data, so that they can travel (control-server.ts). */
export interface SizeControls {
  /**
   * Looks into all databases, one after the other, in the order of their names; or into one.
   * @throws no_database for one that is named and not there
   */
  listSizes(asked: { readonly database: string | null }): Promise<readonly SizeRow[]>
}

/** @returns what works on the databases that are open in this process */
export function localSizes(databases: Pick<Databases, 'names' | 'get'>): SizeControls {
  return {
    listSizes: async ({ database }) => {
      if (database !== null) databases.get(database)
      const rows: SizeRow[] = []
      for (const name of database === null ? databases.names() : [database]) {
        const row = await rowOf(databases, name)
        if (row !== null) rows.push(row)
      }
      return rows
    },
  }
}

/** null: it was deleted meanwhile. */
async function rowOf(databases: Pick<Databases, 'get'>, database: string): Promise<SizeRow | null> {
  try {
    return { database, size: await databases.get(database).size(HOUSE), fault: null }
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    return { database, size: null, fault: asCouchError(error).message }
  }
}
