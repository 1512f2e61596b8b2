/**
 * A snapshot of a database: a separate read-only connection with one open read transaction. In WAL mode it blocks no
 * other connection; only the log cannot be emptied before it ends. It neither writes nor checkpoints, and SQLite does not
 * touch the log of a file that was moved or removed (docs/decisions/0023).
 */
import { createHash, type Hash } from 'node:crypto'
import { statSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { Throttle } from '../../core/event-loop.ts'
import { type Damage, FoundDamage } from '../damage.ts'
import type { CheckedCopy, CopyFacts, CopyProgress, DatabaseSnapshot } from '../storage-engine.ts'
import { APPLICATION_ID } from './connection.ts'
import { storageError } from './database-access.ts'
import { DatabaseCheck, openForReading, pageFaults, type ReadableFile, readable } from './database-check.ts'
import { copyFile } from './page-copy.ts'
import { schemaOf } from './schema.ts'
import { FIRST_ROW, type RowPosition } from './table-walk.ts'

/** Rows between two progress reports. */
const PROGRESS_ROWS = 4096

type Listener = (progress: CopyProgress) => void

export class SqliteSnapshot implements DatabaseSnapshot {
  readonly bytes: number
  readonly #db: Sqlite.Database

  /** @throws SqliteError when the file cannot be read */
  constructor(path: string) {
    this.#db = openForReading(path)
    try {
      this.#db.exec('BEGIN')
      // The first read fixes the snapshot.
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

/** Reads the whole database. */
function factsOf(db: Sqlite.Database, onProgress?: Listener): CopyFacts {
  const throttle = new Throttle()
  const total = onProgress === undefined ? 0 : rowsOf(db)
  let done = 0
  const digest = digestOf(db, () => {
    done += 1
    if (done % PROGRESS_ROWS === 0) onProgress?.({ done: Math.min(done, total), total })
    if (done % 16 === 0) throttle.pause()
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

/** Longer values are hashed separately; shorter values together with the text around them. */
const SHORT_BYTES = 4096
/** Characters that are collected before they are hashed. */
const TEXT = 64 * 1024

interface Table {
  readonly name: string
  /** 1 for a table WITHOUT ROWID, whose key is its primary key. */
  readonly wr: number
}

/**
 * A digest of everything in a database's file, independent of its pages: the schema, then each table by its name, its rows
 * in the order of their keys, each value with its type and length. It includes tables that later schemas add.
 * @param onRow called after each row
 * @returns 64 hex digits
 */
function digestOf(db: Sqlite.Database, onRow: () => void): string {
  const digest = new Digest()
  digest.add([db.pragma('application_id', { simple: true }), db.pragma('user_version', { simple: true })])
  digest.add(db.prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name').pluck().all())
  for (const table of tablesOf(db)) {
    digest.add([table.name])
    const rows = db
      .prepare(`SELECT * FROM "${table.name}" ORDER BY ${keyOf(db, table)}`)
      .raw()
      .iterate()
    for (const row of rows as IterableIterator<unknown[]>) {
      digest.add(row)
      onRow()
    }
  }
  return digest.end()
}

/** How many rows {@link digestOf} reads. */
function rowsOf(db: Sqlite.Database): number {
  let rows = 0
  for (const { name } of tablesOf(db)) {
    rows += db.prepare(`SELECT count(*) FROM "${name}"`).pluck().get() as number
  }
  return rows
}

function tablesOf(db: Sqlite.Database): Table[] {
  return db
    .prepare(
      "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name",
    )
    .all() as Table[]
}

function keyOf(db: Sqlite.Database, { name, wr }: Table): string {
  if (wr === 0) return 'rowid'
  const columns = db
    .prepare('SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk')
    .pluck()
    .all(name)
  return columns.map((column) => `"${column}"`).join(', ')
}

class Digest {
  readonly #hash: Hash = createHash('sha256')
  #text = ''

  /** Adds values that belong together. */
  add(values: readonly unknown[]): void {
    let text = `${this.#text}[${values.length}`
    for (const value of values) {
      if (value === null) text += 'n'
      else if (typeof value === 'string') text += `s${value.length}:${value}`
      else if (value instanceof Uint8Array) text = this.#withBytes(text, value)
      else text += `${typeof value}${String(value)};`
    }
    this.#text = text.length > TEXT ? this.#flush(text) : text
  }

  #withBytes(text: string, bytes: Uint8Array): string {
    const head = `${text}b${bytes.length}:`
    if (bytes.length <= SHORT_BYTES)
      return head + Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')
    this.#flush(head)
    this.#hash.update(bytes)
    return ''
  }

  #flush(text: string): '' {
    this.#hash.update(text)
    return ''
  }

  end(): string {
    this.#flush(this.#text)
    return this.#hash.digest('hex')
  }
}

/**
 * Checks a copy of a database: its pages, schema, counters, rows and contents.
 * @throws Error with the fault as its message, if the pages or the schema are damaged
 */
export function checkCopy(path: string): CheckedCopy {
  return checked(path, (db) => {
    const file = readable(db)
    schemaOf(file, 'The copy')
    return { damage: damageOf(file), facts: factsOf(db) }
  })
}

/**
 * Checks a copy of server.sqlite.
 * @returns the uuid of the data folder
 * @throws Error with the fault as its message
 */
export function checkCatalogCopy(path: string): string {
  return checked(path, (db) =>
    String(db.prepare("SELECT value FROM server WHERE key = 'uuid'").pluck().get()),
  )
}

function checked<R>(path: string, read: (db: Sqlite.Database) => R): R {
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) throw new Error('the copy is missing')
  const db = openCopy(path)
  try {
    checkKind(db)
    const faults = pageFaults(readable(db))
    if (faults !== null) throw new Error(`its pages are damaged: ${faults}`)
    return read(db)
  } catch (error) {
    if (error instanceof Sqlite.SqliteError) throw damaged(error)
    throw error
  } finally {
    db.close()
  }
}

function damaged(error: InstanceType<typeof Sqlite.SqliteError>): Error {
  return new Error(`SQLite cannot read it: ${error.message} (${error.code})`, { cause: error })
}

function openCopy(path: string): Sqlite.Database {
  try {
    return openForReading(path)
  } catch (error) {
    throw error instanceof Sqlite.SqliteError ? damaged(error) : error
  }
}

function checkKind(db: Sqlite.Database): void {
  if (db.pragma('application_id', { simple: true }) !== APPLICATION_ID) {
    throw new Error('it is not a settee database')
  }
}

/** The damaged parts of a copy whose pages can be read; null if there are none. */
function damageOf(file: ReadableFile): Damage | null {
  const damage = new FoundDamage()
  const check = new DatabaseCheck(file, (part) => damage.add(part))
  const throttle = new Throttle()
  check.counters()
  for (let next: RowPosition | null = FIRST_ROW; next !== null; ) {
    next = check.step(next, performance.now())
    throttle.pause()
  }
  return damage.found
}
