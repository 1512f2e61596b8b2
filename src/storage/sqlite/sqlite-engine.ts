/** The storage engine over SQLite: one file for each database, and `server.sqlite` for the catalog. */
import { existsSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { CouchError } from '../../core/errors.ts'
import type { Catalog } from '../catalog.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { VersionedStore } from '../history-store.ts'
import type { IndexStores } from '../index-store.ts'
import type {
  CheckPosition,
  CheckStep,
  DatabaseSnapshot,
  OpenOptions,
  StorageEngine,
} from '../storage-engine.ts'
import type { RetainedVersions } from '../upkeep.ts'
import { type DiskWatch, FileErrors, PageCaches, storageError } from './database-access.ts'
import { checkStored, openForReading, readable } from './database-check.ts'
import { SqliteFileReader } from './file-reader.ts'
import { Files } from './files.ts'
import { garbageKeys } from './garbage.ts'
import { isIndexDamaged, signaturesIn } from './index-check.ts'
import { SqliteIndexStores } from './index-stores.ts'
import { SqliteLiveReader } from './live-reader.ts'
import { readMeta } from './meta.ts'
import { prepareCopy } from './prepared-restore.ts'
import { MIGRATIONS, RefusedFile } from './schema.ts'
import { faultOfServerFile } from './server-copy.ts'
import { checkCatalogCopy, checkCopy, SqliteSnapshot } from './snapshot.ts'
import { SqliteCatalog } from './sqlite-catalog.ts'
import { ClosedPositions } from './state.ts'
import { SqliteStore } from './store.ts'
import { Upgrades } from './upgrade.ts'

export interface SqliteEngineOptions {
  /** The data folder; databases are files below it. */
  readonly dataDir: string
  /** Called before each operation of SQLite; if it throws, the operation does not run. For fault tests. */
  readonly onOperation?: (operation: string) => void
  /** Counts the commits of the engine's databases. */
  readonly tally?: CommitTally
  /** The time, in ms since 1970; by default the system clock. */
  readonly now?: () => number
  /** Whether a file is copied before its schema changes; true by default. */
  readonly keepsUpgradeCopies?: () => boolean
  /** Ends upgrades of files, which may take long, with the error unavailable. */
  readonly ending?: AbortSignal
  readonly watch?: DiskWatch
}

/** The embedded engine, with a SQLite file for each database. Each thread has its own engine for the same folder. */
export function sqliteEngine(options: SqliteEngineOptions): StorageEngine {
  const { dataDir, onOperation, tally, now = Date.now, keepsUpgradeCopies = () => true } = options
  const { ending, watch } = options
  const files = new Files(dataDir)
  const upgrades = new Upgrades({ onOperation, keepsCopies: keepsUpgradeCopies, ending })
  const stores = new Set<SqliteStore>()
  const caches = new PageCaches()
  const readerCaches = new PageCaches(READERS_KIB)
  const closed = new ClosedPositions()
  let catalog: SqliteCatalog | undefined
  return {
    capabilities: { durable: true, sharedWriters: false },

    async openCatalog(copy?: string, isDamaged = false): Promise<Catalog> {
      if (catalog !== undefined)
        throw new Error(`the data folder ${dataDir} is in use by this settee already`)
      const paths = { dataDir, files }
      catalog = await SqliteCatalog.open({ ...paths, upgrades, onOperation, now, copy, isDamaged, watch })
      return catalog
    },

    async openDatabase(name: string, { lastKnown }: OpenOptions = {}): Promise<VersionedStore> {
      // A file that a crash has left needs a look before it is opened.
      await catalog?.find(name)
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        const connection = await upgrades.open({
          path,
          label: `The database ${name}`,
          migrations: MIGRATIONS,
          copyPath: (schema) => files.copyPath(name, schema),
          onExclusive: () => watch?.onExclusive?.(name),
        })
        const onClosed = () => stores.delete(store)
        const options = { connection, caches, closed, tally, now, lastKnown, watch, onClosed }
        const store: SqliteStore = new SqliteStore(name, path, options)
        stores.add(store)
        return store
      } catch (cause) {
        throw openFault(name, cause, watch)
      }
    },

    openIndexes(name: string): IndexStores {
      const errors = new FileErrors(name, watch)
      return new SqliteIndexStores({ folder: files.indexFolder(name), caches, errors, onOperation })
    },

    async retainedVersions(name: string): Promise<RetainedVersions | null> {
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        return retainedVersionsIn(path, files.isLeftOpen(name))
      } catch (error) {
        throw storageError(error)
      }
    },

    async checkDatabase(name, from, ms) {
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        return checkWithIndexes(path, files.indexFolder(name), from, ms)
      } catch (error) {
        throw storageError(error)
      }
    },

    async checkServer(): Promise<string | null> {
      try {
        return faultOfServerFile(files.server)
      } catch (error) {
        throw storageError(error)
      }
    },

    copies: {
      prepare: (name, copy) => prepareCopy(files, name, copy, { onOperation, now }),
      openSnapshot: async (name) => openSnapshot(files, name),
      fingerprint: async (name) => files.fingerprint(name),
      checkCopy: async (path) => checkCopy(path),
      openReader: (place) => {
        const path = 'path' in place ? place.path : files.path(place.database)
        if ('database' in place && !existsSync(path)) throw new CouchError('no_database')
        return new SqliteFileReader(path)
      },
      openLiveReader: (name) => new SqliteLiveReader(name, files.path(name), readerCaches),
      copyCatalog: async (path) => {
        if (catalog === undefined) throw new Error('the catalog is not open')
        await catalog.copyTo(path)
      },
      checkCatalogCopy: async (path) => checkCatalogCopy(path),
    },

    async close(): Promise<void> {
      await Promise.all([...stores].map((store) => store.close()))
      stores.clear()
      await catalog?.close()
      catalog = undefined
    },
  }
}

