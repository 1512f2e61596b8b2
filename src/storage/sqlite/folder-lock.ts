/**
 * The lock of a data folder: an empty file that SQLite holds for as long as this process lives, however it dies. It
 * is a file of its own, so that others may read `server.sqlite` while it is open, as Litestream does.
 */
import Sqlite from 'better-sqlite3'
import { isBusy } from './connection.ts'

export class FolderLock {
  readonly #db: Sqlite.Database

  /** @throws Error with one clear line when another settee holds it */
  constructor(dataDir: string, path: string) {
    this.#db = new Sqlite(path, { timeout: 0 })
    try {
      // Nothing is ever written to it, not even a journal: on a full disk there is no room for one.
      this.#db.pragma('journal_mode = MEMORY')
      this.#db.exec('BEGIN EXCLUSIVE')
    } catch (error) {
      this.#db.close()
      throw isBusy(error) ? inUse(dataDir, error) : error
    }
  }

  release(): void {
    this.#db.close()
  }
}

/** What is said when another settee works on the folder. */
export function inUse(dataDir: string, cause: unknown): Error {
  return new Error(`the data folder ${dataDir} is in use by another settee`, { cause })
}
