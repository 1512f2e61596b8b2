/**
 * Removes bodies retained for the time machine when their retention period has ended, also in databases that nobody opens. Once a day
 * it checks these one at a time, and opens only those with something to remove.
 */
import { setTimeout as rest } from 'node:timers/promises'
import type { Logger } from 'pino'
import { ADMIN_ROLE } from '../auth/accounts.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'

const SERVER: UserCtx = { name: null, roles: [ADMIN_ROLE] }

const DAY_MS = 86_400_000
/** After the start others have more urgent work, in ms. */
const FIRST_MS = 10 * 60_000
/** Between two looks, which take less than a millisecond, in ms: ten thousand databases take a quarter of an hour. */
const REST_MS = 100
/** One that is not compacted by then is let be until the next day, in ms. */
const PATIENCE_MS = 60 * 60_000

type Swept = Pick<Databases, 'names' | 'get' | 'isOverdue'>

interface SweepOptions {
  readonly databases: Swept
  /** Ends the pass between two databases. */
  readonly ending: AbortSignal
  /** For tests, in ms. */
  readonly restMs?: number
}

/**
 * One pass over all databases.
 * @returns how many were compacted; a database that cannot be opened is skipped, since its next caller gets the error
 */
export async function sweepKeptBodies({
  databases,
  ending,
  restMs = REST_MS,
}: SweepOptions): Promise<number> {
  let compacted = 0
  for (const name of databases.names()) {
    await pause(restMs, ending)
    if (ending.aborted) break
    if (await isSwept(databases, name, ending)) compacted += 1
  }
  return compacted
}

/** Resolves after this time, or when the pass is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return rest(ms, undefined, { signal }).catch(() => undefined)
}

async function isSwept(databases: Swept, name: string, ending: AbortSignal): Promise<boolean> {
  try {
    if (!(await databases.isOverdue(name))) return false
    await compacted(databases.get(name), ending)
    return true
  } catch (error) {
    if (error instanceof CouchError) return false
    throw error
  }
}

/** Compacts a database. @returns when that has ended, however; or the database, the pass or the patience has */
async function compacted(database: DatabaseHandle, ending: AbortSignal): Promise<void> {
  const over = new AbortController()
  const unwatch = database.watch(({ type }) => {
    if (type === 'compacted' || type === 'gone') over.abort()
  })
  try {
    await database.compact(SERVER)
    await pause(PATIENCE_MS, AbortSignal.any([over.signal, ending]))
  } finally {
    unwatch()
  }
}

/**
 * Makes a pass some minutes from now, and one a day from then on.
 * @returns what ends that, and resolves when it has
 */
export function startKeptBodyCleanup(
  databases: Swept,
  logger: Pick<Logger, 'info' | 'warn'>,
): () => Promise<void> {
  const ending = new AbortController()
  const tending = tend(databases, logger, ending.signal)
  return async () => {
    ending.abort()
    await tending
  }
}

async function tend(
  databases: Swept,
  logger: Pick<Logger, 'info' | 'warn'>,
  ending: AbortSignal,
): Promise<void> {
  for (let wait = FIRST_MS; ; wait = DAY_MS) {
    await pause(wait, ending)
    if (ending.aborted) return
    try {
      const count = await sweepKeptBodies({ databases, ending })
      if (count > 0)
        logger.info({ databases: count }, 'removed old versions from databases that nobody opened')
    } catch (err) {
      logger.warn({ err }, 'could not look for old versions in all databases that nobody opens')
    }
  }
}
