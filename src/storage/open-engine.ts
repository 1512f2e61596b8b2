/** The one place that knows the engines: makes that of a server's databases from their location. */
import type { CommitTally } from './commit-tally.ts'
import { type SqliteEngineOptions, sqliteEngine } from './sqlite/sqlite-engine.ts'
import type { StorageEngine } from './storage-engine.ts'

/** Where the databases of a server are. Plain data, since each thread gets it and makes its own engine. */
export interface StoreLocation {
  /** Files in a data folder. */
  readonly kind: 'files'
  readonly dataDir: string
}

/** What an engine is given by the thread that uses it. */
export interface EngineServices extends Pick<SqliteEngineOptions, 'keepsUpgradeCopies' | 'ending' | 'watch'> {
  /** Counts the commits of the engine's databases. */
  readonly tally?: CommitTally
}

/** @returns a new engine, which its caller closes */
export function openEngine({ dataDir }: StoreLocation, services: EngineServices = {}): StorageEngine {
  return sqliteEngine({ dataDir, ...services })
}
