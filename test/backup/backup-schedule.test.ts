import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { BackupSummary } from '../../src/backup/backup-folder.ts'
import { backupFact } from '../../src/backup/backup-health.ts'
import { type AgedBackup, surplusBackups } from '../../src/backup/backup-schedule.ts'
import type { BackupState } from '../../src/backup/backups.ts'
import { removeUpgradeCopies, startUpgradeCopyCleanup } from '../../src/backup/upgrade-copies.ts'
import { nextRunAt, Schedule, type ScheduleFacts } from '../../src/core/schedule.ts'
import { FakeWallClock } from '../helpers/fake-wall-clock.ts'
import { temporaryFolder } from '../helpers/server.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const FACTS: ScheduleFacts = { interval: 24 * HOUR, last: null, failed: null, startedAt: 1000 * HOUR }

t.test('when the next backup is due', async (t) => {
  const at = (facts: Partial<ScheduleFacts>) => nextRunAt({ ...FACTS, ...facts }, 2000 * HOUR)
  t.equal(at({ interval: 0 }), null)
  const setBack = { ...FACTS, failed: 1001 * HOUR }
  t.equal(nextRunAt(setBack, 900 * HOUR), 0, 'a clock that is set back delays nothing')
  t.equal(at({}), 1000 * HOUR + MINUTE, 'the first backup is due a minute after the start')
  t.equal(at({ last: 990 * HOUR }), 1014 * HOUR)
  t.equal(at({ last: 500 * HOUR }), 1000 * HOUR + MINUTE, 'a missed backup is due a minute after the start')
  t.equal(at({ failed: 1002 * HOUR }), 1003 * HOUR, 'a failed backup is due again after an hour')
  t.equal(at({ failed: 1002 * HOUR, interval: HOUR / 2 }), 1002.5 * HOUR)
  t.equal(at({ last: 1001 * HOUR, failed: 1002 * HOUR }), 1025 * HOUR)
})

class FakeClock extends FakeWallClock {
  constructor() {
    super(1000 * HOUR)
  }

  /** Advances the time, in steps of a minute. */
  async pass(ms: number): Promise<void> {
    const end = this.time + ms
    while (this.time < end) {
      this.time = Math.min(this.time + MINUTE, end)
      await this.call(this.time, 5)
    }
  }
}

function scheduled(t: Test, facts: { interval: number; last: number | null; failed: number | null }) {
  const clock = new FakeClock()
  const startedAt = clock.time
  const made: number[] = []
  const outcome = { ok: true }
  const schedule = new Schedule({
    clock,
    facts: async () => ({ ...facts, startedAt }),
    make: async () => {
      made.push((clock.time - startedAt) / HOUR)
      await turn()
      if (outcome.ok) facts.last = clock.time
      facts.failed = outcome.ok ? null : clock.time
    },
  })
  t.teardown(() => schedule.close())
  return { clock, made, schedule, outcome, facts }
}

t.test('backups are made when they are due', async (t) => {
  const { clock, made, schedule } = scheduled(t, { interval: 24 * HOUR, last: null, failed: null })
  await clock.pass(50 * HOUR)
  t.equal(made.length, 3)
  const late = made.map((hour, day) => hour - 24 * day)
  t.ok(
    late.every((hours) => hours >= 0 && hours < 0.5),
    made.join(),
  )
  await schedule.close()
  t.equal(clock.waiting, 0)
  await clock.pass(50 * HOUR)
  t.equal(made.length, 3)
})

t.test('no backup is made while the interval is 0; one is made at once when it is set', async (t) => {
  const { clock, made, schedule, facts } = scheduled(t, { interval: 0, last: null, failed: null })
  await clock.pass(50 * HOUR)
  t.equal(made.length, 0)
  facts.interval = HOUR
  schedule.check()
  await clock.pass(MINUTE)
  t.equal(made.length, 1)
})

t.test('a failed backup is tried again after an hour', async (t) => {
  const { clock, made, outcome } = scheduled(t, { interval: 24 * HOUR, last: null, failed: null })
  outcome.ok = false
  await clock.pass(2.9 * HOUR)
  t.equal(made.length, 3)
  outcome.ok = true
  await clock.pass(20 * HOUR)
  t.equal(made.length, 4)
})

const DAY = 86_400_000
/** A Monday. */
const START = Date.UTC(2026, 10, 16)

function daily(day: number, more: Partial<AgedBackup> = {}): AgedBackup {
  const time = START + day * DAY
  return { id: new Date(time).toISOString(), time, isWhole: true, isSound: true, databases: ['a'], ...more }
}

const daysOf = (ids: readonly string[]) =>
  ids.map((id) => (Date.parse(id) - START) / DAY).sort((a, b) => a - b)

t.test('the last backup of each of the newest days and weeks is kept', async (t) => {
  const backups = Array.from({ length: 40 }, (_, day) => daily(day))
  const gone = daysOf(surplusBackups(backups, { daily: 7, weekly: 4 }, ['a']))
  const kept = backups.map((_, day) => day).filter((day) => !gone.includes(day))
  // The 40th day is a Friday: Sundays are 20, 27, 34.
  t.strictSame(kept, [20, 27, 33, 34, 35, 36, 37, 38, 39])
})

t.test('the last backup of a day and all backups of the last 24 hours are kept', async (t) => {
  const backups = [0, 0.2, 0.8, 1.1, 1.4, 1.9, 2.5].map((day) => daily(day))
  t.strictSame(daysOf(surplusBackups(backups, { daily: 3, weekly: 0 }, ['a'])), [0, 0.2, 1.1, 1.4])
  t.strictSame(daysOf(surplusBackups(backups, { daily: 0, weekly: 0 }, ['a'])), [0, 0.2, 0.8, 1.1, 1.4])
})

