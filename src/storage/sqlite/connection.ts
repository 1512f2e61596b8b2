/**
 * One open SQLite file. All calls of SQLite go through it: pragmas, prepared statements and
 * transactions.
 *
 * A later sync does not make up for a failed one: after a failure, the system assumes that data is on disk that may not
 * be (docs/decisions/0027). So each place where a sync can fail has a repair, and no transaction begins before the
 * repair has succeeded.
 */
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { copyFile, fileBytes, logOf, makePrivate, rewriteInPlace, syncPathNow } from './page-copy.ts'
import { BUSY_MS, endRewrite, PAGE, REWRITE, rewriteWithLargePages } from './page-size.ts'
import { LazyStatement, type Statement, withStablePlan } from './statement.ts'

/** `settee` in ASCII, shortened to the 32 bits that `PRAGMA application_id` has. */
export const APPLICATION_ID = 0x73747465

/** Pages copied in one turn: 1 MB, which takes about 1 ms. */
const COPIED_PAGES = 128

/**
 * With so many pages in the log, SQLite checkpoints within a commit, if the checkpointer has not (database-access.ts).
 */
const MAX_LOG_PAGES = 2000

/** The same for a file whose log is checkpointed only within commits: one writes at most 4 MB and syncs twice. */
const MAX_DERIVED_LOG_PAGES = 512

/** How long a closing connection waits for readers, which take less, in ms. */
const CLOSING_BUSY_MS = 50

/** An empty database in memory, to be closed. */
export function memoryDatabase(): Pick<Connection, 'exec' | 'pragma' | 'prepare' | 'close'> {
  const db = new Sqlite(':memory:')
  return {
    exec: (sql) => void db.exec(sql),
    pragma: (text) => db.pragma(text, { simple: true }),
    prepare: <R extends object>(sql: string) => db.prepare(sql) as unknown as Statement<R>,
    close: () => void db.close(),
  }
}

export interface ConnectionOptions {
  /** Called with each operation before it reaches SQLite; if it throws, the operation does not run. For fault tests. */
  readonly onOperation?: ((operation: string) => void) | undefined
  /** Whether the file must exist. */
  readonly mustExist?: boolean
  /** Syncs nothing: for an unpublished file, which is synced as a whole when it is published. */
  readonly isDraft?: boolean
  /** For content that can be made again: a power cut may undo the last commits, all of one or none of it. */
  readonly isDerived?: boolean
  /** Locks out every other process while the file is open. */
  readonly exclusive?: boolean
  /** Never writes, also no log: for a file that may be open elsewhere, or is a copy. */
  readonly isReadOnly?: boolean
  /** How long it waits while another connection locks the file, in ms; by default {@link BUSY_MS}. Only with `isReadOnly`. */
  readonly busyMs?: number
}

function openToRead(path: string, busyMs = BUSY_MS): Sqlite.Database {
  const db = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: busyMs })
  db.pragma('trusted_schema = OFF')
  return db
}

export class Connection {
  readonly #path: string
  readonly #options: ConnectionOptions
  readonly #onOperation: ((operation: string) => void) | undefined
  readonly #statements = new Map<string, LazyStatement<object>>()
  readonly #tupleStatements = new Map<string, LazyStatement<object>>()
  readonly #begin: Statement
  readonly #end: Statement
  #db: Sqlite.Database
  #logState: Sqlite.Statement | null = null
  /** The repair that must succeed before the next transaction begins. */
  #pendingRepair: (() => void) | null = null
  /** Whether the log's name is durable, without which its content is not. */
  #isLogNameDurable: boolean
  #pageSize = PAGE.large
  /** The size that a file with small pages may have without a rewrite, in bytes. */
  #rewriteAt = REWRITE.least

  constructor(path: string, options: ConnectionOptions = {}) {
    this.#path = path
    this.#options = options
    this.#onOperation = options.onOperation
    this.#isLogNameDurable = (options.isDraft || options.isDerived) ?? false
    this.#db = this.#open()
    this.#begin = this.prepare('BEGIN IMMEDIATE')
    this.#end = this.prepare('COMMIT')
  }

