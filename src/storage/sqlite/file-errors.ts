/** What goes wrong with a file: what the caller is told of it, and who else must hear. */
import { CouchError } from '../../core/errors.ts'
import { isFull, storageError } from './connection.ts'

/** Who looks after the disk. */
export interface DiskWatch {
  /** A write has met the end of the disk. @returns whether it is worth another trial */
  onFull?(): boolean
  /** A database's file is damaged, or the disk has failed to read or write it. */
  onFault?(database: string, error: CouchError): void
  /** A database was opened so that nobody else can open its file, for want of room on the disk. */
  onExclusive?(database: string): void
}

/** A first trial after what grows has come to be refused, and a last one after more was done. */
export const RETRIES = 2

/** The troubles of one file. */
export class FileErrors {
  readonly #database: string
  readonly #watch: DiskWatch

  constructor(database = '', watch: DiskWatch = {}) {
    this.#database = database
    this.#watch = watch
  }

  /** Whether what failed with this may succeed now: room was made, or what would grow is refused now. */
  isWorthRetrying(thrown: unknown): boolean {
    return isFull(thrown) && this.#watch.onFull?.() === true
  }

  /** Does something, and again while that is worth it. @throws what it throws in the end */
  retrying<R>(work: () => R, again = RETRIES): R {
    try {
      return work()
    } catch (error) {
      if (again === 0 || !this.isWorthRetrying(error)) throw error
      return this.retrying(work, again - 1)
    }
  }

  /** @returns what was thrown as the contract has it; whoever looks after the disk has been told */
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
