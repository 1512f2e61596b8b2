/** Where this server's databases are, and whether a store can be used: before anything is opened. */
import { setTimeout as rest } from 'node:timers/promises'
import { StartError } from '../config/start-error.ts'
import { nodeConnections, storeLocation } from '../config/store-location.ts'
import { oneLine } from '../core/errors.ts'
import { lockFolder, mayStoreAnswerSoon, readStoreFacts, type StoreLocation } from '../storage/open-engine.ts'
import { type StoreAddress, storeName } from '../storage/store-address.ts'
import { refusalOf, type StoreFacts, warningOf } from '../storage/store-facts.ts'
import type { ServerContext } from './server-context.ts'

interface Context extends Pick<ServerContext, 'config' | 'dataDir' | 'logger' | 'shutdown'> {
  /** Ends the wait for a store. */
  readonly ending: AbortSignal | undefined
  /** How long a store may be away, in ms; by default {@link WAIT_MS}. */
  readonly storeWaitMs: number | undefined
}

/** Machines start PostgreSQL and nodes at once; after a crash it recovers first. In ms. */
const WAIT_MS = 60_000
const RETRY_MS = 500

/**
 * Finds the databases. For a store, it locks the node's folder until shutdown, waits for PostgreSQL, asks it whether it suits, and
 * logs what the operator should know.
 * @returns as `storeLocation`
 * @throws StartError; the reason of `ending`
 */
export async function openLocation(
  context: Context,
): Promise<{ readonly location: StoreLocation; readonly threads: number }> {
  const { config, dataDir, shutdown } = context
  const found = await storeLocation(config, dataDir)
  if (found.location.kind === 'files') return found
  const release = await lockFolder(dataDir).catch((error: Error) => {
    throw new StartError(error.message, { cause: error })
  })
  shutdown.add(async () => release())
  await checkStore(found.location.address, context)
  return found
}

/** @throws StartError if the store cannot be reached or used; the reason of `ending` */
async function checkStore(address: StoreAddress, context: Context): Promise<void> {
  const { config, logger } = context
  const perNode = nodeConnections(config)
  const store = storeName(address)
  const facts = await factsOf(address, store, context)
  const refusal = refusalOf(facts, perNode)
  if (refusal !== null) throw new StartError(`The store ${store} cannot be used. ${refusal}`)
  logger.info({ store, version: facts.versionText }, 'the databases are in PostgreSQL')
  const warning = warningOf(facts, perNode)
  if (warning !== null) logger.warn(warning)
}

async function factsOf(address: StoreAddress, store: string, context: Context): Promise<StoreFacts> {
  const { logger, ending, storeWaitMs = WAIT_MS } = context
  const since = performance.now()
  for (let isFirst = true; ; isFirst = false) {
    try {
      return await readStoreFacts(address)
    } catch (error) {
      const fault = `The store ${store} cannot be reached: ${oneLine((error as Error).message)}.`
      const isLast = performance.now() - since >= storeWaitMs || !(await mayStoreAnswerSoon(error))
      if (isLast) throw new StartError(fault, { cause: error })
      if (isFirst) logger.warn(`${fault} It is tried again for ${storeWaitMs / 1000} s.`)
      ending?.throwIfAborted()
      await rest(RETRY_MS, undefined, { signal: ending }).catch(() => ending?.throwIfAborted())
    }
  }
}
