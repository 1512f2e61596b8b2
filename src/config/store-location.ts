/**
 * Where the databases of a server are, from its settings: in its data folder, or in a PostgreSQL. The data folder of a node
 * with a store has only temporary files, local.ini, `store-position` (storage/postgres/store-memory.ts), and the file `store`, which names the store: without it, a node that was started
 * without its setting would serve an empty server.
 */
import { access, readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { writeAtomically } from '../core/durable-files.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
import { readStoreAddress, type StoreAddress, storeName } from '../storage/store-address.ts'
import type { Config } from './config.ts'
import { StartError } from './start-error.ts'

/** Threads of a node with a store that are not for users' databases: that of the catalog, and that of the quarantine. */
const OTHER_THREADS = 2
/** One for reads, one for writes. */
const MIN_POOL = 2
const MAX_THREADS = 8

/**
 * @returns the address of the store; null: the databases are files
 * @throws StartError
 */
export async function storeAddress(config: Pick<Config, 'get'>): Promise<StoreAddress | null> {
  const url = config.get('settee', 'store')
  if (!url) return null
  const passwordFile = config.get('settee', 'store_password_file') || null
  return readStoreAddress(url, passwordFile).catch((error: Error) => {
    throw new StartError(`settee/store ${error.message}.`, { cause: error })
  })
}

/** @returns how many connections a node opens at most */
export function nodeConnections(config: Pick<Config, 'integer'>): number {
  return config.integer('settee', 'store_connections')
}

/**
 * @param dataDir absolute
 * @returns the location, and how many threads serve users' databases at most; undefined: as many as suit a disk
 * @throws StartError if the setting does not fit the folder; the file system's error
 */
export async function storeLocation(
  config: Pick<Config, 'get' | 'integer'>,
  dataDir: string,
): Promise<{ readonly location: StoreLocation; readonly maxThreads?: number }> {
  const address = await storeAddress(config)
  if (address === null) {
    await refuseFolderOfNode(dataDir)
    return { location: { kind: 'files', dataDir } }
  }
  await refuseFolderWithDatabases(dataDir)
  await noteStore(dataDir, storeName(address))
  const { maxThreads, poolSize } = divide(nodeConnections(config), availableParallelism())
  return { location: { kind: 'postgres', address, poolSize, dataDir }, maxThreads }
}

/**
 * Divides the connections of a node among its threads. Each thread has one more, which listens to other nodes. Threads wait for
 * PostgreSQL without being busy, so there are no more of them than cores.
 * @param connections of the node at most, at least 9
 */
export function divide(
  connections: number,
  cores: number,
): { readonly maxThreads: number; readonly poolSize: number } {
  const affordable = Math.floor(connections / (MIN_POOL + 1)) - OTHER_THREADS
  const maxThreads = Math.max(1, Math.min(MAX_THREADS, cores, affordable))
  return {
    maxThreads,
    poolSize: Math.max(MIN_POOL, Math.floor(connections / (maxThreads + OTHER_THREADS)) - 1),
  }
}

const marker = (dataDir: string): string => join(dataDir, 'store')

async function refuseFolderOfNode(dataDir: string): Promise<void> {
  const store = await readFile(marker(dataDir), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
  if (store === null) return
  throw new StartError(
    `${dataDir} is the folder of a node whose databases are in ${store.trim()}. Set settee/store in its local.ini, ` +
      'or SETTEE_STORE.',
  )
}

async function refuseFolderWithDatabases(dataDir: string): Promise<void> {
  if (!(await exists(join(dataDir, 'server.sqlite')))) return
  throw new StartError(
    `${dataDir} has databases of its own, which a node with settee/store does not serve. Give the node another folder ` +
      'with --data, and copy the databases to the store with settee move.',
  )
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

async function noteStore(dataDir: string, store: string): Promise<void> {
  const text = `${store}\n`
  const noted = await readFile(marker(dataDir), 'utf8').catch(() => null)
  if (noted !== text) await writeAtomically(marker(dataDir), text)
}