  #open(): Sqlite.Database {
    const options = this.#options
    if (options.isReadOnly) return openToRead(this.#path, options.busyMs)
    const isLogLeft = fileBytes(logOf(this.#path)) > 0
    if (!options.mustExist) makePrivate(this.#path)
    const db = new Sqlite(this.#path, {
      fileMustExist: options.mustExist ?? false,
      timeout: BUSY_MS,
    })
    try {
      if (options.exclusive) db.pragma('locking_mode = EXCLUSIVE')
      if (options.isDraft) db.pragma('synchronous = OFF')
      // Files with tables already have these two settings, but the second would write the file at each opening.
      if (db.pragma('page_count', { simple: true }) === 0) {
        db.pragma(`page_size = ${PAGE.large}`)
        db.pragma('auto_vacuum = INCREMENTAL')
      }
      db.pragma('journal_mode = WAL')
      // The driver's WAL default is NORMAL, which loses acknowledged writes at a power cut (docs/gotchas.md).
      if (!options.isDraft && !options.isDerived) db.pragma('synchronous = FULL')
      db.pragma('journal_size_limit = 16777216')
      db.pragma(`wal_autocheckpoint = ${options.isDerived ? MAX_DERIVED_LOG_PAGES : MAX_LOG_PAGES}`)
      db.pragma('temp_store = MEMORY')
      // A file may come from elsewhere: what its schema names must not call functions that have effects.
      db.pragma('trusted_schema = OFF')
      // Deleted content is overwritten in pages that stay; compaction returns free pages to the file system.
      db.pragma('secure_delete = FAST')
      if (isLogLeft && !options.isDerived) this.#rewriteLeftLog(db)
      this.#pageSize = Number(db.pragma('page_size', { simple: true }))
      return db
    } catch (error) {
      db.close()
      throw error
    }
  }

  /**
   * Makes a log durable that another process left, since its last syncs may have failed. If that fails, the file can
   * still be read.
   */
  #rewriteLeftLog(db: Sqlite.Database): void {
    const rewrite = () => {
      // No other connection writes to the log during this.
      db.exec('BEGIN IMMEDIATE')
      try {
        rewriteInPlace(logOf(this.#path))
      } finally {
        db.exec('ROLLBACK')
      }
    }
    try {
      rewrite()
    } catch (error) {
      if (isBusy(error)) throw error
      this.#pendingRepair = rewrite
    }
  }

  /** The size of the file's pages, in bytes. It changes once in the life of a file that grows. */
  get pageSize(): number {
    return this.#pageSize
  }

  /**
   * Gives a small file large pages before a write makes it long. Call it between two transactions. If that fails, the file
   * keeps its small pages, and a later write tries again.
   * @param bytes about how many the write adds
   * @throws SqliteError when the file cannot be read
   */
  prepareGrowth(bytes: number): void {
    if (this.#pageSize !== PAGE.small || this.#pendingRepair !== null) return
    const pages = this.prepare<{ page_count: number }>('PRAGMA page_count').get()?.page_count ?? 0
    const size = pages * PAGE.small
    if (size + bytes <= this.#rewriteAt || size > REWRITE.most) return
    this.#rewriteAt = 2 * (size + bytes)
    // The next log is a new entry of the folder.
    this.#isLogNameDurable = false
    try {
      rewriteWithLargePages(this, this.#path)
      this.#pageSize = PAGE.large
    } catch {
      this.#pendingRepair = () => this.#endRewrite()
    }
  }

  #endRewrite(): void {
    endRewrite(this, this.#path)
    this.#pageSize = Number(this.pragma('page_size'))
    if (fileBytes(logOf(this.#path)) > 0) this.#rewriteLeftLog(this.#db)
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
  prepare<R extends object = Record<string, unknown>>(sql: string): Statement<R> {
    return this.#lazy(this.#statements, sql, (text) => this.#db.prepare(text) as unknown as Statement<R>)
  }

  /**
   * A statement whose rows are arrays of the columns in their order, for queries of thousands of rows.
   * They take the driver half the time of objects.
   */
  prepareTuples<R extends readonly unknown[]>(sql: string): Statement<R> {
    return this.#lazy(
      this.#tupleStatements,
      sql,
      (text) => this.#db.prepare(text).raw() as unknown as Statement<R>,
    )
  }

  #lazy<R extends object>(
    known: Map<string, LazyStatement<object>>,
    sql: string,
    prepare: (text: string) => Statement<R>,
  ): Statement<R> {
    const cached = known.get(sql)
    if (cached !== undefined) return cached as unknown as Statement<R>
    const observe = this.#onOperation
    const made = new LazyStatement(() => prepare(withStablePlan(sql)), observe && (() => observe(sql)))
    known.set(sql, made)
    return made
  }

  /**
   * Begins a transaction that writes.
   * @throws SqliteError or the operating system's error, also while a failed sync is not repaired
   */
  begin(): void {
    while (this.#pendingRepair !== null) this.#repair(this.#pendingRepair)
    this.#begin.run()
  }

  #repair(repair: () => void): void {
    this.#pendingRepair = null
    try {
      repair()
    } catch (error) {
      this.#pendingRepair = repair
      throw error
    }
  }

  /**
   * Makes the transaction durable.
   * @throws SqliteError or the operating system's error; the caller must then roll back
   */
  commit(): void {
    if (!this.#isLogNameDurable) this.#syncLogName()
    this.#end.run()
  }

  /** Syncs the folder before the first commit: SQLite does that too, but ignores errors. */
  #syncLogName(): void {
    try {
      syncPathNow(dirname(this.#path))
      this.#isLogNameDurable = true
    } catch (error) {
      this.#pendingRepair = () => this.#reopen()
      throw error
    }
  }

  /**
   * Reopens the file: closing it removes the log, so the next log is a new entry of the folder, which can be synced.
   */
  #reopen(): void {
    const cacheSize = this.pragma('cache_size')
    this.#db.close()
    this.#db = this.#open()
    this.#logState = null
    this.pragma(`cache_size = ${cacheSize}`)
    for (const known of [this.#statements, this.#tupleStatements]) {
      for (const statement of known.values()) statement.reset()
    }
  }

  /**
   * Ends the open transaction, if SQLite has not done so by itself.
   * @param reason the error that caused the rollback
   */
  rollback(reason: unknown): void {
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
    // While a repair is pending, no transaction has begun.
    if (isFailedSync(reason) && this.#pendingRepair === null) this.#discardLogEnd()
  }

  /** Discards a refused transaction at the end of the log. It may be on disk, and the next opening would apply it. */
  #discardLogEnd(): void {
    try {
      this.#repair(() => this.#emptyLog())
    } catch {
      this.#overwriteEnd()
    }
  }

  /** Checkpoints the committed transactions, whose syncs succeeded, and empties the log. */
  #emptyLog(): void {
    const [row] = this.#db.pragma('wal_checkpoint(TRUNCATE)') as [{ log: number; checkpointed: number }]
    if (row.log !== row.checkpointed) throw new Sqlite.SqliteError('the log is in use', 'SQLITE_BUSY')
  }

  /** Overwrites the refused transaction with one that changes nothing. Never throws. */
  #overwriteEnd(): void {
    try {
      this.#db.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${this.pragma('user_version')}; COMMIT`)
    } catch {
      if (this.#db.inTransaction) this.#db.exec('ROLLBACK')
    }
  }

  /** The number of pages in the log that are not checkpointed. Takes microseconds; 0 without a log. */
  logPages(): number {
    this.#logState ??= this.#db.prepare('PRAGMA wal_checkpoint(NOOP)').raw()
    const [, log, carried] = this.#logState.get() as [busy: number, log: number, carried: number]
    return Math.max(0, log - carried)
  }

  /** Checkpoints the log as far as readers in other processes permit. The next commit restarts the log. */
  checkpointPassively(): void {
    this.exec('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** Checkpoints and empties the log, as far as readers in other processes permit at once. */
  checkpoint(): void {
    this.pragma('busy_timeout = 0')
    try {
      this.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all()
    } finally {
      this.pragma(`busy_timeout = ${BUSY_MS}`)
    }
  }

  /**
   * Copies the current state of the file, some pages per turn. Others may write to the file during the copy.
   * @param refuseIfEnding called between two turns; an error that it throws ends the copy
   */
  async copyTo(path: string, refuseIfEnding: () => void): Promise<void> {
    this.#onOperation?.('copy')
    await this.#db.backup(path, {
      progress: () => {
        refuseIfEnding()
        return COPIED_PAGES
      },
    })
  }

  /** Copies the file to a new one, durably. Includes writes during the copy. For small files; see snapshot.ts. */
  copyDurably(path: string): Promise<void> {
    return copyFile(this.#db, path)
  }

  close(): void {
    const { isReadOnly, isDraft, isDerived } = this.#options
    if (!isReadOnly && !isDraft && !isDerived && this.#pendingRepair === null) this.#emptyLogBeforeClose()
    this.#db.close()
  }

  /**
   * SQLite empties the log when the last connection closes. If that is a reader, which writes nothing, the log would stay, and the
   * next opening would have to rely on each byte of it. Never throws.
   */
  #emptyLogBeforeClose(): void {
    try {
      this.#db.pragma(`busy_timeout = ${CLOSING_BUSY_MS}`)
      this.#db.pragma('wal_checkpoint(TRUNCATE)')
    } catch {
      // The next opening finds the log.
    }
  }
}

function isFailedSync(thrown: unknown): boolean {
  return thrown instanceof Sqlite.SqliteError && /^SQLITE_IOERR_(?:DIR_)?FSYNC$/.test(thrown.code)
}

/** Whether SQLite failed because another connection locks the file. */
export function isBusy(thrown: unknown): boolean {
  return thrown instanceof Sqlite.SqliteError && thrown.code.startsWith('SQLITE_BUSY')
}
