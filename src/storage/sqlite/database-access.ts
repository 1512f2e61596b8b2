/** Access to an open file for all parts of a store: reads between transactions, writes by group commit; and its checkpoints. */

import Sqlite from 'better-sqlite3'
import { CouchError, type ErrorName, isFileFault } from '../../core/errors.ts'
import { DamageReports } from '../damage.ts'
import type { Outcome } from '../engine.ts'
import type { Connection } from './connection.ts'

/** One write. */
export interface Plan<O = unknown> {
  /** About how many bytes it writes. */
  readonly bytes: number
  /** The document that it reads; absent if it reads none. */
  readonly id?: string
  /** Whether it needs space and no decision refuses it when space is short: then it is not retried on a full disk. */
  readonly grows?: boolean
  /**
   * Reads, and writes nothing; may be called again after a rollback.
   * @returns a function that carries out the decision in the same transaction and returns the outcome
   */
  decide(): () => O
}

/** A write and its callbacks. */
export interface Job<O = unknown> {
  readonly plan: Plan<O>
  /** The write is durable. */
  done(outcome: O): void
  /** The write has left no trace. */
  failed(error: unknown): void
}

/** Carries out writes in groups: writer.ts. */
export interface WriteQueue {
  add<O>(job: Job<O>): void
  /** Resolves when the writes added so far are answered. */
  drained(): Promise<void>
}

export class DatabaseAccess {
  readonly #writer: WriteQueue
  readonly #cache: Pick<PageCache, 'use'>
  readonly #errors: FileErrors
  #closed = false

  /** @param cache is notified of every use of the file */
  constructor(writer: WriteQueue, cache: Pick<PageCache, 'use'>, errors = new FileErrors()) {
    this.#writer = writer
    this.#cache = cache
    this.#errors = errors
  }

  /**
   * Reads, in one turn; also for a checkpoint, which may need disk space and is retried on a full disk.
   * @throws unavailable when the store is closed; the translated error of the driver
   */
  read<R>(work: () => R): R {
    this.refuseIfClosed()
    this.#cache.use()
    try {
      return this.#errors.retrying(work)
    } catch (error) {
      throw this.#errors.report(error)
    }
  }

  /**
   * Passes each plan to the writer as a job of its own.
   * @returns the outcomes in order, when all are known
   * @throws unavailable when the store is closed
   */
  async write<O>(plans: readonly Plan<O>[]): Promise<(O | { error: unknown })[]> {
    this.refuseIfClosed()
    const outcomes: (O | { error: unknown })[] = new Array(plans.length)
    let open = plans.length
    if (open === 0) return outcomes
    this.#cache.use()
    return new Promise((resolve) => {
      const answer = (at: number, outcome: O | { error: unknown }) => {
        outcomes[at] = outcome
        open -= 1
        if (open === 0) resolve(outcomes)
      }
      plans.forEach((plan, at) => {
        this.#writer.add<O>({
          plan,
          done: (outcome) => answer(at, outcome),
          failed: (error) => answer(at, { error }),
        })
      })
    })
  }

  /**
   * One write of about `bytes`.
   * @param carryOut runs inside the transaction, perhaps more than once; its result is returned
   * @throws what `carryOut` throws; unavailable when the store is closed; the translated error of the driver
   */
  writeOne<R>(bytes: number, carryOut: () => R, facts: Pick<Plan, 'grows'> = {}): Promise<R> {
    return this.decideOne(bytes, () => carryOut, facts)
  }

  /** As {@link writeOne}, with a decision before it, as a {@link Plan} has it. */
  async decideOne<R>(bytes: number, decide: () => () => R, facts: Pick<Plan, 'grows'> = {}): Promise<R> {
    const plan: Plan<Outcome<R>> = {
      ...facts,
      bytes,
      decide: () => {
        const carryOut = decide()
        return () => ({ result: carryOut() })
      },
    }
    const outcome = (await this.write([plan]))[0] as Outcome<R>
    if ('result' in outcome) return outcome.result
    throw (outcome as { error: unknown }).error
  }

  /** Refuses everything from now on. Resolves when the writes under way are answered. */
  close(): Promise<void> {
    this.#closed = true
    return this.#writer.drained()
  }

  /** @throws unavailable when the store is closed */
  refuseIfClosed(): void {
    if (this.#closed) throw new CouchError('unavailable')
  }
}

