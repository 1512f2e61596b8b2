/**
 * `server.sqlite`: the data of the server itself, and the incarnation of each database. The files in the folder decide
 * which databases exist, so a file that was copied into the folder while the server was stopped is served. Only one
 * process opens `server.sqlite`; it locks the whole data folder.
 */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import { checkServerUuid } from '../../core/ids.ts'
import { Listeners } from '../../core/listeners.ts'
import type {
  Catalog,
  CatalogUpdates,
  DatabaseEntry,
  DatabaseProperties,
  DatabaseSequence,
  DeletionOptions,
  NameRange,
  Replaced,
  UpdatesRange,
} from '../catalog.ts'
import {
  type CatalogChange,
  changesOf,
  type RecordRange,
  type RecordWrite,
  type ServerRecord,
} from '../records.ts'
import {
  listRecords,
  RECORDS_SCHEMA,
  readRecords,
  UPDATE_LOG_SCHEMA,
  UpdateLog,
  writeLastKnown,
  writeRecords,
} from './catalog-tables.ts'
import { type Connection, type ConnectionOptions, isBusy } from './connection.ts'
import { type DiskWatch, FileErrors, storageError } from './database-access.ts'
import { DatabaseTable } from './database-table.ts'
import type { Files } from './files.ts'
import { FolderScan } from './folder-scan.ts'
import { writeNewFile } from './new-file.ts'
import { syncPathNow } from './page-copy.ts'
import { RECORD_KEYS } from './record-keys.ts'
import type { Migration } from './schema.ts'
import { checkpointLog, distinguish, FolderLock, inUse, replaceServerFile } from './server-file.ts'
import type { Upgrades } from './upgrade.ts'

/** IF NOT EXISTS, since the first release's file has these tables but no version. */
const VERSION_1 = `
CREATE TABLE IF NOT EXISTS server (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS database (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL) WITHOUT ROWID;
`

/** A released migration never changes; new ones are appended. */
export const SERVER_MIGRATIONS: readonly Migration[] = [
  VERSION_1,
  UPDATE_LOG_SCHEMA,
  RECORDS_SCHEMA,
  RECORD_KEYS,
]

const ADOPTED_UUID = 'adopted_uuid'

interface CatalogOptions extends ConnectionOptions {
  readonly dataDir: string
  readonly files: Files
  readonly upgrades: Upgrades
  /** A file that replaces `server.sqlite` before it is opened. */
  readonly copy: string | undefined
  readonly watch?: DiskWatch | undefined
  /** The time, in ms since 1970. */
  now(): number
}

export class SqliteCatalog implements Catalog {
  readonly folderUuid: string
  #adoptedUuid: string | undefined
  readonly #files: Files
  readonly #lock: FolderLock
  readonly #connection: Connection
  readonly #options: CatalogOptions
  readonly #errors: FileErrors
  readonly #updates: UpdateLog
  readonly #table: DatabaseTable
  readonly #scan: FolderScan
  readonly #listeners = new Listeners<[CatalogChange]>()

  /**
   * Locks the data folder and opens its catalog.
   * @throws Error with one clear line when the folder is unusable or locked by another process; bad_request when the
   * copy is unusable
   */
  static async open(options: CatalogOptions): Promise<SqliteCatalog> {
    const { dataDir, files, copy } = options
    files.makeFolder()
    const lock = new FolderLock(dataDir, files.lock)
    try {
      if (copy !== undefined) replaceServerFile(dataDir, files, copy, options.now())
      return new SqliteCatalog(options, lock, await openServerFile(options))
    } catch (error) {
      lock.release()
      throw error
    }
  }

