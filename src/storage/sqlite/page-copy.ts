/** Copies an open file page by page, with SQLite's backup API. */
import { closeSync, fdatasyncSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Throttle } from '../../core/event-loop.ts'
import type { CopyProgress } from '../storage-engine.ts'

/** Pages of 8 KiB that are copied at once, which takes about 1 ms. */
const STEP_PAGES = 64
/** Bytes between two syncs, so that the fsync of another file never waits for more. */
const SYNC_BYTES = 8 * 1024 * 1024
/** Steps between two progress reports. */
const PROGRESS_STEPS = 16

type Listener = (progress: CopyProgress) => void

/**
 * Copies the database of a connection to a new file, which is durable when this resolves.
 * @throws SqliteError, the file system's error; the caller then removes the incomplete file
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

/** A file that SQLite writes and that is synced regularly. */
class Copy {
  readonly #path: string
  readonly #pageSize: number
  readonly #onProgress: Listener | undefined
  readonly #throttle = new Throttle()
  /** Closed last, since closing releases the locks that SQLite has on the file. */
  readonly #file: number
  #steps = 0
  #synced = 0

  constructor(path: string, pageSize: number, onProgress: Listener | undefined) {
    this.#path = path
    this.#pageSize = pageSize
    this.#onProgress = onProgress
    this.#file = openSync(path, 'wx', 0o600)
  }

  /** @returns how many pages to copy next */
  step({ totalPages, remainingPages }: Sqlite.BackupMetadata): number {
    const done = totalPages - remainingPages
    if (this.#steps++ % PROGRESS_STEPS === 0) this.#onProgress?.({ done, total: totalPages })
    if ((done - this.#synced) * this.#pageSize >= SYNC_BYTES) {
      this.#synced = done
      fdatasyncSync(this.#file)
    }
    this.#throttle.pause()
    return STEP_PAGES
  }

  /** Makes the copy durable, and a single file that can be opened on a read-only disk. */
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

/** Creates the file, since SQLite would create it with a mode from the umask. The log gets the mode of the file. */
export function makePrivate(path: string): void {
  try {
    closeSync(openSync(path, 'a', 0o600))
  } catch {
    // SQLite reports the error.
  }
}

const STRETCH_BYTES = 1024 * 1024

/** The path of a file's log. */
export function logOf(path: string): string {
  return `${path}-wal`
}

/** @returns bytes of a file; 0 if it does not exist */
export function fileBytes(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

/**
 * Makes the content of a file durable even if an earlier sync of it has failed. After a failure, the system considers
 * the pages written, and another sync does nothing. So all pages are written again unchanged. The caller ensures that
 * nothing else writes to the file during this. Only for files that SQLite does not lock, such as a log: closing one
 * descriptor releases all locks that the process has on the file.
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