/** The memory for the pages of live readers, in KiB. */
const READERS_KIB = 8 * 1024

/** The position behind all tables of a database: its indexes follow. */
const INDEXES = 1_000_000

/** As {@link checkStored}, and then the indexes, one after the other. */
function checkWithIndexes(path: string, folder: string, from: CheckPosition | null, ms: number): CheckStep {
  if (from?.table !== INDEXES) {
    const step = checkStored(path, from, ms)
    return step.next === null && signaturesIn(folder).length > 0
      ? { ...step, next: { table: INDEXES, above: '' } }
      : step
  }
  const until = performance.now() + ms
  const damagedIndexes: string[] = []
  for (const signature of signaturesIn(folder)) {
    if (signature <= String(from.above)) continue
    if (isIndexDamaged(folder, signature)) damagedIndexes.push(signature)
    if (performance.now() > until)
      return { next: { table: INDEXES, above: signature }, share: 1, damage: null, damagedIndexes }
  }
  return { next: null, share: 1, damage: null, damagedIndexes }
}

/** @throws no_database, the translated error of the driver */
function openSnapshot(files: Files, name: string): DatabaseSnapshot {
  const path = files.path(name)
  if (!existsSync(path)) throw new CouchError('no_database')
  try {
    return new SqliteSnapshot(path)
  } catch (error) {
    throw storageError(error)
  }
}

function openFault(name: string, cause: unknown, watch: DiskWatch | undefined): CouchError {
  const reported = new FileErrors(name, watch).report(cause)
  if (reported instanceof CouchError && reported.code !== 'internal_server_error') return reported
  const reason =
    cause instanceof RefusedFile
      ? cause.message
      : `The database ${name} cannot be opened. The log has the details.`
  return new CouchError('internal_server_error', reason, { cause })
}

/**
 * Reads which bodies a database's file retains, without opening the database.
 * @param isLeftOpen whether its log has content
 * @returns null if the file has an older schema, which retains no bodies
 * @throws SqliteError
 */
function retainedVersionsIn(path: string, isLeftOpen: boolean): RetainedVersions | null {
  const file = isLeftOpen ? openForReading(path) : openWithoutLog(path)
  try {
    if (file.pragma('user_version', { simple: true }) !== MIGRATIONS.length) return null
    const { sound } = readMeta(readable(file))
    const [oldestRetained, compactedAt] = [garbageKeys.oldestRetained, garbageKeys.compactedAt].map((key) =>
      Number(sound.get(key) ?? 0),
    ) as [number, number]
    return { oldestRetained: oldestRetained || null, compactedAt }
  } finally {
    file.close()
  }
}

/**
 * For a file without a log: a connection that can write removes the empty log that it creates when it is closed, and a
 * read-only one leaves it. A file with a log needs a read-only connection, so that the log stays as it is.
 */
function openWithoutLog(path: string): Sqlite.Database {
  return new Sqlite(path, { fileMustExist: true })
}