  private constructor(options: CatalogOptions, lock: FolderLock, connection: Connection) {
    const { files } = options
    this.#files = files
    this.#options = options
    this.#errors = new FileErrors('', options.watch)
    this.#lock = lock
    this.#connection = connection
    try {
      files.sweepKept()
      this.folderUuid = this.#folderUuid()
      this.#adoptedUuid = this.#serverValue(ADOPTED_UUID)
      this.#updates = new UpdateLog(this.#connection)
      this.#table = new DatabaseTable(this.#connection, this.#updates)
      this.#scan = new FolderScan({
        files,
        table: this.#table,
        transaction: (work) => this.#transaction(work),
        noteUpdated: (names) => this.#updates.note(names, 'updated'),
        onChange: (names) => this.#listeners.tell({ type: 'databases', names }),
      })
      // Whoever waits for it gets its error.
      this.#scan.settled().catch(() => undefined)
    } catch (error) {
      this.#connection.close()
      throw error
    }
  }

  get serverUuid(): string {
    return this.#adoptedUuid ?? this.folderUuid
  }

  async adoptUuid(uuid: string): Promise<void> {
    checkServerUuid(uuid)
    try {
      this.#transaction(() => {
        const sql = 'INSERT OR REPLACE INTO server (key, value) VALUES (?, ?)'
        this.#connection.prepare(sql).run(ADOPTED_UUID, uuid)
      })
      this.#adoptedUuid = uuid
    } catch (error) {
      throw storageError(error)
    }
  }

  #serverValue(key: string): string | undefined {
    return this.#connection.prepare<{ value: string }>('SELECT value FROM server WHERE key = ?').get(key)
      ?.value
  }

  #folderUuid(): string {
    const stored = this.#serverValue('uuid')
    if (stored !== undefined) return stored
    const made = randomBytes(16).toString('hex')
    this.#connection.prepare("INSERT INTO server (key, value) VALUES ('uuid', ?)").run(made)
    return made
  }

  /** As {@link #attempt}, but retries on a full disk after freeing the reserved space. Not for work that grows the file. */
  #transaction<R>(work: () => R): R {
    return this.#errors.retrying(() => this.#attempt(work))
  }

  #attempt<R>(work: () => R): R {
    try {
      this.#connection.begin()
      const result = work()
      this.#connection.commit()
      return result
    } catch (error) {
      this.#connection.rollback(error)
      throw error
    }
  }

  async find(name: string): Promise<DatabaseEntry | null> {
    return this.#read(() => {
      this.#scan.check(name)
      return this.#table.find(name)
    })
  }

  async names(range: NameRange, limit: number): Promise<string[]> {
    await this.settled()
    return this.#read(() => this.#table.names(range, limit))
  }

  async count(): Promise<number> {
    await this.settled()
    return this.#scan.count
  }

  /** Resolves when all files of the folder are known. */
  async settled(): Promise<void> {
    try {
      await this.#scan.settled()
    } catch (error) {
      throw storageError(error)
    }
  }

  /** Whether a database is there, after a look at its file. @throws the error of the table for a fault of the file */
  #has(name: string): boolean {
    return this.#read(() => {
      this.#scan.check(name)
      return this.#table.has(name)
    })
  }

  async create(name: string, properties: DatabaseProperties = {}): Promise<DatabaseEntry> {
    if (this.#has(name)) throw new CouchError('file_exists')
    let mayHaveName = false
    try {
      this.#makeFile(name, properties)
      const entry = this.#attempt(() => {
        const entered = this.#table.enter(name)
        mayHaveName = true
        // After a crash before the commit, the next start adds the file.
        this.#files.publish(name)
        return entered
      })
      this.#scan.made(name)
      this.#listeners.tell({ type: 'databases', names: [name] })
      return entry
    } catch (error) {
      if (mayHaveName) this.#files.withdraw(name)
      throw storageError(error)
    }
  }

  /** Makes an empty database under its unfinished name. */
  #makeFile(name: string, properties: DatabaseProperties): void {
    const path = this.#files.makeUnfinished(name)
    this.#options.onOperation?.('create')
    writeNewFile(path, Math.floor(this.#options.now() / 1000), properties)
  }

  async delete(name: string, { isKept = false }: DeletionOptions = {}): Promise<void> {
    if (!this.#has(name)) throw new CouchError('no_database')
    let isGone = false
    try {
      const { onOperation, now } = this.#options
      if (isKept) {
        checkpointLog(this.#files.path(name), onOperation)
        this.#files.keep(name, now())
      }
      this.#files.remove(name, () => {
        isGone = true
        this.#table.hide([name])
        this.#scan.removed(name)
        this.#listeners.tell({ type: 'databases', names: [name] })
      })
      this.#transaction(() => this.#table.forget([name]))
      this.#table.unhide([name])
    } catch (error) {
      // Once the file is renamed, the database is deleted; the next start removes the remaining files.
      if (!isGone) throw storageError(error)
    }
  }

  async replace(name: string, draft: string | null): Promise<Replaced> {
    const existed = this.#has(name)
    if (draft === null && !existed) throw new CouchError('no_database')
    let isEntered = false
    try {
      const { onOperation, now } = this.#options
      const createdAt = existed ? checkpointLog(this.#files.path(name), onOperation) : null
      const path = draft === null ? this.#files.path(name) : this.#files.draft(name, draft)
      distinguish(path, { createdAt, isStillInPlace: draft === null, now: now(), onOperation })
      // The old incarnation ends even if the file cannot be replaced.
      const entry = this.#attempt(() => this.#table.enter(name))
      isEntered = true
      const kept = draft === null ? null : this.#files.replace(name, draft, now())
      if (!existed) this.#scan.made(name)
      this.#listeners.tell({ type: 'databases', names: [name] })
      return { ...entry, kept }
    } catch (error) {
      if (!existed && isEntered) this.#transaction(() => this.#table.forget([name]))
      throw storageError(error)
    }
  }

  async discard(name: string, draft: string): Promise<void> {
    this.#files.discard(name, draft)
  }

  async noteUpdated(names: readonly string[], sequences: readonly DatabaseSequence[] = []): Promise<void> {
    const { unnoted } = this.#scan
    const asked = [...new Set([...unnoted, ...names])]
    const known = sequences.filter(({ name }) => this.#table.has(name))
    try {
      const listed = asked.filter((name) => this.#table.has(name))
      if (listed.length === 0 && known.length === 0) return
      this.#transaction(() => {
        this.#updates.note(listed, 'updated')
        writeLastKnown(this.#connection, known)
      })
      unnoted.clear()
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

  async readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    return this.#read(() => readRecords(this.#connection, kind, keys))
  }

  async listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]> {
    return this.#read(() => listRecords(this.#connection, kind, range, limit))
  }

  async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    if (!this.#read(() => this.#transaction(() => writeRecords(this.#connection, writes)))) return false
    for (const change of changesOf(writes)) this.#listeners.tell(change)
    return true
  }

  /** @throws the error of the table for a fault of the file */
  #read<R>(work: () => R): R {
    try {
      return work()
    } catch (error) {
      throw storageError(error)
    }
  }

  watch(listener: (change: CatalogChange) => void): () => void {
    return this.#listeners.add(listener)
  }

  /** Copies the catalog's file to a new one, which is durable when resolved. */
  async copyTo(path: string): Promise<void> {
    try {
      await this.#connection.copyDurably(path)
    } catch (error) {
      throw storageError(error)
    }
  }

  close(): void {
    this.#scan.close()
    this.#connection.close()
    this.#lock.release()
  }
}

/** A settee version without the folder lock locks `server.sqlite` itself, so the open file keeps it out. */
async function openServerFile(options: CatalogOptions): Promise<Connection> {
  const { dataDir, files, upgrades } = options
  try {
    const connection = await upgrades.open({
      path: files.server,
      label: files.server,
      migrations: SERVER_MIGRATIONS,
      mayBeNew: true,
      copyPath: (schema) => files.serverCopyPath(schema),
    })
    syncPathNow(dataDir)
    return connection
  } catch (error) {
    throw isBusy(error) ? inUse(dataDir, error) : error
  }
}