/** Pages in the log that make a checkpoint worthwhile: 8 MB. With fewer, pages are written repeatedly; more take longer. */
const ENOUGH_PAGES = 1000

/**
 * Checkpoints a database's log. SQLite would do that within a commit, and all writes of the commit would wait for it and
 * for a sync of the file. Here it is done after their answers are sent.
 */
export class Checkpointer {
  readonly #connection: Pick<Connection, 'logPages' | 'checkpointPassively'>
  readonly #access: Pick<DatabaseAccess, 'read'>
  #isScheduled = false

  constructor(
    connection: Pick<Connection, 'logPages' | 'checkpointPassively'>,
    access: Pick<DatabaseAccess, 'read'>,
  ) {
    this.#connection = connection
    this.#access = access
  }

  /** To be called when a group is durable and is answered in this turn. */
  committed(): void {
    if (this.#isScheduled) return
    this.#try(() => {
      if (this.#connection.logPages() < ENOUGH_PAGES) return
      this.#isScheduled = true
      // Answers leave their thread at the end of the turn after the one that gave them.
      setImmediate(() => setImmediate(() => this.#checkpoint()))
    })
  }

  #checkpoint(): void {
    this.#isScheduled = false
    this.#try(() => this.#connection.checkpointPassively())
  }

  /** A failure here concerns no write. The disk watch is notified, and SQLite later checkpoints within a commit. */
  #try(work: () => void): void {
    try {
      this.#access.read(work)
    } catch {}
  }
}

/** Callbacks of the component that watches the disk. */
export interface DiskWatch {
  /** A write has failed for lack of space. @returns whether to retry it */
  onFull?(): boolean
  /** A database's file is damaged, or the disk failed to read or write it. */
  onFault?(database: string, error: CouchError): void
  /** The server's own file was found damaged. */
  onServerFault?(error: CouchError): void
  /** A database has a damaged leaf that was not known; it is noted durably. */
  onDamagedLeaf?(database: string): void
  /** Damaged leaves were written again. @param rest how many are still damaged, as far as known */
  onRestored?(database: string, leaves: number, rest: number): void
  /** A database was opened exclusively, for lack of disk space. */
  onExclusive?(database: string): void
}

/** The first retry comes after growing writes are refused, the second after the reserved space was released. */
export const RETRIES = 2

/** The errors of one file: translated for the caller, reported to the disk watch, and retried if that helps. */
export class FileErrors extends DamageReports {
  readonly #database: string
  readonly #watch: DiskWatch

  constructor(database = '', watch: DiskWatch = {}) {
    super(database, { report: (error) => watch.onFault?.(database, error), areDevicesAsked: true })
    this.#database = database
    this.#watch = watch
  }

  /** Whether an operation that failed with this error may succeed now, since space was freed. */
  isWorthRetrying(thrown: unknown): boolean {
    return isFull(thrown) && this.#watch.onFull?.() === true
  }

  /** Runs `work`, and retries it on a full disk. @throws the last error of `work` */
  retrying<R>(work: () => R, again = RETRIES): R {
    try {
      return work()
    } catch (error) {
      if (again === 0 || !this.isWorthRetrying(error)) throw error
      return this.retrying(work, again - 1)
    }
  }

  /** Reports a fault of the file or the disk to the watch. @returns the error of the storage contract */
  report(thrown: unknown): unknown {
    const error = storageError(thrown)
    // Damaged documents were reported when they were found.
    if (isFileFault(error) && error.code !== 'damaged_document') this.#watch.onFault?.(this.#database, error)
    return error
  }
}

/** For all databases of a thread together; there are at most 8 threads. Enough for one busy database. */
const TOTAL_KIB = 16 * 1024
/** With less, a database would read its inner pages again with every document. */
const LEAST_KIB = 256
/** A database that is not used for one to two intervals is idle, in ms. */
const SWEEP_MS = 15_000

