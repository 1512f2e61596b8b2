import { statSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import { Connection, type ConnectionOptions, isFull } from './connection.ts'
import { migrate } from './schema.ts'
import type { DiskWatch } from './trouble.ts'

/** A database's file, and who is told of it. */
export interface FileOptions {
  readonly onOperation?: ConnectionOptions['onOperation']
  readonly watch?: DiskWatch | undefined
}

/**
 * Opens a database's file, which must be there, and brings it to the newest schema.
 * @throws damaged_file; SqliteError, or what {@link migrate} throws, when it cannot be opened
 */
export function openFile(name: string, path: string, { onOperation, watch }: FileOptions): Connection {
  // A file gets its name when it is finished: one that has lost everything is no empty database.
  if (statSync(path).size === 0) throw new CouchError('damaged_file')
  const options = { onOperation, mustExist: true }
  try {
    return checked(new Connection(path, options), path)
  } catch (error) {
    if (!isFull(error)) throw error
    // The index of the log is a file that all who have opened it share. On a disk without room for that it is in
    // memory, and nobody else can open the file.
    const alone = checked(new Connection(path, { ...options, exclusive: true }), path)
    watch?.onAlone?.(name)
    return alone
  }
}

function checked(connection: Connection, path: string): Connection {
  try {
    if (connection.pragma('user_version') === 0) throw new CouchError('damaged_file')
    migrate(connection, path)
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}
