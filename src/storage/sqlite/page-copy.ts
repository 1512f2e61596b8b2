/** A copy of an open file, page by page, by SQLite's own backup calls. */
import { closeSync, fdatasyncSync, fsyncSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Pace } from '../../core/pace.ts'
import type { CopyProgress } from '../copies.ts'
import { syncPath } from './log-file.ts'

/** Pages of 8 KiB that are copied at once: about a millisecond's work. */
const STEP_PAGES = 64
/** Bytes after which what was written is brought to the disk, so that no fsync of others waits for more. */
const SYNC_BYTES = 8 * 1024 * 1024
/** Steps between two words of how far it is. */
const TELL_STEPS = 16

type Listener = (progress: CopyProgress) => void

/**
 * Copies what a connection sees to a new file, which is durable when this resolves.
 * @throws SqliteError, the file system's error; what was written by then is left to the caller
 */
export async function copyFile(db: Sqlite.Database, path: string, onProgress?: Listener): Promise<void> {
  const copy = new Copy(path, Number(db.pragma('page_size', { simple: true })), onProgress)
  try {
    await db.backup(path, { progress: (pages) => copy.step(pages) })
    copy.finish()
  } finally {
    copy.close()
  }
}

/** A file that is being written by SQLite, and kept in step with the disk. */
class Copy {
  readonly #path: string
  readonly #pageSize: number
  readonly #onProgress: Listener | undefined
  readonly #pace = new Pace()
  /** Closed last: that would let go the locks that SQLite has on the file. */
  readonly #file: number
  #steps = 0
  #synced = 0

  constructor(path: string, pageSize: number, onProgress: Listener | undefined) {
    this.#path = path
    this.#pageSize = pageSize
    this.#onProgress = onProgress
    this.#file = openSync(path, 'wx', 0o600)
  }

  /** @returns how many pages are to be copied next */
  step({ totalPages, remainingPages }: Sqlite.BackupMetadata): number {
    const done = totalPages - remainingPages
    if (this.#steps++ % TELL_STEPS === 0) this.#onProgress?.({ done, total: totalPages })
    if ((done - this.#synced) * this.#pageSize >= SYNC_BYTES) {
      this.#synced = done
      fdatasyncSync(this.#file)
    }
    this.#pace.rest()
    return STEP_PAGES
  }

  /** Makes it one file that opens from a disk on which nothing can be written, and durable. */
  finish(): void {
    const db = new Sqlite(this.#path, { fileMustExist: true })
    try {
      db.pragma('journal_mode = DELETE')
    } finally {
      db.close()
    }
    fsyncSync(this.#file)
    syncPath(dirname(this.#path))
  }

  close(): void {
    closeSync(this.#file)
  }
}
