/** Health facts for monitoring (`_up?deep=1`). */
import { CouchError } from '../core/errors.ts'
import type { HealthFact } from '../core/types.ts'
import type { DatabaseFault, Databases, ThreadDeaths } from '../threads/databases.ts'
import type { ThreadReport } from '../threads/thread-stats.ts'
import { orNullAfter } from './metric.ts'

/** Reports the health of one part of the server. */
type HealthSource = () => Promise<readonly HealthFact[]>

/** Time-out of one source, in ms: monitoring has its own time-out. */
const SOURCE_MS = 2000
/** How long the death of a thread counts as a fault, in seconds. */
const DEATH_COUNTS_S = 300
/** How many faulty databases are named at most. */
const MAX_NAMES = 10

/** Reads all sources. A source that fails or takes too long gets a fact of its own. Never rejects. */
export async function gatherFacts(sources: readonly HealthSource[], ms = SOURCE_MS): Promise<HealthFact[]> {
  const results = await Promise.all(sources.map((source) => orNullAfter(factsOf(source), ms)))
  return results.flatMap((facts) => facts ?? [SILENT])
}

async function factsOf(source: HealthSource): Promise<readonly HealthFact[]> {
  return source()
}

const SILENT: HealthFact = {
  name: 'health',
  ok: false,
  reason: 'A part of the server did not report its health in time; see the log.',
}

type ObservedDatabases = Pick<Databases, 'stats' | 'unreadable' | 'faults' | 'readRecords'>

/** One fact about the threads, one about the databases, and one about the store. */
export function databaseHealth(databases: ObservedDatabases): HealthSource {
  return async () => {
    // A thread that does not answer is covered by the other fact.
    const reading = orNullAfter(databases.unreadable(), SOURCE_MS / 2)
    const reaching = orNullAfter(isReachable(databases), SOURCE_MS / 2)
    const [{ threads }, unreadable, reachable] = await Promise.all([databases.stats(), reading, reaching])
    const faults = databases.faults()
    return [
      threadsFact(threads, faults.threads),
      databasesFact(faults.databases, unreadable ?? []),
      storeFact(reachable ?? false),
    ]
  }
}

/** Whether the store answers. Other faults have facts of their own. */
async function isReachable(databases: Pick<Databases, 'readRecords'>): Promise<boolean> {
  try {
    await databases.readRecords('health', ['store'])
    return true
  } catch (error) {
    return !(error instanceof CouchError && error.code === 'store_unavailable')
  }
}

function storeFact(isReachable: boolean): HealthFact {
  return { name: 'store', ...verdict(isReachable ? [] : ['The store of the databases cannot be reached.']) }
}

/**
 * Checks that each database thread answers, and that no thread has died lately.
 * @param now seconds since 1970
 */
export function threadsFact(
  threads: readonly Pick<ThreadReport, 'isAnswering'>[],
  { count: deaths, last }: ThreadDeaths,
  now = Date.now() / 1000,
): HealthFact {
  const silent = threads.filter(({ isAnswering }) => !isAnswering).length
  const reasons = [
    ...(silent === 0 ? [] : [`${silent} of ${threads.length} threads do not answer.`]),
    ...(last === null || now - last > DEATH_COUNTS_S ? [] : [DIED]),
  ]
  const figures = { threads: threads.length, silent, deaths, last_death: last }
  return { name: 'threads', ...verdict(reasons), ...figures }
}

const DIED = 'A thread died and was replaced; see the log.'

/**
 * Checks that no database has a fault.
 * @param faults found while databases were used
 * @param unreadable names of open databases whose newest document cannot be read now
 */
export function databasesFact(
  faults: readonly DatabaseFault[],
  unreadable: readonly string[] = [],
): HealthFact {
  const found = faults.map(({ database, reason, since, last }) => ({ database, reason, since, last }))
  const known = new Set(found.map(({ database }) => database))
  const others = unreadable
    .filter((database) => !known.has(database))
    .map((database) => ({ database, reason: UNREADABLE, since: null, last: null }))
  const faulty = [...found, ...others]
  const count = faulty.length
  const reasons =
    count === 0 ? [] : [`${count} ${count === 1 ? 'database has' : 'databases have'} a fault; see the log.`]
  return { name: 'databases', ...verdict(reasons), count, faulty: faulty.slice(0, MAX_NAMES) }
}

const UNREADABLE = 'Its newest document cannot be read.'

function verdict(reasons: readonly string[]): Pick<HealthFact, 'ok' | 'reason'> {
  return reasons.length === 0 ? { ok: true } : { ok: false, reason: reasons.join(' ') }
}
