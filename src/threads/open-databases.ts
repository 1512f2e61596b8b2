/** Opens the databases of a data folder, with the threads that serve them. */
import { CouchError } from '../core/errors.ts'
import type { OwnedDatabases, ServerDatabasesOptions } from './databases.ts'
import { ServerDatabases } from './server-databases.ts'

/**
 * Locks the data folder and lists its databases.
 * @throws Error with a one-line message if the folder cannot be used, or another settee has locked it
 */
export async function openServerDatabases(options: ServerDatabasesOptions): Promise<OwnedDatabases> {
  const databases = new ServerDatabases(options)
  try {
    await databases.open(options.serverFile)
  } catch (error) {
    await databases.close()
    throw error instanceof CouchError && error.cause !== undefined ? new Error(firstLine(error.cause)) : error
  }
  return databases
}

/** The message of an error whose stack another thread has sent. */
function firstLine(cause: unknown): string {
  return (String(cause).split('\n', 1)[0] ?? '').replace(/^\w*Error: /, '')
}
