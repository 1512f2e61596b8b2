/** A copy of an open file, page by page, by SQLite's own backup calls. */
import { closeSync, fdatasyncSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Throttle } from '../../core/event-loop.ts'
import type { CopyProgress } from '../storage-engine.ts'

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
  readonly #throttle = new Throttle()
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
    this.#throttle.pause()
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
    syncPathNow(dirname(this.#path))
  }

  close(): void {
    closeSync(this.#file)
  }
}

const STRETCH_BYTES = 1024 * 1024

/** Where SQLite keeps a file's log. */
export function logOf(path: string): string {
  return `${path}-wal`
}

/** @returns bytes of a file; 0 if it does not exist */
export function fileBytes(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

/**
 * Makes the content of a file durable even if an earlier sync of it has failed. After a failure, the system considers the
 * pages written, and another sync does nothing. So all pages are written again unchanged. The caller ensures that nothing
 * else writes to the file meanwhile. Only for files that SQLite does not lock, such as a log: closing one descriptor
 * releases all locks that the process has on the file.
 * @throws the operating system's error
 */
export function rewriteInPlace(path: string): void {
  const file = openSync(path, 'r+')
  try {
    const bytes = Buffer.allocUnsafe(Math.min(STRETCH_BYTES, fileBytes(path)))
    for (let at = 0; ; ) {
      const read = readSync(file, bytes, 0, bytes.length, at)
      if (read === 0) break
      writeWhole(file, bytes.subarray(0, read), at)
      at += read
    }
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

function writeWhole(file: number, bytes: Uint8Array, from: number): void {
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(file, bytes, done, bytes.length - done, from + done)
  }
}

/** As syncPath of core/durable-files.ts, synchronously. @throws the operating system's error */
export function syncPathNow(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