t.test('an old backup is kept while it is the only one with an existing database', async (t) => {
  const backups = [daily(0, { databases: ['a', 'b'] }), daily(1), daily(2)]
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a', 'b'])), [1])
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a'])), [0, 1])
})

t.test('a backup of some databases replaces no other, and is removed when it is old', async (t) => {
  const backups = [daily(0, { isWhole: false }), daily(1), daily(2), daily(3, { isWhole: false })]
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a'])), [0, 1])
  const older = [daily(0), daily(1.5, { isWhole: false }), daily(2)]
  t.strictSame(daysOf(surplusBackups(older, { daily: 1, weekly: 0 }, ['a'])), [0])
})

t.test('a damaged backup replaces no other', async (t) => {
  const backups = [daily(0, { isSound: false }), daily(1.5), daily(2, { isSound: false })]
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 1 }, ['a'])), [0])
  const none = [daily(0, { isSound: false }), daily(1, { isWhole: false })]
  t.strictSame(surplusBackups(none, { daily: 0, weekly: 0 }, []), [])
})

const NAMES = ['a', 'b', 'c']

const backupsOf = fc
  .uniqueArray(
    fc.record({
      time: fc.integer({ min: START, max: START + 100 * DAY }),
      isWhole: fc.boolean(),
      isSound: fc.boolean(),
      databases: fc.subarray(NAMES),
    }),
    { selector: ({ time }) => time, maxLength: 40 },
  )
  .map((found) => found.map((each): AgedBackup => ({ ...each, id: new Date(each.time).toISOString() })))
const retentionOf = fc.record({ daily: fc.nat({ max: 10 }), weekly: fc.nat({ max: 10 }) })

t.test('property: any set of backups', async () => {
  fc.assert(
    fc.property(backupsOf, retentionOf, fc.subarray(NAMES), (backups, retention, existing) => {
      const gone = new Set(surplusBackups(backups, retention, existing))
      const kept = backups.filter(({ id }) => !gone.has(id))
      const newest = (from: readonly AgedBackup[]) => from.toSorted((a, b) => b.time - a.time)[0]?.id
      const good = (from: readonly AgedBackup[]) => from.filter(({ isWhole, isSound }) => isWhole && isSound)
      if (newest(good(kept)) !== newest(good(backups))) throw new Error('the newest is gone')
      for (const name of existing) {
        const having = (from: readonly AgedBackup[]) =>
          from.filter(({ isSound, databases }) => isSound && databases.includes(name))
        if (newest(having(kept)) !== newest(having(backups)))
          throw new Error(`the newest with ${name} is gone`)
      }
      const limit = retention.daily + retention.weekly + existing.length
      const last = good(backups).reduce((latest, { time }) => Math.max(latest, time), 0)
      const older = good(kept).filter(({ time }) => time <= last - DAY)
      if (older.length > limit) throw new Error('too many stay')
      // A second call after the removal removes nothing more.
      if (surplusBackups(kept, retention, existing).length > 0) throw new Error('more go the second time')
    }),
    { numRuns: 1000 },
  )
})

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
  const none = {
    isSupported: true,
    last: null,
    interval: 24 * HOUR,
    failure: null,
    failures: 0,
    isRunning: false,
  }
  return { ...none, startedAt: NOW - HOUR, now: NOW, ...more }
}

t.test('the state of the backups', async (t) => {
  const fact = (more: Partial<BackupState>) => backupFact(state(more))
  t.match(fact({}), { ok: true, last: null }, 'no fault is reported before the first backup is due')
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
  const damage = { count: 2, parts: [] }
  const damaged = last(1, { damaged: [{ name: 'notes', ...damage }] })
  t.match(fact({ last: damaged }), { ok: false, reason: /2 parts are damaged/ })
  const deleted = last(1, { left_out: [{ name: 'notes', reason: 'deleted or replaced' }] })
  t.match(fact({ last: deleted }), { ok: true })
})

async function copy(dataDir: string, schema: string, name: string, days: number): Promise<void> {
  const folder = join(dataDir, 'before-upgrade', schema)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, name), 'x')
  const made = new Date(Date.now() - days * DAY)
  await utimes(join(folder, name), made, made)
}

t.test('old copies are removed, and the folders that become empty', async (t) => {
  const dataDir = await temporaryFolder(t)
  t.equal(await removeUpgradeCopies(dataDir, Date.now()), 0, 'a folder without copies is accepted')
  await copy(dataDir, 'databases-3', 'old.sqlite', 31)
  await copy(dataDir, 'databases-4', 'old.sqlite', 31)
  await copy(dataDir, 'databases-4', 'new.sqlite', 29)
  t.equal(await removeUpgradeCopies(dataDir, Date.now() - 30 * DAY), 2)
  t.same(await readdir(join(dataDir, 'before-upgrade')), ['databases-4'])
  t.same(await readdir(join(dataDir, 'before-upgrade', 'databases-4')), ['new.sqlite'])
})

t.test('a server removes old copies when it starts, and logs their number', async (t) => {
  const dataDir = await temporaryFolder(t)
  await copy(dataDir, 'server-2', 'server.sqlite', 8)
  const said: unknown[] = []
  const log = (...words: unknown[]) => void said.push(words)
  const logger = { info: log, warn: log } as never
  const end = startUpgradeCopyCleanup({ dataDir, config: { integer: () => 7 }, logger })
  await end()
  t.match(said, [[{ count: 1 }, /^removed copies/]])
  t.same(await readdir(join(dataDir, 'before-upgrade')), [])
})
