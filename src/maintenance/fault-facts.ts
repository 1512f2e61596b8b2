import type { HealthFact } from '../core/health.ts'
import type { Faults } from '../threads/faults.ts'

/** So long after a thread has died the server is not called well, in seconds. */
const DEATH_COUNTS_S = 300

/**
 * What has gone wrong with databases and threads, as facts: one of all threads, and one of each database whose file is
 * not as it should be.
 * @param now seconds since 1970
 */
export function faultFacts({ databases, threads }: Faults, now = Date.now() / 1000): HealthFact[] {
  const ok = threads.last === null || now - threads.last > DEATH_COUNTS_S
  const deaths = { name: 'threads', ok, deaths: threads.count, last_death: threads.last }
  return [
    ok
      ? deaths
      : { ...deaths, reason: 'A thread has died, and another has taken its place; the log has more.' },
    ...databases.map(({ database, reason, since, last }) => ({
      name: 'database',
      ok: false,
      reason,
      database,
      since,
      last,
    })),
  ]
}
