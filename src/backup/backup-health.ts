import type { HealthFact } from '../core/types.ts'
import { type Collector, collector, type Metric, single } from '../metrics/metric.ts'
import type { BackupState, Backups } from './backups.ts'

/** How many intervals the newest backup may be old. */
const INTERVALS = 2

/** How backups stand: not well when the newest is older than two intervals, or the last one failed or lacks a database. */
export function backupFact(state: BackupState): HealthFact {
  const { last, interval } = state
  const reason = faultOf(state)
  return {
    name: 'backup',
    ok: reason === null,
    ...(reason !== null && { reason }),
    ...(reason === null &&
      interval === 0 && { reason: 'No backups are scheduled (settee/backup_interval).' }),
    last: last?.id ?? null,
    age: last?.age ?? null,
    interval: interval / 1000,
  }
}

function faultOf({ last, interval, failure, startedAt, now }: BackupState): string | null {
  if (failure !== null) return failure.reason
  // After a restart the backup itself is all that is known of it.
  const damaged = last?.left_out.find(({ reason }) => reason.startsWith('damaged'))
  if (damaged !== undefined) return `The last backup lacks the database ${damaged.name}: ${damaged.reason}`
  if (interval === 0) return null
  const since = last === null ? startedAt : Date.parse(last.begun_at)
  if (now - since <= INTERVALS * interval) return null
  return last === null ? 'No backup has been made yet.' : `The last backup is of ${last.begun_at}.`
}

// What is told of backups.

function gauge(
  name: string,
  help: string,
  numberOf: (state: BackupState) => number | null,
): Metric<BackupState> {
  return { name, type: 'gauge', help, read: (state) => single(numberOf(state)) }
}

export const BACKUP_METRICS: readonly Metric<BackupState>[] = [
  gauge(
    'settee_backup_age_seconds',
    'Seconds since the newest verified backup of all databases was begun; absent: there is none.',
    ({ last }) => last?.age ?? null,
  ),
  gauge(
    'settee_backup_last_success_timestamp_seconds',
    'When it was finished, in seconds since 1970.',
    ({ last }) => (last === null ? null : Date.parse(last.ended_at) / 1000),
  ),
  gauge('settee_backup_duration_seconds', 'Seconds that it took.', ({ last }) =>
    last === null ? null : (Date.parse(last.ended_at) - Date.parse(last.begun_at)) / 1000,
  ),
  gauge('settee_backup_bytes', 'Bytes of its files.', ({ last }) => last?.bytes ?? null),
  gauge('settee_backup_new_bytes', 'Bytes of those that it shares with no earlier one.', ({ last }) => {
    return last?.new_bytes ?? null
  }),
  gauge('settee_backup_running', 'Whether a backup is being made.', ({ isRunning }) => Number(isRunning)),
  {
    name: 'settee_backup_failures_total',
    type: 'counter',
    help: 'Backups that failed, or lack a database that is damaged.',
    read: ({ failures }) => single(failures),
  },
]

/** @returns what `_prometheus` asks of backups */
export function backupCollector(backups: Pick<Backups, 'state'>): Collector {
  return collector(BACKUP_METRICS, () => backups.state())
}
