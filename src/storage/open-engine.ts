/**
 * The one place that knows the engines: makes that of a server's databases from their location. Modules of an engine are loaded by
 * those who use it.
 */
import { join } from 'node:path'
import type { CommitTally } from './commit-tally.ts'
import type { Distribution } from './postgres/distribution.ts'
import type { SqliteEngineOptions } from './sqlite/sqlite-engine.ts'
import type { StorageEngine } from './storage-engine.ts'
import type { StoreAddress } from './store-address.ts'
import type { StoreFacts } from './store-facts.ts'

/** Where the databases of a server are. Plain data, since each thread gets it and makes its own engine. */
export type StoreLocation =
  /** Files in a data folder. */
  | { readonly kind: 'files'; readonly dataDir: string }
  /** A PostgreSQL, which several nodes share. */
  | {
      readonly kind: 'postgres'
      readonly address: StoreAddress
      /** Connections of one thread for reads and writes; it has one more that listens to other nodes. */
      readonly poolSize: number
      /** The folder of this node. */
      readonly dataDir: string
    }

/** What an engine is given by the thread that uses it. The options of files mean nothing to a store. */
export interface EngineServices extends Pick<SqliteEngineOptions, 'keepsUpgradeCopies' | 'ending' | 'watch'> {
  /** Counts the commits of the engine's databases. */
  readonly tally?: CommitTally
}

/** Makes an engine, which its caller closes. */
export type MakeEngine = (services?: EngineServices) => StorageEngine

/** Loads the engine for a location. */
export async function engineFor(location: StoreLocation): Promise<MakeEngine> {
  if (location.kind === 'files') {
    const { sqliteEngine } = await import('./sqlite/sqlite-engine.ts')
    return (services = {}) => sqliteEngine({ dataDir: location.dataDir, ...services })
  }
  const { address, poolSize, dataDir } = location
  const memoryPath = join(dataDir, 'store-position')
  const { postgresEngine } = await import('./postgres/postgres-engine.ts')
  return ({ tally, watch } = {}) =>
    postgresEngine({
      address,
      poolSize,
      memoryPath,
      ...(tally && { tally }),
      onDamage: (database, error) => watch?.onFault?.(database, error),
      onDamagedLeaf: (database) => watch?.onDamagedLeaf?.(database),
      onRestored: (database, leaves, rest) => watch?.onRestored?.(database, leaves, rest),
    })
}

/**
 * Locks the folder of a node for this process, as the engine over files does. A store is shared, but not the node's temporary files.
 * @returns a function that releases it
 * @throws Error with one clear line if another process has locked it
 */
export async function lockFolder(dataDir: string): Promise<() => void> {
  const { FolderLock } = await import('./sqlite/server-file.ts')
  const lock = new FolderLock(dataDir, `${dataDir}/lock`)
  return () => lock.release()
}

/** @throws the error of the driver or of the network if the store cannot be reached */
export async function readStoreFacts(address: StoreAddress): Promise<StoreFacts> {
  const module = await import('./postgres/store-facts-reader.ts')
  return module.readStoreFacts(address)
}

/** As `mayAnswerSoon` (postgres/store-fault.ts). */
export async function mayStoreAnswerSoon(error: unknown): Promise<boolean> {
  const module = await import('./postgres/store-fault.ts')
  return module.mayAnswerSoon(error)
}

/** As `distribute` (postgres/distribution.ts). */
export async function distributeStore(address: StoreAddress, shards: number | null): Promise<Distribution> {
  const module = await import('./postgres/distribution.ts')
  return module.distribute(address, shards)
}
