import { existsSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import type { Catalog } from '../catalog.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { DatabaseStore, StorageEngine } from '../engine.ts'
import { SqliteCatalog } from './catalog.ts'
import { Files } from './files.ts'
import { PageCaches } from './page-caches.ts'
import { SqliteStore } from './store.ts'
import { type DiskWatch, Trouble } from './trouble.ts'

export interface SqliteEngineOptions {
  /** The data folder; databases are files below it. */
  readonly dataDir: string
  /** Called before everything that reaches SQLite; a throw takes its place. For fault tests. */
  readonly onOperation?: (operation: string) => void
  /** Counts the commits of its databases. */
  readonly tally?: CommitTally
  readonly watch?: DiskWatch
}

/** The embedded engine: a SQLite file a database. Each thread has one of its own over the same folder. */
export function sqliteEngine({ dataDir, onOperation, tally, watch }: SqliteEngineOptions): StorageEngine {
  const files = new Files(dataDir)
  const stores = new Set<SqliteStore>()
  const caches = new PageCaches()
  let catalog: SqliteCatalog | undefined
  return {
    capabilities: { durable: true, sharedWriters: false },

    async openCatalog(): Promise<Catalog> {
      if (catalog !== undefined)
        throw new Error(`the data folder ${dataDir} is in use by this settee already`)
      catalog = new SqliteCatalog(dataDir, files, { onOperation, watch })
      return catalog
    },

    async openDatabase(name: string): Promise<DatabaseStore> {
      const path = files.path(name)
      if (!existsSync(path)) throw new CouchError('no_database')
      try {
        const onClosed = () => stores.delete(store)
        const options = { onOperation, caches, tally, watch, onClosed }
        const store: SqliteStore = new SqliteStore(name, path, options)
        stores.add(store)
        return store
      } catch (cause) {
        const told = new Trouble(name, watch).told(cause)
        if (told instanceof CouchError && told.code !== 'internal_server_error') throw told
        const reason = `The database ${name} cannot be opened; the log has more.`
        throw new CouchError('internal_server_error', reason, { cause })
      }
    },

    async close(): Promise<void> {
      await Promise.all([...stores].map((store) => store.close()))
      stores.clear()
      catalog?.close()
      catalog = undefined
    },
  }
}
