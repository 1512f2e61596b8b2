import fc from 'fast-check'
import t from 'tap'
import { type AgedBackup, surplusBackups } from '../../../src/backup/backup-schedule.ts'

const DAY = 86_400_000
/** A Monday. */
const START = Date.UTC(2026, 10, 16)

function daily(day: number, more: Partial<AgedBackup> = {}): AgedBackup {
  const time = START + day * DAY
  return { id: new Date(time).toISOString(), time, isWhole: true, isSound: true, databases: ['a'], ...more }
}

const daysOf = (ids: readonly string[]) =>
  ids.map((id) => (Date.parse(id) - START) / DAY).sort((a, b) => a - b)

t.test('the last of each of some days and weeks stays', async (t) => {
  const backups = Array.from({ length: 40 }, (_, day) => daily(day))
  const gone = daysOf(surplusBackups(backups, { daily: 7, weekly: 4 }, ['a']))
  const kept = backups.map((_, day) => day).filter((day) => !gone.includes(day))
  // The 40th day is a Friday: Sundays are 20, 27, 34.
  t.strictSame(kept, [20, 27, 33, 34, 35, 36, 37, 38, 39])
})

t.test('of a day the last, and all of the last 24 hours', async (t) => {
  const backups = [0, 0.2, 0.8, 1.1, 1.4, 1.9, 2.5].map((day) => daily(day))
  t.strictSame(daysOf(surplusBackups(backups, { daily: 3, weekly: 0 }, ['a'])), [0, 0.2, 1.1, 1.4])
  t.strictSame(daysOf(surplusBackups(backups, { daily: 0, weekly: 0 }, ['a'])), [0, 0.2, 0.8, 1.1, 1.4])
})

t.test('what only an old one has stays, as long as there is such a database', async (t) => {
  const backups = [daily(0, { databases: ['a', 'b'] }), daily(1), daily(2)]
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a', 'b'])), [1])
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a'])), [0, 1])
})

t.test('one of some databases stands in for none, and goes when it is old', async (t) => {
  const backups = [daily(0, { isWhole: false }), daily(1), daily(2), daily(3, { isWhole: false })]
  t.strictSame(daysOf(surplusBackups(backups, { daily: 1, weekly: 0 }, ['a'])), [0, 1])
  const older = [daily(0), daily(1.5, { isWhole: false }), daily(2)]
  t.strictSame(daysOf(surplusBackups(older, { daily: 1, weekly: 0 }, ['a'])), [0])
})

t.test('a damaged one stands in for none', async (t) => {
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

t.test('whatever there is', async () => {
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
      // What was decided once is not decided otherwise when it is asked again.
      if (surplusBackups(kept, retention, existing).length > 0) throw new Error('more go the second time')
    }),
    { numRuns: 1000 },
  )
})
