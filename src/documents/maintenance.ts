/** Compaction, sizes, purge, and what is kept of purges, as methods of a database; protocol.md 4.6, 4.7. */
import type { Limits } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Database } from './database.ts'
import { purge, purgedInfos, purgedInfosLimit, setPurgedInfosLimit } from './purge.ts'
import { requireDatabaseAdmin, requireMaintainer } from './security.ts'

export type Maintenance = Pick<
  Database,
  'compact' | 'size' | 'purge' | 'purgedInfos' | 'purgedInfosLimit' | 'setPurgedInfosLimit'
>

interface MaintenanceOptions {
  limits(): Limits
  /** Compacts the store in the background, unless that is at work; what comes of it is told to somebody else. */
  startCompaction(): void
  /** What the rows of the database's views take in memory; absent: nothing. */
  viewBytes?(): number
}

/** @param store the database's documents */
export function maintenance(
  store: DatabaseStore,
  { limits, startCompaction, viewBytes }: MaintenanceOptions,
): Maintenance {
  return {
    compact: async (user) => {
      requireMaintainer(user, (await store.view()).security)
      startCompaction()
    },
    size: async (user) => {
      requireDatabaseAdmin(user, (await store.view()).security)
      return { ...(await store.sizes()), views: { bytes: viewBytes?.() ?? 0 } }
    },
    purge: (user, body) => purge(store, user, body, limits()),
    purgedInfos: (user) => purgedInfos(store, user),
    purgedInfosLimit: (user) => purgedInfosLimit(store, user),
    setPurgedInfosLimit: (user, limit) => setPurgedInfosLimit(store, user, limit),
  }
}
