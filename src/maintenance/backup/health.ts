import type { HealthFact } from '../../core/health.ts'
import type { BackupState } from './backups.ts'

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
