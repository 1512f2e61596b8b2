import type { HealthFact } from '../core/types.ts'
import { type Collector, collector, type Metric, single } from '../metrics/metric.ts'
import { damagedReason } from './backup-folder.ts'
import type { BackupState, Backups } from './backups.ts'

/** The maximum age of the newest backup, in intervals. */
const MAX_AGE_INTERVALS = 2

/**
 * The health of backups: a fault if the newest is older than two intervals, or the last one failed or lacks a database. There
 * is no fault where backups are a task of the store.
 */
export function backupFact(state: BackupState): HealthFact {
  const { last, interval } = state
  if (!state.isSupported) {
    const reason = 'The backups of this server are a task of its store.'
    return { name: 'backup', ok: true, reason, by_store: true, last: null, age: null, interval: 0 }
  }
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
  // After a restart, `failure` is null, but the backup still shows the fault.
  const damaged = last?.left_out.find(({ reason }) => reason.startsWith('damaged'))
  if (damaged !== undefined)
    return `The last backup does not contain the database ${damaged.name}: ${damaged.reason}`
  const [first] = last?.damaged ?? []
  if (first !== undefined) return damagedReason(first)
  if (interval === 0) return null
  const since = last === null ? startedAt : Date.parse(last.begun_at)
  if (now - since <= MAX_AGE_INTERVALS * interval) return null
  return last === null ? 'No backup has been made yet.' : `The last backup was made at ${last.begun_at}.`
}

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
    'Seconds since the start of the newest verified backup of all databases; absent if there is none.',
    ({ last }) => last?.age ?? null,
  ),
  gauge(
    'settee_backup_last_success_timestamp_seconds',
    'End of the newest backup, in seconds since 1970.',
    ({ last }) => (last === null ? null : Date.parse(last.ended_at) / 1000),
  ),
  gauge('settee_backup_duration_seconds', 'Duration of the newest backup, in seconds.', ({ last }) =>
    last === null ? null : (Date.parse(last.ended_at) - Date.parse(last.begun_at)) / 1000,
  ),
  gauge('settee_backup_bytes', "Bytes of the newest backup's files.", ({ last }) => last?.bytes ?? null),
  gauge(
    'settee_backup_new_bytes',
    "Bytes of the newest backup's files that no earlier backup shares.",
    ({ last }) => {
      return last?.new_bytes ?? null
    },
  ),
  gauge('settee_backup_running', '1 while a backup is being made.', ({ isRunning }) => Number(isRunning)),
  {
    name: 'settee_backup_failures_total',
    type: 'counter',
    help: 'Backups that failed or lack a damaged database.',
    read: ({ failures }) => single(failures),
  },
]

/** @returns the collector of the backup metrics, for `_prometheus` */
export function backupCollector(backups: Pick<Backups, 'state'>): Collector {
  return collector(BACKUP_METRICS, () => backups.state())
}
