/** Restores `server.sqlite` from a copy before it is opened, and locks the data folder. */
import { chmodSync, copyFileSync, existsSync, rmSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { CouchError } from '../../core/errors.ts'
import { longCall } from '../../core/event-loop.ts'
import { APPLICATION_ID, Connection, type ConnectionOptions, isBusy } from './connection.ts'
import { storageError } from './database-access.ts'
import type { Files } from './files.ts'
import { createdAtOf, markRestored } from './prepared-restore.ts'

/**
 * Puts a copy in the place of what belongs to the server, which is kept; databases stay as they are. The folder's lock
 * is held by the caller.
 * @param now ms since 1970
 * @throws bad_request when the copy is not good; Error when an older settee holds it
 */
export function replaceServerFile(dataDir: string, files: Files, copy: string, now: number): void {
  files.makeFolder()
  const draft = `${files.server}.unfinished`
  rmSync(draft, { force: true })
  try {
    copyFileSync(copy, draft)
    chmodSync(draft, 0o600)
    examine(copy, draft)
    settle(dataDir, files.server)
    files.replaceServer(draft, now)
  } finally {
    rmSync(draft, { force: true })
  }
}

/** @throws bad_request */
function examine(copy: string, draft: string): void {
  let connection: Connection | undefined
  try {
    const opened = new Connection(draft, { mustExist: true, isDraft: true })
    connection = opened
    const table = opened.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'server'").get()
    const isOurs = opened.pragma('application_id') === APPLICATION_ID && table !== undefined
    if (!isOurs || longCall(() => opened.pragma('integrity_check')) !== 'ok') throw new Error('not whole')
  } catch (cause) {
    throw new CouchError('bad_request', `${copy} is damaged, or is not a server.sqlite file.`, { cause })
  } finally {
    connection?.close()
  }
}

/** Brings the log into the file; of one that is damaged the log goes. */
function settle(dataDir: string, path: string): void {
  if (!existsSync(path)) return
  let connection: Connection | undefined
  try {
    connection = new Connection(path)
    connection.checkpoint()
  } catch (error) {
    if (isBusy(error)) throw inUse(dataDir, error)
    for (const companion of ['-wal', '-shm']) rmSync(path + companion, { force: true })
  } finally {
    connection?.close()
  }
}

/**
 * The lock of a data folder: an empty file that SQLite locks until this process ends, even by a crash. It is a separate file,
 * so that other programs, such as Litestream, can read `server.sqlite` while it is open.
 */
export class FolderLock {
  readonly #db: Sqlite.Database

  /** @throws Error with one clear line when another settee holds it */
  constructor(dataDir: string, path: string) {
    this.#db = new Sqlite(path, { timeout: 0 })
    try {
      // Nothing is written, not even a journal, since a full disk has no space for one.
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

/** The error when another settee uses the folder. */
export function inUse(dataDir: string, cause: unknown): Error {
  return new Error(`the data folder ${dataDir} is in use by another settee`, { cause })
}

type OnOperation = ConnectionOptions['onOperation']

/**
 * Moves the writes that a crash left in a database's log into its file.
 * @returns when the database was created, in seconds since 1970; null if it is damaged
 * @throws insufficient_storage
 */
export function settled(path: string, onOperation: OnOperation): number | null {
  try {
    return withFile(path, onOperation, createdAtOf)
  } catch (error) {
    const translated = storageError(error)
    // A restore may replace a damaged file.
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
    if (isStillInPlace || !isLater) markRestored(connection, now, [createdAt ?? 0])
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