/** The cached pages of one file. */
export class PageCache {
  readonly connection: Pick<Connection, 'pragma'>
  readonly #caches: PageCaches
  isUsed = false
  isWarm = false

  constructor(connection: Pick<Connection, 'pragma'>, caches: PageCaches) {
    this.connection = connection
    this.#caches = caches
  }

  /** Call it before the file is read or written. */
  use(): void {
    this.isUsed = true
    if (!this.isWarm) this.#caches.warm(this)
  }

  /** Call it before the file is closed. */
  close(): void {
    this.#caches.close(this)
  }
}

/**
 * Divides the memory for pages among a thread's databases. SQLite would keep 16 MB for each open one (docs/decisions/0005).
 * Here the busy ones share that much, and an idle one gives its pages back.
 */
export class PageCaches {
  readonly #warm = new Set<PageCache>()
  readonly #totalKib: number
  #share = 0
  #timer: NodeJS.Timeout | undefined

  /** @param totalKib the memory for all of them, in KiB */
  constructor(totalKib = TOTAL_KIB) {
    this.#totalKib = totalKib
  }

  warm(cache: PageCache): void {
    cache.isWarm = true
    this.#warm.add(cache)
    if (!this.#divide()) this.#limit(cache)
    this.#timer ??= setInterval(() => this.sweep(), SWEEP_MS).unref()
  }

  close(cache: PageCache): void {
    this.#drop(cache)
    this.#divide()
  }

  #drop(cache: PageCache): void {
    cache.isWarm = false
    this.#warm.delete(cache)
    if (this.#warm.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Frees the pages of databases that were not used since the last sweep. Never throws. */
  sweep(): void {
    for (const cache of this.#warm) {
      if (cache.isUsed) cache.isUsed = false
      else this.#cool(cache)
    }
    this.#divide()
  }

  #cool(cache: PageCache): void {
    this.#drop(cache)
    this.#setPragma(cache, 'shrink_memory')
  }

  /**
   * Sets equal shares. They are rounded to a power of two, so that most openings and closings change no other share.
   * @returns whether the shares have changed
   */
  #divide(): boolean {
    const parts = 2 ** Math.ceil(Math.log2(Math.max(1, this.#warm.size)))
    const share = Math.max(LEAST_KIB, this.#totalKib / parts)
    if (share === this.#share) return false
    this.#share = share
    for (const cache of this.#warm) this.#limit(cache)
    return true
  }

  #limit(cache: PageCache): void {
    this.#setPragma(cache, `cache_size = -${this.#share}`)
  }

  #setPragma(cache: PageCache, pragma: string): void {
    try {
      cache.connection.pragma(pragma)
    } catch {
      // A file that cannot be read keeps its pages. The next use reports the error.
    }
  }
}

/** The driver's error, or the operating system's, as one of ours; ours stay as they are. */
export function storageError(thrown: unknown): unknown {
  if (isFull(thrown)) return new CouchError('insufficient_storage', undefined, { cause: thrown })
  const isDrivers = thrown instanceof Sqlite.SqliteError
  if (!isDrivers && !(thrown instanceof Error && 'syscall' in thrown)) return thrown
  const { code = '' } = thrown as { code?: string }
  const [, name] = FAULTS.find(([codes]) => codes.test(code)) ?? []
  return new CouchError(name ?? 'internal_server_error', undefined, { cause: thrown })
}

/** https://www.sqlite.org/rescode.html, primary and extended; and the operating system's own. */
const FAULTS: readonly (readonly [codes: RegExp, name: ErrorName])[] = [
  [/^SQLITE_(?:CORRUPT|NOTADB)/, 'damaged_file'],
  [/^SQLITE_(?:IOERR|CANTOPEN|READONLY)/, 'disk_fault'],
  // A disk that fails, is read-only, has gone or has no sync; and a process that may open no more files.
  [/^E(?:IO|ROFS|NXIO|NODEV|STALE|INVAL|NOSYS|NOTSUP|OPNOTSUPP|MFILE|NFILE|NOENT|NOTDIR)$/, 'disk_fault'],
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
