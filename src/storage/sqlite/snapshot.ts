/**
 * A database at one moment: a connection of its own that only reads, and keeps one read transaction open. In WAL mode
 * that holds up nobody; only the log cannot be emptied before it ends. It neither writes nor checkpoints, and SQLite
 * leaves the log of a file that was moved or removed alone (docs/decisions/0023).
 */
import Sqlite from 'better-sqlite3'
import { Pace } from '../../core/pace.ts'
import type { CopyFacts, CopyProgress, DatabaseSnapshot } from '../copies.ts'
import { storageError } from './connection.ts'
import { digestOf, rowsOf } from './digest.ts'
import { copyFile } from './page-copy.ts'

/** How long to wait for one that opens or closes the file, in ms. */
const BUSY_MS = 5000
/** Rows between two words of how far it is. */
const TELL_ROWS = 4096

type Listener = (progress: CopyProgress) => void

/** Opens a file for reading alone. @throws SqliteError */
export function openForReading(path: string): Sqlite.Database {
  return new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_MS })
}

export class SqliteSnapshot implements DatabaseSnapshot {
  readonly bytes: number
  readonly #db: Sqlite.Database

  /** @throws SqliteError when the file cannot be read */
  constructor(path: string) {
    this.#db = openForReading(path)
    try {
      this.#db.exec('BEGIN')
      // The first reading is the moment.
      const pages = this.#pragma('page_count')
      this.bytes = pages * this.#pragma('page_size')
    } catch (error) {
      this.#db.close()
      throw error
    }
  }

  #pragma(name: string): number {
    return Number(this.#db.pragma(name, { simple: true }))
  }

  async facts(onProgress?: Listener): Promise<CopyFacts> {
    try {
      return factsOf(this.#db, onProgress)
    } catch (error) {
      throw storageError(error)
    }
  }

  async copyTo(path: string, onProgress?: Listener): Promise<void> {
    try {
      await copyFile(this.#db, path, onProgress)
    } catch (error) {
      throw storageError(error)
    }
  }

  close(): void {
    this.#db.close()
  }
}

/** Reads all that a database holds. */
export function factsOf(db: Sqlite.Database, onProgress?: Listener): CopyFacts {
  const pace = new Pace()
  const total = onProgress === undefined ? 0 : rowsOf(db)
  let done = 0
  const digest = digestOf(db, () => {
    done += 1
    if (done % TELL_ROWS === 0) onProgress?.({ done: Math.min(done, total), total })
    if (done % 16 === 0) pace.rest()
  })
  const meta = new Map(db.prepare('SELECT key, value FROM meta').raw().all() as [string, unknown][])
  const counter = (key: string) => Number(meta.get(key) ?? 0)
  const number = (sql: string) => Number(db.prepare(sql).pluck().get())
  return {
    schemaVersion: Number(db.pragma('user_version', { simple: true })),
    createdAt: counter('created_at'),
    updateSeq: counter('update_seq'),
    purgeSeq: counter('purge_seq'),
    docCount: counter('doc_count'),
    deletedCount: counter('deleted_count'),
    localCount: number('SELECT count(*) FROM local'),
    attachmentBytes: number("SELECT coalesce(sum(length), 0) FROM blob WHERE state = 'stored'"),
    digest,
  }
}
