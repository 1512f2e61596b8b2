import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import {
  BackupSchedule,
  nextBackupAt,
  type ScheduleFacts,
  type WallClock,
} from '../../../src/backup/backup-schedule.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const FACTS: ScheduleFacts = { interval: 24 * HOUR, last: null, failed: null, startedAt: 1000 * HOUR }

t.test('when the next one is due', async (t) => {
  const at = (facts: Partial<ScheduleFacts>) => nextBackupAt({ ...FACTS, ...facts })
  t.equal(at({ interval: 0 }), null)
  t.equal(at({}), 1000 * HOUR + MINUTE, 'the first')
  t.equal(at({ last: 990 * HOUR }), 1014 * HOUR)
  t.equal(at({ last: 500 * HOUR }), 1000 * HOUR + MINUTE, 'a missed one is made up for')
  t.equal(at({ failed: 1002 * HOUR }), 1003 * HOUR, 'one that failed is tried again')
  t.equal(at({ failed: 1002 * HOUR, interval: HOUR / 2 }), 1002.5 * HOUR)
  t.equal(at({ last: 1001 * HOUR, failed: 1002 * HOUR }), 1025 * HOUR)
})

class FakeClock implements WallClock {
  time = 1000 * HOUR
  readonly #calls = new Set<{ readonly at: number; readonly call: () => void }>()

  now(): number {
    return this.time
  }

  after(ms: number, call: () => void): () => void {
    const entry = { at: this.time + ms, call }
    this.#calls.add(entry)
    return () => this.#calls.delete(entry)
  }

  get waiting(): number {
    return this.#calls.size
  }

  /** Lets time pass, in steps of a minute. */
  async pass(ms: number): Promise<void> {
    const end = this.time + ms
    while (this.time < end) {
      this.time = Math.min(this.time + MINUTE, end)
      for (const entry of [...this.#calls]) {
        if (entry.at > this.time) continue
        this.#calls.delete(entry)
        entry.call()
      }
      for (let n = 0; n < 5; n++) await turn()
    }
  }
}

function scheduled(t: Test, facts: { interval: number; last: number | null; failed: number | null }) {
  const clock = new FakeClock()
  const startedAt = clock.time
  const made: number[] = []
  const outcome = { ok: true }
  const schedule = new BackupSchedule({
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

t.test('none while the interval is 0, and at once when it is set', async (t) => {
  const { clock, made, schedule, facts } = scheduled(t, { interval: 0, last: null, failed: null })
  await clock.pass(50 * HOUR)
  t.equal(made.length, 0)
  facts.interval = HOUR
  schedule.look()
  await clock.pass(MINUTE)
  t.equal(made.length, 1)
})

t.test('one that fails is tried again after an hour', async (t) => {
  const { clock, made, outcome } = scheduled(t, { interval: 24 * HOUR, last: null, failed: null })
  outcome.ok = false
  await clock.pass(2.9 * HOUR)
  t.equal(made.length, 3)
  outcome.ok = true
  await clock.pass(20 * HOUR)
  t.equal(made.length, 4)
})
