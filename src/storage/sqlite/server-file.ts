/** Restores `server.sqlite` from a copy before it is opened, and locks the data folder. */
import { chmodSync, copyFileSync, existsSync, rmSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { CouchError } from '../../core/errors.ts'
import { SCRUB_KIND, SERVER_FAULT_KEY } from '../records.ts'
import { APPLICATION_ID, Connection, type ConnectionOptions, isBusy } from './connection.ts'
import { storageError } from './database-access.ts'
import type { Files } from './files.ts'
import { repairMeta } from './meta-repair.ts'
import { fileBytes, logOf } from './page-copy.ts'
import { createdAtOf, markRestored } from './restored-mark.ts'
import { ageOfServerFile, checkServerFile, DamagedServerFile } from './server-copy.ts'

/** The pages and rows of a larger file are not checked at the start: the scrub checks them. */
const MAX_CHECKED_BYTES = 16 * 1024 * 1024

interface ReplacementOptions {
  /** The path of a whole file. */
  readonly copy: string
  /** Whether the file was found damaged: then it is kept as it is, and forever. */
  readonly isDamaged: boolean
  /** ms since 1970. */
  readonly now: number
}

/**
 * Replaces `server.sqlite` with a copy, and keeps the old file. Databases are not changed. The caller holds the folder's
 * lock.
 * @throws bad_request when the copy is unusable; Error when an older settee has the file open
 */
export function replaceServerFile(dataDir: string, files: Files, options: ReplacementOptions): void {
  const { copy, now } = options
  files.makeFolder()
  const draft = files.serverDraft
  rmSync(draft, { force: true })
  try {
    copyFileSync(copy, draft)
    chmodSync(draft, 0o600)
    checkServerCopy(copy, draft)
  } catch (error) {
    rmSync(draft, { force: true })
    throw error
  }
  const isDamaged = options.isDamaged || !emptyLog(dataDir, files.server)
  files.replaceServer(now, { isDamaged })
  if (copy !== files.serverCopy) rmSync(files.serverCopy, { force: true })
}

/** @throws bad_request */
function checkServerCopy(copy: string, draft: string): void {
  let connection: Connection | undefined
  try {
    const opened = new Connection(draft, { mustExist: true, isDraft: true })
    connection = opened
    const table = opened.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'server'").get()
    if (opened.pragma('application_id') !== APPLICATION_ID || table === undefined) throw new Error('foreign')
    checkServerFile(opened)
  } catch (cause) {
    throw new CouchError('bad_request', `${copy} is damaged, or is not a server.sqlite file.`, { cause })
  } finally {
    connection?.close()
  }
}

/** Checkpoints the log into the file. @returns false if the file is damaged */
function emptyLog(dataDir: string, path: string): boolean {
  if (!existsSync(path)) return true
  let connection: Connection | undefined
  try {
    connection = new Connection(path)
    connection.checkpoint()
    return true
  } catch (error) {
    if (isBusy(error)) throw inUse(dataDir, error)
    return false
  } finally {
    connection?.close()
  }
}

/**
 * Refuses a folder that has lost its `server.sqlite`, since opening it would make an empty one, and a file that has lost the end
 * of its log: SQLite reads a damaged log up to the damage. Changes nothing.
 * @throws DamagedServerFile
 */
export function refuseLostServerFile(files: Files): void {
  files.finishServer()
  const copy = ageOfServerFile(files.serverCopy)
  const mayBeNew = copy === null && !files.hasDatabases()
  if (fileBytes(files.server) === 0) {
    const isMissing = !existsSync(files.server)
    if (existsSync(files.serverCopy) || (!isMissing && !mayBeNew))
      throw new DamagedServerFile(isMissing ? 'it is missing' : 'it is empty')
    return
  }
  if (fileBytes(logOf(files.server)) === 0) return
  const { uuid, changes } = ageOfServerFile(files.server) ?? { changes: 0 }
  const isLost = uuid === undefined ? !mayBeNew : uuid === copy?.uuid && changes < copy.changes
  if (isLost) throw new DamagedServerFile('its log is damaged, and its last changes are lost')
}

/**
 * Compares the open `server.sqlite` with its checksums, and removes damaged records that are made anew.
 * @throws DamagedServerFile
 */
export function checkOpenedServerFile(connection: Connection, files: Files): void {
  const isLarge = fileBytes(files.server) + fileBytes(logOf(files.server)) > MAX_CHECKED_BYTES
  const find = connection.prepare('SELECT 1 AS found FROM record WHERE kind = ? AND key = ?')
  if (isLarge && find.get(SCRUB_KIND, SERVER_FAULT_KEY) === undefined) return
  const missing: { readonly kind: string; readonly key: string }[] = []
  checkServerFile(connection, { onMissing: (record) => missing.push(record) })
  const remove = connection.prepare('DELETE FROM record WHERE kind = ? AND key = ?')
  for (const { kind, key } of missing) remove.run(kind, key)
}

/**
 * The lock of a data folder: an empty file that SQLite locks until this process ends, even by a crash. It is a separate file,
 * so that other programs, such as Litestream, can read `server.sqlite` while it is open.
 */
export class FolderLock {
  readonly #db: Sqlite.Database

  /** @throws Error with one clear line when another process holds the lock */
  constructor(dataDir: string, path: string) {
    this.#db = new Sqlite(path, { timeout: 0 })
    try {
      // A journal in memory, since a full disk has no space for a file.
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

/** The error when another process uses the folder. */
export function inUse(dataDir: string, cause: unknown): Error {
  return new Error(`the data folder ${dataDir} is in use by another settee process`, { cause })
}

type OnOperation = ConnectionOptions['onOperation']

/**
 * Checkpoints the log that a crash left beside a database's file.
 * @returns when the database was created, in seconds since 1970; null if it is damaged
 * @throws insufficient_storage
 */
export function checkpointLog(path: string, onOperation: OnOperation): number | null {
  try {
    return withFile(path, onOperation, createdAtOf)
  } catch (error) {
    const translated = storageError(error)
    // A restore may replace a damaged file.
    if (translated instanceof CouchError && translated.code === 'insufficient_storage') throw translated
    return null
  }
}

interface NameHistory {
  /** When the previous database of this name was created, in seconds since 1970; null if unknown or if there was none. */
  readonly createdAt: number | null
  /** Whether the file stays the same and only becomes a new incarnation. */
  readonly isStillInPlace: boolean
  /** ms since 1970. */
  readonly now: number
  readonly onOperation: OnOperation
}

/** Makes a database distinguishable from the previous one of the same name, even within the same second. */
export function distinguish(
  path: string,
  { createdAt, isStillInPlace, now, onOperation }: NameHistory,
): void {
  withFile(path, onOperation, (connection) => {
    repairMeta(connection, { now })
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
