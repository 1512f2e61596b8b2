/**
 * One open SQLite file. Everything the engine says to SQLite goes through here: pragmas, the statement cache,
 * transactions, and the translation of the driver's errors.
 */
import Sqlite from 'better-sqlite3'
import { CouchError, type ErrorName } from '../../core/errors.ts'
import { LazyStatement, type Row, type Statement } from './statement.ts'

/** `settee` in ASCII, shortened to the 32 bits that `PRAGMA application_id` has. */
export const APPLICATION_ID = 0x73747465

/** How long to wait for another process that holds a lock on the file, in ms. */
const BUSY_MS = 1000

export interface ConnectionOptions {
  /** Called before everything that reaches SQLite, with what it is; a throw takes its place. For fault tests. */
  readonly onOperation?: ((operation: string) => void) | undefined
  /** Opens a file that must exist. */
  readonly mustExist?: boolean
  /** Syncs nothing: for a file that nobody knows of yet, which publishing it then syncs as a whole. */
  readonly isDraft?: boolean
  /** Keeps every other process out for as long as the file is open. */
  readonly exclusive?: boolean
}

export class Connection {
  readonly #db: Sqlite.Database
  readonly #onOperation: ((operation: string) => void) | undefined
  readonly #statements = new Map<string, Statement<object>>()
  readonly #tupleStatements = new Map<string, Statement<object>>()

  constructor(path: string, options: ConnectionOptions = {}) {
    this.#onOperation = options.onOperation
    this.#db = new Sqlite(path, {
      fileMustExist: options.mustExist ?? false,
      timeout: options.exclusive ? 0 : BUSY_MS,
    })
    try {
      if (options.exclusive) this.pragma('locking_mode = EXCLUSIVE')
      if (options.isDraft) this.pragma('synchronous = OFF')
      // Take effect only in a file that has no tables yet; one that has would be written to, with a sync, each time.
      if (this.pragma('page_count') === 0) {
        this.pragma('page_size = 8192')
        this.pragma('auto_vacuum = INCREMENTAL')
      }
      this.pragma('journal_mode = WAL')
      // The driver's WAL default is NORMAL, which loses acknowledged writes at a power cut (design.md 6).
      if (!options.isDraft) this.pragma('synchronous = FULL')
      this.pragma('journal_size_limit = 16777216')
      this.pragma('temp_store = MEMORY')
    } catch (error) {
      this.#db.close()
      throw error
    }
  }

  /** Whether a transaction is open; SQLite may have rolled it back by itself after an error. */
  get inTransaction(): boolean {
    return this.#db.inTransaction
  }

  pragma(text: string): unknown {
    return this.#db.pragma(text, { simple: true })
  }

  exec(sql: string): void {
    this.#onOperation?.(sql)
    this.#db.exec(sql)
  }

  /** A statement whose rows are objects of the named columns; the same text is prepared once. */
  prepare<R extends object = Row>(sql: string): Statement<R> {
    return this.#lazy(this.#statements, sql, () => this.#db.prepare(sql) as unknown as Statement<R>)
  }

  /**
   * A statement whose rows are arrays of the columns in their order, which take the driver half the time of objects:
   * for what is read by the thousand.
   */
  prepareTuples<R extends readonly unknown[]>(sql: string): Statement<R> {
    return this.#lazy(
      this.#tupleStatements,
      sql,
      () => this.#db.prepare(sql).raw() as unknown as Statement<R>,
    )
  }

  #lazy<R extends object>(
    known: Map<string, Statement<object>>,
    sql: string,
    prepare: () => Statement<R>,
  ): Statement<R> {
    const cached = known.get(sql)
    if (cached !== undefined) return cached as Statement<R>
    const observe = this.#onOperation
    const made = new LazyStatement(prepare, observe && (() => observe(sql)))
    known.set(sql, made)
    return made
  }

  /** Ends the open transaction, if SQLite has not done so by itself. */
  rollback(): void {
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
  }

  /** Brings the log into the file and empties it, as far as readers of other processes let that happen at once. */
  checkpoint(): void {
    this.pragma('busy_timeout = 0')
    try {
      this.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all()
    } finally {
      this.pragma(`busy_timeout = ${BUSY_MS}`)
    }
  }

  close(): void {
    this.#db.close()
  }
}

/** The driver's error, or the file system's, as one of ours; ours stay as they are. */
export function storageError(thrown: unknown): unknown {
  if (isFull(thrown)) return new CouchError('insufficient_storage', undefined, { cause: thrown })
  if (!(thrown instanceof Sqlite.SqliteError)) return thrown
  const [, name] = FAULTS.find(([codes]) => codes.test(thrown.code)) ?? []
  return new CouchError(name ?? 'internal_server_error', undefined, { cause: thrown })
}

/** https://www.sqlite.org/rescode.html, primary and extended. */
const FAULTS: readonly (readonly [codes: RegExp, name: ErrorName])[] = [
  [/^SQLITE_(?:CORRUPT|NOTADB)/, 'damaged_file'],
  [/^SQLITE_(?:IOERR|CANTOPEN)/, 'disk_fault'],
]

/**
 * Whether the disk, or its quota, has no room left. SQLITE_IOERR_SHMSIZE: the index of the log, a file of its own, could
 * not be made as large as it must be.
 */
export function isFull(thrown: unknown): boolean {
  if (thrown instanceof Sqlite.SqliteError) return /^SQLITE_(?:FULL|IOERR_SHMSIZE)/.test(thrown.code)
  const { code } = (thrown ?? {}) as NodeJS.ErrnoException
  return code === 'ENOSPC' || code === 'EDQUOT'
}

/** Whether SQLite refused because another connection holds the file. */
export function isBusy(thrown: unknown): boolean {
  return thrown instanceof Sqlite.SqliteError && thrown.code.startsWith('SQLITE_BUSY')
}
