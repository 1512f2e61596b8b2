/** What whoever watches over the server is told when he asks how it is (`_up?deep=1`). */
import type { HealthFact } from '../core/health.ts'
import type { Databases } from '../threads/databases.ts'
import { orNull } from './metrics/in-time.ts'

/** Tells how one part of the house is. */
export type HealthSource = () => Promise<readonly HealthFact[]>

/** How long one may take, in ms: who asks has a time limit of his own. */
const SOURCE_MS = 2000

/** Asks all of them. One that fails or takes too long is a fact by itself. Never rejects. */
export async function gatherFacts(sources: readonly HealthSource[], ms = SOURCE_MS): Promise<HealthFact[]> {
  const told = await Promise.all(sources.map((source) => orNull(asked(source), ms)))
  return told.flatMap((facts) => facts ?? [SILENT])
}

async function asked(source: HealthSource): Promise<readonly HealthFact[]> {
  return source()
}

const SILENT: HealthFact = {
  name: 'health',
  ok: false,
  reason: 'A part of the server has not told in time how it is; the log may have more.',
}

/** Whether each database thread answers, and each open database can be read. */
export function databaseHealth(databases: Pick<Databases, 'stats' | 'unreadable'>): HealthSource {
  return async () => Promise.all([threadsFact(databases), openDatabasesFact(databases)])
}

async function threadsFact(databases: Pick<Databases, 'stats'>): Promise<HealthFact> {
  const { threads } = await databases.stats()
  const silent = threads.filter(({ isAnswering }) => !isAnswering).length
  const fact = { name: 'database_threads', ok: silent === 0, threads: threads.length, silent }
  return silent === 0 ? fact : { ...fact, reason: `${silent} of ${threads.length} threads do not answer.` }
}

/** How many are named. */
const MAX_NAMES = 10

async function openDatabasesFact(databases: Pick<Databases, 'unreadable'>): Promise<HealthFact> {
  // A thread that does not answer is told of above.
  const unreadable = (await orNull(databases.unreadable(), SOURCE_MS / 2)) ?? []
  const fact = { name: 'open_databases', ok: unreadable.length === 0 }
  if (fact.ok) return fact
  const reason = `${unreadable.length} of the open databases cannot be read; the log has more.`
  return { ...fact, reason, unreadable: unreadable.slice(0, MAX_NAMES) }
}
