/** Errors of a database file: translated for the caller, reported to whoever watches the disk, and retried where that helps. */
import { CouchError } from '../../core/errors.ts'
import { isFull, storageError } from './connection.ts'

/** Callbacks of whoever watches the disk. */
export interface DiskWatch {
  /** A write has failed for lack of space. @returns whether to retry it */
  onFull?(): boolean
  /** A database's file is damaged, or the disk failed to read or write it. */
  onFault?(database: string, error: CouchError): void
  /** A database was opened exclusively, for lack of disk space. */
  onExclusive?(database: string): void
}

/** The first retry comes after growing writes are refused, the second after the reserved space was released. */
export const RETRIES = 2

/** Translates and reports the errors of one file. */
export class FileErrors {
  readonly #database: string
  readonly #watch: DiskWatch

  constructor(database = '', watch: DiskWatch = {}) {
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
    if (isFileFault(error)) this.#watch.onFault?.(this.#database, error)
    return error
  }
}

/** Whether an error says that a file, or the disk below it, is not as it should be. */
function isFileFault(error: unknown): error is CouchError {
  return error instanceof CouchError && (error.code === 'damaged_file' || error.code === 'disk_fault')
}
