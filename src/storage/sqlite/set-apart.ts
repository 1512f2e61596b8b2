/** Keeps what takes a database's place from being taken for what was there before. */
import { CouchError } from '../../core/errors.ts'
import { Connection, type ConnectionOptions, storageError } from './connection.ts'
import { beginAnew, createdAtOf } from './restored.ts'

type OnOperation = ConnectionOptions['onOperation']

/**
 * Brings what a crash left in a database's log into its file.
 * @returns when it was made, in seconds since 1970; null when it is damaged
 * @throws insufficient_storage
 */
export function settled(path: string, onOperation: OnOperation): number | null {
  try {
    return withFile(path, onOperation, createdAtOf)
  } catch (error) {
    const translated = storageError(error)
    // A damaged file is what backups are for.
    if (translated instanceof CouchError && translated.code === 'insufficient_storage') throw translated
    return null
  }
}

interface Before {
  /** When what had the name was made, in seconds since 1970; null: nobody knows, or nothing had it. */
  readonly createdAt: number | null
  /** The file is what had the name, and is to begin anew. */
  readonly isStillInPlace: boolean
  /** ms since 1970. */
  readonly now: number
  readonly onOperation: OnOperation
}

/** What begins under a name must not be taken for what had it before, not even within a second. */
export function setApart(path: string, { createdAt, isStillInPlace, now, onOperation }: Before): void {
  withFile(path, onOperation, (connection) => {
    const isLater = createdAt === null || createdAtOf(connection) > createdAt
    if (isStillInPlace || !isLater) beginAnew(connection, now, [createdAt ?? 0])
  })
}

function withFile<R>(path: string, onOperation: OnOperation, use: (connection: Connection) => R): R {
  const connection = new Connection(path, { onOperation, mustExist: true })
  try {
    return use(connection)
  } finally {
    connection.close()
  }
}
