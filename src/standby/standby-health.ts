/** How well a standby follows, for `_up?deep=1` and the metrics. */
import type { Config } from '../config/config.ts'
import type { HealthFact } from '../core/types.ts'
import { type Collector, collector, type Metric, single } from '../metrics/metric.ts'
import type { Standby, StandbyReport } from './standby.ts'

/**
 * The health of a standby: a fault if it has stopped, is too far behind, or lacks something.
 * @param maxLag in seconds
 * @returns none for a server that is no standby
 */
export function standbyFacts(report: StandbyReport, maxLag: number): readonly HealthFact[] {
  const { state, first: primary, lagSeconds, databases, waiting, refused } = report
  if (state === 'none') return []
  const reason = faultOf(report, maxLag)
  const verdict = reason === null ? { ok: true } : { ok: false, reason }
  return [
    {
      name: 'standby',
      ...verdict,
      state,
      first: primary,
      lag: lagSeconds,
      max_lag: maxLag,
      databases,
      waiting,
      refused,
    },
  ]
}

function faultOf(
  { state, lagSeconds, refused, reason, failures }: StandbyReport,
  maxLag: number,
): string | null {
  if (state !== 'following') return `The standby has stopped following: ${reason ?? state}.`
  const [failure] = failures
  const cause = reason ?? (failure === undefined ? null : `${failure.database}: ${failure.reason}`)
  const because = cause === null ? '' : ` (${cause})`
  if (lagSeconds === null) return `The initial copy is not complete${because}.`
  if (lagSeconds > maxLag) return `The standby is ${Math.round(lagSeconds)} s behind its primary${because}.`
  return refused > 0 ? `${refused} revisions could not be stored here; see the log.` : null
}

const gauge = (name: string, help: string, numberOf: (report: StandbyReport) => number | null) =>
  ({
    name,
    type: 'gauge',
    help,
    read: (report) => (report.state === 'none' ? [] : single(numberOf(report))),
  }) satisfies Metric<StandbyReport>

export const STANDBY_METRICS: readonly Metric<StandbyReport>[] = [
  gauge(
    'settee_standby_following',
    '1 while this standby follows its primary, 0 if it has stopped; absent on a server that is no standby.',
    ({ state }) => Number(state === 'following'),
  ),
  gauge(
    'settee_standby_lag_seconds',
    'Replication lag behind the primary, in seconds. Absent until the initial copy is complete.',
    ({ lagSeconds }) => lagSeconds,
  ),
  gauge('settee_standby_databases', 'Databases that this standby follows.', ({ databases }) => databases),
  gauge(
    'settee_standby_waiting_databases',
    'Databases that are being copied or wait for it.',
    ({ waiting }) => waiting,
  ),
  gauge(
    'settee_standby_refused_revisions',
    'Revisions of the primary that this standby could not store.',
    ({ refused }) => refused,
  ),
]

/** @returns the collector of the metrics, for `_prometheus` */
export function standbyCollector(standby: Pick<Standby, 'report'>): Collector {
  return collector(STANDBY_METRICS, () => standby.report())
}

/** @returns the health check, for `Services.health` */
export function standbyHealth(
  standby: Pick<Standby, 'report'>,
  config: Config,
): () => Promise<readonly HealthFact[]> {
  return async () => standbyFacts(standby.report(), config.integer('settee', 'standby_max_lag'))
}
