/** Where this server's databases are, and whether a store can be used: before anything is opened. */
import type { Logger } from 'pino'
import { StartError } from '../config/start-error.ts'
import { nodeConnections, storeLocation } from '../config/store-location.ts'
import { oneLine } from '../core/errors.ts'
import { lockFolder, readStoreFacts, type StoreLocation } from '../storage/open-engine.ts'
import { type StoreAddress, storeName } from '../storage/store-address.ts'
import { refusalOf, type StoreFacts, warningOf } from '../storage/store-facts.ts'
import type { ServerContext } from './server-context.ts'

type Context = Pick<ServerContext, 'config' | 'dataDir' | 'logger' | 'shutdown'>

/**
 * Finds the databases. For a store, it locks the node's folder until shutdown, asks the PostgreSQL whether it suits, and logs what the
 * operator should know.
 * @returns the location, and how many threads serve users' databases at most, if the location says so
 * @throws StartError
 */
export async function openLocation({
  config,
  dataDir,
  logger,
  shutdown,
}: Context): Promise<{ readonly location: StoreLocation; readonly maxThreads?: number }> {
  const found = await storeLocation(config, dataDir)
  if (found.location.kind === 'files') return found
  const release = await lockFolder(dataDir).catch((error: Error) => {
    throw new StartError(error.message, { cause: error })
  })
  shutdown.add(async () => release())
  await checkStore(found.location.address, nodeConnections(config), logger)
  return found
}

/** @throws StartError if the store cannot be reached or used */
async function checkStore(
  address: StoreAddress,
  perNode: number,
  logger: Pick<Logger, 'info' | 'warn'>,
): Promise<void> {
  const store = storeName(address)
  const facts = await factsOf(address, store)
  const refusal = refusalOf(facts, perNode)
  if (refusal !== null) throw new StartError(`The store ${store} cannot be used. ${refusal}`)
  logger.info({ store, version: facts.versionText }, 'the databases are in PostgreSQL')
  const warning = warningOf(facts, perNode)
  if (warning !== null) logger.warn(warning)
}

async function factsOf(address: StoreAddress, store: string): Promise<StoreFacts> {
  try {
    return await readStoreFacts(address)
  } catch (error) {
    throw new StartError(`The store ${store} cannot be reached: ${oneLine((error as Error).message)}.`, {
      cause: error,
    })
  }
}
