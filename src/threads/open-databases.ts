/** Opens the databases of a data folder, with the threads that serve them. */
import { CouchError } from '../core/errors.ts'
import type { OwnedDatabases, ServerDatabasesOptions } from './databases.ts'
import { ServerDatabases } from './server-databases.ts'

/**
 * Locks the data folder and lists its databases. A damaged server.sqlite is replaced by its newest copy that is whole.
 * @throws Error with a one-line message if the folder cannot be used, or another settee has locked it
 */
export async function openServerDatabases(options: ServerDatabasesOptions): Promise<OwnedDatabases> {
  const databases = new ServerDatabases(options)
  try {
    await open(databases, options)
  } catch (error) {
    await databases.close()
    throw error instanceof CouchError && error.cause !== undefined ? new Error(firstLine(error)) : error
  }
  return databases
}

/** @throws damaged_server_file if no copy is whole; as an opening */
async function open(databases: ServerDatabases, options: ServerDatabasesOptions): Promise<void> {
  const { serverFile, serverCopies, onServerCopy } = options
  try {
    await databases.open(serverFile)
  } catch (fault) {
    if (!isDamaged(fault) || serverFile !== undefined || serverCopies === undefined) throw fault
    for (const copy of await serverCopies()) {
      const isUsed = await databases.open(copy.path, true).then(
        () => true,
        (error: unknown) => {
          if (isDamaged(error) || (error instanceof CouchError && error.code === 'bad_request')) return false
          throw error
        },
      )
      if (!isUsed) continue
      onServerCopy?.(copy, fault)
      return
    }
    throw new Error(
      `${fault.message}, and none of its copies is whole. ` +
        'Restore it: settee restore BACKUP --server, or --all for the databases, too.',
    )
  }
}

function isDamaged(error: unknown): error is CouchError {
  return error instanceof CouchError && error.code === 'damaged_server_file'
}

/** The message of an error whose stack another thread has sent. */
function firstLine(error: CouchError): string {
  if (error.code === 'damaged_server_file') return error.message
  return (String(error.cause).split('\n', 1)[0] ?? '').replace(/^\w*Error: /, '')
}
