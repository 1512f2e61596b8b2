/**
 * The copy of server.sqlite beside it. A server whose file is damaged starts from it, so it is checked before it replaces the
 * one before.
 */
import { existsSync, renameSync, rmSync } from 'node:fs'
import { copyFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { syncPath } from '../../core/durable-files.ts'
import { longCall, Throttle, Yielder } from '../../core/event-loop.ts'
import { diskSize } from '../free-space.ts'
import type { Connection } from './connection.ts'
import { openForReading, pageFaults, type ReadableFile, readable } from './database-check.ts'
import type { Files } from './files.ts'
import { fileBytes, syncPathNow } from './page-copy.ts'
import { RefusedFile, schemaOf } from './schema.ts'
import { SERVER_MIGRATIONS } from './server-migrations.ts'
import { CHANGES, damagedServerRows, SUMMED_SERVER_VERSION } from './server-rows.ts'

/** A change is copied so much later, together with those that follow it, in ms. */
const DELAY_MS = 2000
/** The least time between two copies, in ms, and in durations of a copy: copies take half a percent of the time. */
const LEAST_MS = 10_000
const LEAST_DURATIONS = 200
/** The pages of a larger file are checked with its rows alone, since they are checked in one turn. */
const MAX_PAGES_BYTES = 1024 * 1024
/** Space that a copy leaves free. */
const SPARE_BYTES = 32 * 1024 * 1024

interface KeeperOptions {
  readonly connection: Connection
  readonly files: Files
  /** A copy shows that the file is damaged; the copy before stays. */
  onDamage(fault: Error): void
}

/** Keeps the copy up to date, and makes others. */
export class ServerCopyKeeper {
  readonly #options: KeeperOptions
  #timer: NodeJS.Timeout | undefined
  #isDue = false
  #running: Promise<void> | null = null
  /** In ms as of `performance.now`. */
  #restsUntil = 0
  #isClosed = false

  constructor(options: KeeperOptions) {
    this.#options = options
  }

  /** Notes that the file has changed. */
  note(): void {
    this.#isDue = true
    if (this.#timer !== undefined || this.#running !== null || this.#isClosed) return
    const wait = Math.max(DELAY_MS, this.#restsUntil - performance.now())
    this.#timer = setTimeout(() => this.#start(), wait).unref()
  }

  #start(): void {
    this.#timer = undefined
    this.#isDue = false
    const since = performance.now()
    this.#running = this.#copy()
      // On a full disk, the next change tries it again; until then the copy before stays.
      .catch((error: unknown) => {
        if (error instanceof DamagedServerFile) this.#options.onDamage(error)
      })
      .finally(() => {
        const now = performance.now()
        this.#restsUntil = now + Math.max(LEAST_MS, LEAST_DURATIONS * (now - since))
        this.#running = null
        if (this.#isDue) this.note()
      })
  }

  async #copy(): Promise<void> {
    const { connection, files } = this.#options
    const draft = `${files.serverCopy}.unfinished`
    rmSync(draft, { force: true })
    const { free } = await diskSize(dirname(draft))
    if (free < fileBytes(files.server) + SPARE_BYTES) return
    try {
      await connection.copyDurably(draft)
      await checkInTurns(draft)
      renameSync(draft, files.serverCopy)
      syncPathNow(dirname(draft))
    } finally {
      rmSync(draft, { force: true })
    }
  }

  /**
   * Copies the file to a new one, durably; if it is damaged, the copy from before the damage.
   * @throws SqliteError, the file system's error
   */
  async copyTo(path: string): Promise<void> {
    const { connection, files, onDamage } = this.#options
    await connection.copyDurably(path)
    try {
      await checkInTurns(path)
    } catch (error) {
      if (!(error instanceof DamagedServerFile)) throw error
      onDamage(error)
      if (!existsSync(files.serverCopy)) return
      await copyFile(files.serverCopy, path)
      await syncPath(path)
    }
  }

  /**
   * Makes the copy that is due, so that the next start has all of the last one. A process of less than {@link DELAY_MS} leaves the
   * first copy to the next.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#running
    if (this.#isDue && existsSync(this.#options.files.serverCopy)) this.#start()
    await this.#running
  }
}

/** The message says what is damaged. */
export class DamagedServerFile extends Error {}

interface CheckOptions {
  /** The pages of a larger file are not checked, in bytes. */
  readonly maxPagesBytes?: number
  /** Called with a damaged record that counts as missing; it is no fault. */
  onMissing?(record: { readonly kind: string; readonly key: string }): void
}

/**
 * Checks the file of a server: its schema, its pages and each row. Yields between two short steps.
 * @throws DamagedServerFile, RefusedFile, SqliteError
 */
function* faultsOf(
  file: ReadableFile,
  { maxPagesBytes = Number.MAX_SAFE_INTEGER, onMissing }: CheckOptions = {},
): Generator<void> {
  const version = schemaOf(file, 'It', SERVER_MIGRATIONS)
  if (version === 0 && file.prepare(LATER_TABLE).get() !== undefined)
    throw new DamagedServerFile('its version is damaged')
  const bytes = (file.pragma('page_count') as number) * (file.pragma('page_size') as number)
  const pages = bytes <= maxPagesBytes ? longCall(() => pageFaults(file)) : null
  if (pages !== null) throw new DamagedServerFile(`its pages are damaged: ${pages}`)
  yield
  if (version < SUMMED_SERVER_VERSION) return
  for (const row of damagedServerRows(file)) {
    if (row === null) yield
    else if (row.madeAnew !== undefined) onMissing?.(row.madeAnew)
    else throw new DamagedServerFile(`${row.text} is damaged`)
  }
}

/** A table that the first release, whose files have no version, did not make. */
const LATER_TABLE = "SELECT 1 FROM sqlite_schema WHERE name NOT IN ('server', 'database') LIMIT 1"

/** @throws DamagedServerFile, the file system's error */
async function checkInTurns(path: string): Promise<void> {
  const db = openForReading(path)
  try {
    const yielder = new Yielder()
    for (const _ of faultsOf(readable(db), { maxPagesBytes: MAX_PAGES_BYTES })) await yielder.yieldIfDue()
  } catch (error) {
    throw damagedServerFile(error)
  } finally {
    db.close()
  }
}

/**
 * Checks all of a file of a server at once.
 * @param file open for reading, or a connection
 * @throws DamagedServerFile, and what is no damage: SqliteError, the file system's error
 */
export function checkServerFile(file: ReadableFile, options: CheckOptions = {}): void {
  try {
    for (const _ of faultsOf(file, options));
  } catch (error) {
    throw damagedServerFile(error)
  }
}

/** The pages of a larger file are not checked while it is in use, since nothing ends a single statement. */
const MAX_SCRUBBED_BYTES = 256 * 1024 * 1024

/**
 * Checks the file of a running server, on a thread that has nothing else to do.
 * @returns what is damaged; null: nothing is
 * @throws SqliteError, the file system's error
 */
export function faultOfServerFile(path: string): string | null {
  const throttle = new Throttle()
  const db = openForReading(path)
  try {
    for (const _ of faultsOf(readable(db), { maxPagesBytes: MAX_SCRUBBED_BYTES })) throttle.pause()
    return null
  } catch (error) {
    const fault = damagedServerFile(error)
    if (fault instanceof DamagedServerFile) return fault.message
    throw error
  } finally {
    db.close()
  }
}

/** SQLite's codes for a file that is not what was written, or that the disk cannot read any more. */
const DAMAGE =
  /^SQLITE_(?:CORRUPT|NOTADB|FORMAT|SCHEMA|ERROR|CONSTRAINT|MISMATCH|IOERR_(?:READ|SHORT_READ|CORRUPTFS))/

/** @returns an error by which a file cannot be used as a DamagedServerFile; others as they are */
export function damagedServerFile(error: unknown): unknown {
  if (error instanceof Sqlite.SqliteError && DAMAGE.test(error.code))
    return new DamagedServerFile(`SQLite cannot read it: ${error.message} (${error.code})`, { cause: error })
  if (error instanceof RefusedFile && !error.isNewer)
    return new DamagedServerFile(error.message, { cause: error })
  return error
}

/** What says whether one file of a server is older than another. */
interface ServerFileAge {
  /** The uuid of the folder; undefined if the file has no content. */
  readonly uuid: string | undefined
  /** How often the server's data had changed. */
  readonly changes: number
}

/** @returns null if there is no file, or it cannot be read */
export function ageOfServerFile(path: string): ServerFileAge | null {
  if (fileBytes(path) === 0) return null
  try {
    const db = openForReading(path)
    try {
      if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'server'").get() === undefined)
        return { uuid: undefined, changes: 0 }
      const read = db.prepare('SELECT value FROM server WHERE key = ?').pluck()
      return { uuid: read.get('uuid') as string | undefined, changes: Number(read.get(CHANGES) ?? 0) }
    } finally {
      db.close()
    }
  } catch {
    return null
  }
}
