/** The health and the metrics of the scrub. */
import type { HealthFact } from '../core/types.ts'
import { type Collector, collector, type Metric, single } from '../metrics/metric.ts'
import { describeDamage } from '../storage/damage.ts'
import type { RememberedDamage } from './damage-records.ts'
import type { Scrub, ScrubState } from './scrub.ts'

/** The maximum age of the last pass, in intervals. */
const MAX_AGE_INTERVALS = 2
/** How many damaged databases the fact names at most. */
const MAX_NAMES = 10

/** A fault if a part of a database is damaged, or if not everything was read for two intervals. */
export function scrubFact(state: ScrubState): HealthFact {
  const { damaged, last, interval } = state
  const reason = faultOf(state)
  const unscheduled = interval === 0 ? 'No checks are scheduled (settee/scrub_interval).' : null
  const shown = reason ?? unscheduled
  return {
    name: 'scrub',
    ok: reason === null,
    ...(shown !== null && { reason: shown }),
    last: last === null ? null : new Date(last.endedAt).toISOString(),
    interval: interval / 1000,
    damaged: damaged.slice(0, MAX_NAMES).map(({ database, count }) => ({ database, count })),
  }
}

function faultOf({ damaged, last, interval, failure, startedAt, now, server }: ScrubState): string | null {
  if (server !== null)
    return `The server's own data is damaged: ${server}. Restart settee: it then starts from the newest copy.`
  const [first] = damaged
  if (first !== undefined) {
    const others = damaged.length === 1 ? '' : `, and parts of ${damaged.length - 1} more databases`
    const what = describeDamage(first)
    return `Damaged in the database ${first.database}: ${what}${others}. GET /_settee/check says which.`
  }
  if (failure !== null) return `The last check of everything that is stored failed: ${failure}`
  if (interval === 0) return null
  const since = Math.max(last?.endedAt ?? 0, startedAt)
  if (now - since <= MAX_AGE_INTERVALS * interval) return null
  return 'What is stored was not checked for a long time.'
}

const partsOf = (damaged: readonly RememberedDamage[]) => damaged.reduce((sum, { count }) => sum + count, 0)

export const SCRUB_METRICS: readonly Metric<ScrubState>[] = [
  {
    name: 'settee_scrub_last_success_timestamp_seconds',
    type: 'gauge',
    help: 'When everything that is stored was last read and checked, in seconds since 1970.',
    read: ({ last }) => single(last === null ? null : last.endedAt / 1000),
  },
  {
    name: 'settee_scrub_running',
    type: 'gauge',
    help: '1 while databases are being checked.',
    read: ({ task }) => single(Number(task !== null)),
  },
  {
    name: 'settee_scrub_databases_total',
    type: 'counter',
    help: 'Databases that were checked.',
    read: ({ checked }) => single(checked),
  },
  {
    name: 'settee_scrub_damaged_databases',
    type: 'gauge',
    help: 'Databases with damaged parts, 100 at most.',
    read: ({ damaged }) => single(damaged.length),
  },
  {
    name: 'settee_scrub_damaged_parts',
    type: 'gauge',
    help: 'Damaged parts of these databases.',
    read: ({ damaged }) => single(partsOf(damaged)),
  },
]

/** @returns the collector of the metrics of the scrub, for `_prometheus` */
export function scrubCollector(scrub: Pick<Scrub, 'state'>): Collector {
  return collector(SCRUB_METRICS, () => scrub.state())
}
