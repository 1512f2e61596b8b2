/**
 * `server.sqlite`: the data of the server itself, and the incarnation of each database. The files in the folder decide
 * which databases exist, so a file that was copied into the folder while the server was stopped is served. Only one
 * process opens `server.sqlite`; it locks the whole data folder.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import { isHeldLong } from '../../core/event-loop.ts'
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
  isMadeAnew,
  type RecordRange,
  type RecordWrite,
  type ServerRecord,
} from '../records.ts'
import { RecordTable, UpdateLog } from './catalog-tables.ts'
import { type Connection, type ConnectionOptions, isBusy } from './connection.ts'
import { type DiskWatch, FileErrors, storageError } from './database-access.ts'
import { DatabaseTable } from './database-table.ts'
import type { Files } from './files.ts'
import { FolderScan } from './folder-scan.ts'
import { writeNewFile } from './new-file.ts'
import { syncPathNow } from './page-copy.ts'
import { ageOfServerFile, DamagedServerFile, damagedServerFile, ServerCopyKeeper } from './server-copy.ts'
import {
  checkOpenedServerFile,
  checkpointLog,
  distinguish,
  FolderLock,
  inUse,
  refuseLostServerFile,
  replaceServerFile,
} from './server-file.ts'
import { SERVER_MIGRATIONS } from './server-migrations.ts'
import { CHANGES, ServerRows } from './server-rows.ts'
import type { Upgrades } from './upgrade.ts'

const ADOPTED_UUID = 'adopted_uuid'

interface CatalogOptions extends ConnectionOptions {
  readonly dataDir: string
  readonly files: Files
  readonly upgrades: Upgrades
  /** A file that replaces `server.sqlite` before it is opened. */
  readonly copy: string | undefined
  /** Whether `server.sqlite` was found damaged, and is replaced for that. */
  readonly isDamaged: boolean
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
  readonly #rows: ServerRows
  readonly #records: RecordTable
  readonly #copy: ServerCopyKeeper
  readonly #updates: UpdateLog
  readonly #table: DatabaseTable
  readonly #scan: FolderScan
  readonly #listeners = new Listeners<[CatalogChange]>()
  #isClosed = false

  /**
   * Locks the data folder and opens its catalog.
   * @throws Error with one clear line when the folder is unusable or locked by another process; bad_request when the
   * copy is unusable; damaged_server_file
   */
  static async open(options: CatalogOptions): Promise<SqliteCatalog> {
    const { dataDir, files, copy, isDamaged } = options
    files.makeFolder()
    const lock = new FolderLock(dataDir, files.lock)
    try {
      if (copy !== undefined) replaceServerFile(dataDir, files, { copy, isDamaged, now: options.now() })
      refuseLostServerFile(files)
      return new SqliteCatalog(options, lock, await openServerFile(options))
    } catch (error) {
      lock.release()
      const fault = damagedServerFile(error)
      if (!(fault instanceof DamagedServerFile)) throw error
      throw new CouchError('damaged_server_file', `${files.server} is damaged: ${fault.message}`, {
        cause: fault,
      })
    }
  }

  private constructor(options: CatalogOptions, lock: FolderLock, connection: Connection) {
    const { files, watch } = options
    this.#files = files
    this.#options = options
    this.#errors = new FileErrors('', options.watch)
    this.#lock = lock
    this.#connection = connection
    try {
      const rows = new ServerRows(connection)
      this.#rows = rows
      checkOpenedServerFile(connection, files)
      files.sweepKept()
      this.folderUuid = this.#folderUuid()
      this.#adoptedUuid = this.#serverText(ADOPTED_UUID)
      this.#records = new RecordTable(connection, rows)
      this.#updates = new UpdateLog(connection, rows)
      this.#table = new DatabaseTable({ connection, rows, updates: this.#updates, records: this.#records })
      this.#copy = new ServerCopyKeeper({
        connection,
        files,
        onDamage: (cause) =>
          watch?.onServerFault?.(new CouchError('damaged_server_file', undefined, { cause })),
      })
      this.#compareWithCopy()
      this.#scan = new FolderScan({
        files,
        table: this.#table,
        transaction: (work) => this.#transaction(work),
        noteUpdated: (names) => this.#updates.note(names, 'updated'),
        onChange: (names) => this.#listeners.tell({ type: 'databases', names }),
      })
      // Whoever waits for it gets its error.
      this.#scan.whenListed().catch(() => undefined)
      // The next opening goes on after a failure.
      this.#addChecksums().catch(() => undefined)
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
        this.#rows.putValue(ADOPTED_UUID, uuid)
        this.#noteChange()
      })
      this.#adoptedUuid = uuid
    } catch (error) {
      throw storageError(error)
    }
  }

  /** A file that somebody has put here is newer than a copy from before. */
  #compareWithCopy(): void {
    const changes = Number(this.#rows.value(CHANGES) ?? 0)
    const copy = ageOfServerFile(this.#files.serverCopy)
    const isOwn = copy?.uuid === this.folderUuid
    if (isOwn && copy.changes > changes) this.#rows.putValue(CHANGES, copy.changes)
    if (!isOwn || copy.changes !== changes) this.#copy.note()
  }

  /** Counts a change that must not be lost, for {@link refuseLostServerFile}. Part of the caller's transaction. */
  #noteChange(): void {
    this.#rows.putValue(CHANGES, Number(this.#rows.value(CHANGES) ?? 0) + 1)
    this.#copy.note()
  }

  #serverText(key: string): string | undefined {
    const value = this.#rows.value(key)
    return value === undefined ? undefined : String(value)
  }

  #folderUuid(): string {
    const stored = this.#serverText('uuid')
    if (stored !== undefined) return stored
    const made = randomBytes(16).toString('hex')
    this.#rows.putValue('uuid', made)
    return made
  }

  /** Gives the rows of an older settee their checksums, in short turns. */
  async #addChecksums(): Promise<void> {
    while (this.#rows.isUnsummed && !this.#isClosed) {
      this.#transaction(() => {
        const since = performance.now()
        while (this.#rows.fill() && !isHeldLong(since));
      })
      await nextTurn()
    }
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
    await this.whenListed()
    return this.#read(() => this.#table.names(range, limit))
  }

  async count(): Promise<number> {
    await this.whenListed()
    return this.#scan.count
  }

  /** Resolves when all files of the folder are known. */
  async whenListed(): Promise<void> {
    try {
      await this.#scan.whenListed()
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
        this.#records.noteLastKnown(known)
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
    return this.#read(() => this.#records.read(kind, keys))
  }

  async listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]> {
    return this.#read(() => this.#records.list(kind, range, limit))
  }

  async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    const isWritten = this.#read(() =>
      this.#transaction(() => {
        if (!this.#records.write(writes)) return false
        if (writes.some(({ kind }) => !isMadeAnew(kind))) this.#noteChange()
        return true
      }),
    )
    if (!isWritten) return false
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
      await this.#copy.copyTo(path)
    } catch (error) {
      throw storageError(error)
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#scan.close()
    await this.#copy.close()
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
