/** What is told of backups. */
import type { BackupState, Backups } from '../backup/backups.ts'
import { type Collector, collector, type Metric, single } from './metric.ts'

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
