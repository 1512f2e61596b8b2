/** What a file says of the bodies that are kept in it, asked of one that may be closed and is to stay so. */
import Sqlite from 'better-sqlite3'
import type { KeptBodies } from '../upkeep.ts'
import { MIGRATIONS } from './schema.ts'
import { openForReading } from './snapshot.ts'
import { wearKeys } from './wear.ts'

/**
 * Reads it from a database's file.
 * @param isLeftOpen whether its log holds something
 * @returns null: the file is of another schema; none before this one keeps any
 * @throws SqliteError
 */
export function keptBodies(path: string, isLeftOpen: boolean): KeptBodies | null {
  const file = isLeftOpen ? openForReading(path) : openToClose(path)
  try {
    if (file.pragma('user_version', { simple: true }) !== MIGRATIONS.length) return null
    const read = file.prepare('SELECT value FROM meta WHERE key = ?').pluck()
    const [oldestKept, compactedAt] = [wearKeys.oldestKept, wearKeys.compactedAt].map((key) =>
      Number(read.get(key) ?? 0),
    ) as [number, number]
    return { oldestKept: oldestKept || null, compactedAt }
  } finally {
    file.close()
  }
}

/**
 * A connection that could write takes the empty log that it makes away again when it is closed; one that reads alone
 * leaves it. Where there is a log, it is the other way round: whoever opens the database next is to find that as it is.
 */
function openToClose(path: string): Sqlite.Database {
  return new Sqlite(path, { fileMustExist: true })
}
