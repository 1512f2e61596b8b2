/**
 * `server.sqlite`: what belongs to the server and to no database. Which databases there are is what files there
 * are, so that a file copied into the folder while the server is stopped is served; this file gives each its
 * incarnation. It is open in one process only, which locks the whole data folder.
 */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import type {
  Catalog,
  CatalogUpdates,
  DatabaseEntry,
  RecordWrite,
  ServerRecord,
  UpdatesRange,
} from '../catalog.ts'
import { Connection, type ConnectionOptions, isBusy, isFull, storageError } from './connection.ts'
import type { Files } from './files.ts'
import { RECORDS_SCHEMA, readRecords, writeRecords } from './records.ts'
import { migrate } from './schema.ts'
import { State } from './state.ts'
import { type DiskWatch, Trouble } from './trouble.ts'
import { UPDATE_LOG_SCHEMA, UpdateLog } from './update-log.ts'

/** The first release's file has its tables and no version: hence IF NOT EXISTS. */
const VERSION_1 = `
CREATE TABLE IF NOT EXISTS server (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS database (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL) WITHOUT ROWID;
`

/** As with a database's file: what has been released never changes, the next step is appended. */
const MIGRATIONS: readonly string[] = [VERSION_1, UPDATE_LOG_SCHEMA, RECORDS_SCHEMA]

export interface CatalogOptions extends ConnectionOptions {
  readonly watch?: DiskWatch | undefined
}

export class SqliteCatalog implements Catalog {
  readonly serverUuid: string
  readonly #files: Files
  readonly #connection: Connection
  readonly #options: ConnectionOptions
  readonly #trouble: Trouble
  readonly #updates: UpdateLog
  /** Written to before the start, which a full disk kept from being noted. */
  readonly #owed = new Set<string>()
  /** What is listed: the rows that have a file. */
  readonly #entries = new Map<string, DatabaseEntry>()

  /** @throws Error with one clear line when the folder cannot be used or another settee holds it */
  constructor(dataDir: string, files: Files, { watch, ...options }: CatalogOptions) {
    this.#files = files
    this.#options = options
    this.#trouble = new Trouble('', watch)
    files.makeFolder()
    this.#connection = openLocked(dataDir, files.server, options)
    try {
      files.sweep()
      this.serverUuid = this.#value('uuid', () => randomBytes(16).toString('hex'))
      this.#updates = new UpdateLog(this.#connection)
      this.#adopt()
    } catch (error) {
      this.#connection.close()
      throw error
    }
  }

