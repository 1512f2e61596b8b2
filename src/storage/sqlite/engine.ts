import { existsSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import type { Catalog } from '../catalog.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { CopyFacts, DatabaseSnapshot } from '../copies.ts'
import type { DatabaseStore, StorageEngine } from '../engine.ts'
import { SqliteCatalog } from './catalog.ts'
import { storageError } from './connection.ts'
import { checkCatalogCopy, checkCopy } from './copy-check.ts'
import { Files } from './files.ts'
import { PageCaches } from './page-caches.ts'
import { SqliteSnapshot } from './snapshot.ts'
import { SqliteStore } from './store.ts'

export interface SqliteEngineOptions {
  /** The data folder; databases are files below it. */
  readonly dataDir: string
  /** Called before everything that reaches SQLite; a throw takes its place. For fault tests. */
  readonly onOperation?: (operation: string) => void
  /** Counts the commits of its databases. */
  readonly tally?: CommitTally
  /** The time, in ms since 1970; by default the clock's. */
  readonly now?: () => number
}

/** The embedded engine: a SQLite file a database. Each thread has one of its own over the same folder. */
export function sqliteEngine(options: SqliteEngineOptions): StorageEngine {
  const { dataDir, onOperation, tally, now = Date.now } = options
  const files = new Files(dataDir)
  const stores = new Set<SqliteStore>()
  const caches = new PageCaches()
  let catalog: SqliteCatalog | undefined
  return {
    capabilities: { durable: true, sharedWriters: false, copies: true },

    async openCatalog(): Promise<Catalog> {
      if (catalog !== undefined)
        throw new Error(`the data folder ${dataDir} is in use by this settee already`)
      catalog = new SqliteCatalog(dataDir, files, { onOperation })
      return catalog
    },

    async openDatabase(name: string): Promise<DatabaseStore> {
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        const onClosed = () => stores.delete(store)
        const store: SqliteStore = new SqliteStore(name, path, { onOperation, caches, tally, now, onClosed })
        stores.add(store)
        return store
      } catch (cause) {
        throw new CouchError(
          'internal_server_error',
          `The database ${name} cannot be opened; the log has more.`,
          {
            cause,
          },
        )
      }
    },

    async openSnapshot(name: string): Promise<DatabaseSnapshot> {
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        return new SqliteSnapshot(path)
      } catch (error) {
        throw storageError(error)
      }
    },

    async fingerprint(name: string): Promise<string | null> {
      return files.fingerprint(name)
    },

    async checkCopy(path: string): Promise<CopyFacts> {
      return checkCopy(path)
    },

    async checkCatalogCopy(path: string): Promise<string> {
      return checkCatalogCopy(path)
    },

    async close(): Promise<void> {
      await Promise.all([...stores].map((store) => store.close()))
      stores.clear()
      catalog?.close()
      catalog = undefined
    },
  }
}
