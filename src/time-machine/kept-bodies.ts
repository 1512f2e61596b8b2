/**
 * Removes bodies retained for the time machine when their retention period has ended, also in databases that nobody
 * opens. Checks these one at a time, once a day, and opens only those with expired bodies.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { CouchError } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { Duty } from '../threads/claims.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'

const DAY_MS = 86_400_000
/** Time from the start of the server to the first pass, in ms: others have more urgent work then. */
const FIRST_PASS_MS = 10 * 60_000
/** Pause between two checks, in ms. Each takes less than 1 ms, so ten thousand databases take a quarter of an hour. */
const PAUSE_MS = 100
/** How long to wait for the compaction of one database, in ms. After that, the pass goes on. */
const MAX_COMPACTION_MS = 60 * 60_000

type SweptDatabases = Pick<Databases, 'allNames' | 'get' | 'isOverdue'>

interface SweepOptions {
  readonly databases: SweptDatabases
  /** Ends the pass between two databases. */
  readonly ending: AbortSignal
  /** For tests, in ms. */
  readonly pauseMs?: number
}

/**
 * Checks all databases once.
 * @returns how many were compacted. A database that cannot be opened is skipped: its next caller gets the error
 */
export async function sweepKeptBodies({
  databases,
  ending,
  pauseMs = PAUSE_MS,
}: SweepOptions): Promise<number> {
  let compacted = 0
  for await (const name of databases.allNames()) {
    await pause(pauseMs, ending)
    if (ending.aborted) break
    if (await compactIfOverdue(databases, name, ending)) compacted += 1
  }
  return compacted
}

/** Resolves after this time, or when the pass is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return delay(ms, undefined, { signal }).catch(() => undefined)
}

async function compactIfOverdue(
  databases: SweptDatabases,
  name: string,
  ending: AbortSignal,
): Promise<boolean> {
  try {
    if (!(await databases.isOverdue(name))) return false
    await compact(await databases.get(name), ending)
    return true
  } catch (error) {
    if (error instanceof CouchError) return false
    throw error
  }
}

/** Compacts a database. Resolves at the end of the compaction, the database, the pass or {@link MAX_COMPACTION_MS}. */
async function compact(database: DatabaseHandle, ending: AbortSignal): Promise<void> {
  const ended = new AbortController()
  const unwatch = database.watch(({ type }) => {
    if (type === 'compacted' || type === 'closed') ended.abort()
  })
  try {
    await database.compact(SYSTEM_USER)
    await pause(MAX_COMPACTION_MS, AbortSignal.any([ended.signal, ending]))
  } finally {
    unwatch()
  }
}

/**
 * Makes a pass ten minutes from now, and then one a day, while this node has the duty.
 * @returns a function that stops this, and resolves when it has stopped
 */
export function startKeptBodyCleanup(
  databases: SweptDatabases,
  duty: Duty,
  logger: Pick<Logger, 'info' | 'warn'>,
): () => Promise<void> {
  const ending = new AbortController()
  const running = runDaily(databases, duty, logger, ending.signal)
  return async () => {
    ending.abort()
    await running
  }
}

async function runDaily(
  databases: SweptDatabases,
  duty: Duty,
  logger: Pick<Logger, 'info' | 'warn'>,
  ending: AbortSignal,
): Promise<void> {
  for (let wait = FIRST_PASS_MS; ; wait = duty.isHeld ? DAY_MS : FIRST_PASS_MS) {
    await pause(wait, ending)
    if (ending.aborted) return
    if (!duty.isHeld) continue
    const lost = new AbortController()
    const stop = duty.onChange(() => lost.abort())
    try {
      const count = await sweepKeptBodies({ databases, ending: AbortSignal.any([ending, lost.signal]) })
      if (count > 0)
        logger.info({ databases: count }, 'removed old versions from databases that nobody opened')
    } catch (err) {
      logger.warn({ err }, 'could not look for old versions in all databases that nobody opens')
    } finally {
      stop()
    }
  }
}
