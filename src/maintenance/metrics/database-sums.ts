/** What the database threads have done, all together. */
import { countOf } from '../../core/histogram.ts'
import type { ThreadReport } from '../../threads/thread-stats.ts'

export function openDatabases(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats?.openDatabases ?? 0), 0)
}

/** Transactions that became durable. */
export function commitsOf(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats === null ? 0 : countOf(stats.commits.writes)), 0)
}

/** Sequence numbers that were given out. */
export function updatesOf(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats?.commits.updates.sum ?? 0), 0)
}