  #value(key: string, make: () => string): string {
    const stored = this.#connection
      .prepare<{ value: string }>('SELECT value FROM server WHERE key = ?')
      .get(key)
    if (stored !== undefined) return stored.value
    const value = make()
    this.#connection.prepare('INSERT INTO server (key, value) VALUES (?, ?)').run(key, value)
    return value
  }

  /**
   * Enters files that are new here, and forgets those that are gone. Databases that nobody closed count as written
   * to: what was to be noted of them was lost when the server ended. On a disk where nothing can be entered, those that
   * are known are served: whoever starts the server to make room must be able to.
   */
  #adopt(): void {
    const found = new Set(this.#files.databases())
    const rows = this.#rows()
    const known = rows.filter(({ name }) => found.has(name))
    for (const entry of known) {
      this.#entries.set(entry.name, entry)
      if (this.#files.isLeftOpen(entry.name)) this.#owed.add(entry.name)
    }
    try {
      for (const entry of this.#transaction(() => this.#enterAll(rows, found))) {
        this.#entries.set(entry.name, entry)
      }
      this.#owed.clear()
    } catch (error) {
      if (!isFull(error)) throw error
    }
  }

  /** @param found the databases that have a file @returns those that are new here */
  #enterAll(rows: readonly DatabaseEntry[], found: ReadonlySet<string>): DatabaseEntry[] {
    for (const { name } of rows) if (!found.has(name)) this.#forget(name)
    this.#updates.note([...this.#owed], 'updated')
    return [...found].filter((name) => !this.#entries.has(name)).map((name) => this.#enter(name))
  }

  /** As {@link #attempt}; on a full disk again, if room was made. Not for what grows. */
  #transaction<R>(work: () => R): R {
    return this.#trouble.trying(() => this.#attempt(work))
  }

  #attempt<R>(work: () => R): R {
    this.#connection.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#connection.exec('COMMIT')
      return result
    } catch (error) {
      this.#connection.rollback()
      throw error
    }
  }

  #rows(): DatabaseEntry[] {
    return this.#connection.prepare<DatabaseEntry>('SELECT name, incarnation FROM database').all()
  }

  /** Gives a database a number that none has had. */
  #enter(name: string): DatabaseEntry {
    const next = this.#connection.prepare<{ value: number }>(
      "INSERT INTO server (key, value) VALUES ('incarnation', 1) " +
        'ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value',
    )
    const incarnation = next.get()?.value as number
    this.#connection
      .prepare('INSERT OR REPLACE INTO database (name, incarnation) VALUES (?, ?)')
      .run(name, incarnation)
    this.#updates.note([name], 'created')
    return { name, incarnation }
  }

  #forget(name: string): void {
    this.#connection.prepare('DELETE FROM database WHERE name = ?').run(name)
    this.#updates.note([name], 'deleted')
  }

  async list(): Promise<DatabaseEntry[]> {
    return [...this.#entries.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  async create(name: string): Promise<DatabaseEntry> {
    if (this.#entries.has(name)) throw new CouchError('file_exists')
    let isPublished = false
    try {
      this.#makeFile(name)
      const entry = this.#attempt(() => {
        const entered = this.#enter(name)
        // A crash before the commit leaves a file that the next start enters.
        this.#files.publish(name)
        isPublished = true
        return entered
      })
      this.#entries.set(name, entry)
      return entry
    } catch (error) {
      if (isPublished) this.#files.withdraw(name)
      throw storageError(error)
    }
  }

  /** A whole, empty file under its unfinished name; closing it brings everything from the log into the file. */
  #makeFile(name: string): void {
    const path = this.#files.makeUnfinished(name)
    const connection = new Connection(path, { ...this.#options, isDraft: true })
    try {
      migrate(connection, path)
      State.create(connection, Math.floor(Date.now() / 1000))
    } finally {
      connection.close()
    }
  }

  async delete(name: string): Promise<void> {
    if (!this.#entries.has(name)) throw new CouchError('no_database')
    try {
      this.#files.remove(name, () => this.#entries.delete(name))
      this.#transaction(() => this.#forget(name))
    } catch (error) {
      // Once the file has lost its name the database is gone; what is left of it goes at the next start.
      if (this.#entries.has(name)) throw storageError(error)
    }
  }

  async noteUpdated(names: readonly string[]): Promise<void> {
    const listed = [...new Set([...this.#owed, ...names])].filter((name) => this.#entries.has(name))
    try {
      if (listed.length > 0) this.#transaction(() => this.#updates.note(listed, 'updated'))
      this.#owed.clear()
    } catch (error) {
      throw storageError(error)
    }
  }

  async readUpdates(range: UpdatesRange, limit: number): Promise<CatalogUpdates> {
    try {
      return this.#updates.read(range, limit)
    } catch (error) {
      throw storageError(error)
    }
  }

  async readRecords(kind: string): Promise<ServerRecord[]> {
    try {
      return readRecords(this.#connection, kind)
    } catch (error) {
      throw storageError(error)
    }
  }

  async writeRecords(writes: readonly RecordWrite[]): Promise<void> {
    try {
      this.#transaction(() => writeRecords(this.#connection, writes))
    } catch (error) {
      throw storageError(error)
    }
  }

  close(): void {
    this.#connection.close()
  }
}

function openLocked(dataDir: string, path: string, options: ConnectionOptions): Connection {
  try {
    const connection = new Connection(path, { ...options, exclusive: true })
    migrate(connection, path, MIGRATIONS)
    // With an exclusive lock the first write takes the file, and keeps it until it is closed or the process dies.
    connection.exec('BEGIN IMMEDIATE; COMMIT')
    return connection
  } catch (error) {
    if (isBusy(error)) throw new Error(`the data folder ${dataDir} is in use by another settee`)
    throw error
  }
}
