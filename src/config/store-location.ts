/**
 * Where the databases of a server are, from its settings, and how many threads serve them: in its data folder, or in a PostgreSQL. The data folder of a node
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
/** Threads for users' databases, unless the setting says another number. */
const LEAST_THREADS = 2
const MOST_THREADS = 8

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
 * @returns the location, and how many threads serve users' databases
 * @throws StartError if the setting does not fit the folder; the file system's error
 */
export async function storeLocation(
  config: Pick<Config, 'get' | 'integer' | 'isHosted'>,
  dataDir: string,
): Promise<{ readonly location: StoreLocation; readonly threads: number }> {
  const address = await storeAddress(config)
  const cores = availableParallelism()
  const configured = config.get('settee', 'database_threads')
    ? config.integer('settee', 'database_threads')
    : null
  if (address === null) {
    await refuseFolderOfNode(dataDir)
    const threads = configured ?? threadsForFiles(config.isHosted, cores)
    return { location: { kind: 'files', dataDir }, threads }
  }
  await refuseFolderWithDatabases(dataDir)
  await noteStore(dataDir, storeName(address))
  const wanted = configured ?? Math.min(MOST_THREADS, cores)
  const { threads, poolSize } = divide(nodeConnections(config), wanted)
  return { location: { kind: 'postgres', address, poolSize, dataDir }, threads }
}

/**
 * While one thread waits for its disk, the others serve. Each compiles the same code and takes about 10 MB, which pays only where
 * many databases are written at once (docs/decisions/0065).
 */
export function threadsForFiles(isHosted: boolean, cores: number): number {
  return isHosted ? Math.max(LEAST_THREADS, Math.min(MOST_THREADS, cores)) : LEAST_THREADS
}

/**
 * Divides the connections of a node among its threads. Each thread has one more, which listens to other nodes.
 * @param connections of the node at most, at least 9
 * @param wanted threads for users' databases; there are fewer if the connections do not suffice
 */
export function divide(
  connections: number,
  wanted: number,
): { readonly threads: number; readonly poolSize: number } {
  const affordable = Math.floor(connections / (MIN_POOL + 1)) - OTHER_THREADS
  const threads = Math.max(1, Math.min(wanted, affordable))
  return {
    threads,
    poolSize: Math.max(MIN_POOL, Math.floor(connections / (threads + OTHER_THREADS)) - 1),
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
