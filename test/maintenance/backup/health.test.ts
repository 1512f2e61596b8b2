import t from 'tap'
import type { BackupSummary } from '../../../src/backup/backup-folder.ts'
import { backupFact } from '../../../src/backup/backup-health.ts'
import type { BackupState } from '../../../src/backup/backups.ts'

const HOUR = 3_600_000
const NOW = Date.UTC(2026, 10, 22)

const last = (hours: number, more: Partial<BackupSummary> = {}) =>
  ({
    id: 'x',
    begun_at: new Date(NOW - hours * HOUR).toISOString(),
    age: hours * 3600,
    left_out: [],
    ...more,
  }) as unknown as BackupSummary

function state(more: Partial<BackupState>): BackupState {
  const none = { last: null, interval: 24 * HOUR, failure: null, failures: 0, isRunning: false }
  return { ...none, startedAt: NOW - HOUR, now: NOW, ...more }
}

t.test('how backups stand', async (t) => {
  const fact = (more: Partial<BackupState>) => backupFact(state(more))
  t.match(fact({}), { ok: true, last: null }, 'the first is still to come')
  t.match(fact({ startedAt: NOW - 49 * HOUR }), { ok: false, reason: 'No backup has been made yet.' })
  t.match(fact({ last: last(47) }), { ok: true, last: 'x', age: 47 * 3600, interval: 86_400 })
  t.match(fact({ last: last(49) }), { ok: false, reason: /^The last backup was made at 2026-11-19T23/ })
  t.match(fact({ last: last(4900), interval: 0 }), { ok: true, reason: /^No backups are scheduled/ })
  t.match(fact({ last: last(1), failure: { time: NOW, reason: 'The disk is full.' } }), {
    ok: false,
    reason: 'The disk is full.',
  })
  const lacking = last(1, { left_out: [{ name: 'notes', reason: 'damaged: its pages' }] })
  t.match(fact({ last: lacking, interval: 0 }), { ok: false, reason: /does not contain the database notes/ })
  const deleted = last(1, { left_out: [{ name: 'notes', reason: 'deleted or replaced' }] })
  t.match(fact({ last: deleted }), { ok: true })
})
