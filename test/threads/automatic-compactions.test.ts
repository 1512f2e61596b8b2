import t from 'tap'
import { DEFAULT_RULES } from '../../src/core/types.ts'
import type { GarbageCounts } from '../../src/storage/upkeep.ts'
import { AutomaticCompactions, isDue, retention } from '../../src/threads/compactions.ts'

const CLEAN: GarbageCounts = {
  writes: 1,
  storedBytes: 1_000_000,
  freeBytes: 0,
  supersededBytes: 0,
  maybeUnreferencedBytes: 0,
  oldestRetained: null,
  compactedAt: 0,
  needsCompaction: false,
}
const WITH_GARBAGE: GarbageCounts = { ...CLEAN, supersededBytes: 900_000 }

/** A fake thread. The test opens its databases and ends its compactions. */
function thread(rules: Partial<typeof DEFAULT_RULES.compaction> = {}) {
  const started: string[] = []
  const ends: ((isDone: boolean) => void)[] = []
  const automatic = new AutomaticCompactions({
    rules: () => ({ ...DEFAULT_RULES.compaction, quietMs: 0, ...rules }),
    start: (name, incarnation) => {
      started.push(`${name} ${incarnation}`)
      return new Promise((resolve) => ends.push(resolve))
    },
    now: () => 1_700_000_000_000,
  })
  t.teardown(() => automatic.close())
  const open = (name: string, garbage: GarbageCounts | (() => GarbageCounts), incarnation = 1) =>
    automatic.onOpened(name, incarnation, {
      garbage: async () => (typeof garbage === 'function' ? garbage() : garbage),
    })
  const end = async (isDone: boolean) => {
    ends.shift()?.(isDone)
    await new Promise((resolve) => setImmediate(resolve))
  }
  return { automatic, started, open, end }
}

t.test('compactions run one at a time, and the database that waits longest is first', async (t) => {
  const { automatic, started, open, end } = thread()
  open('clean', CLEAN)
  open('first', WITH_GARBAGE)
  void automatic.check()
  await new Promise((resolve) => setImmediate(resolve))
  open('second', WITH_GARBAGE)
  await automatic.check()
  await automatic.check()
  t.same(started, ['first 1'])
  await end(true)
  void automatic.check()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, ['first 1', 'second 1'])
  await end(true)
})

t.test('no compaction starts before the database is quiet, or while automatic ones are off', async (t) => {
  for (const rules of [{ quietMs: 3_600_000 }, { isAutomatic: false }]) {
    const { automatic, started, open } = thread(rules)
    open('garbage', WITH_GARBAGE)
    await automatic.check()
    await automatic.check()
    t.same(started, [])
  }
})

t.test('after a failed or useless compaction, the next one waits', async (t) => {
  for (const isDone of [false, true]) {
    const { automatic, started, open, end } = thread()
    open('garbage', WITH_GARBAGE)
    void automatic.check()
    await new Promise((resolve) => setImmediate(resolve))
    await end(isDone)
    await automatic.check()
    await automatic.check()
    t.same(started, ['garbage 1'])
  }
})

t.test('a database with new garbage is compacted again', async (t) => {
  const { automatic, started, open, end } = thread()
  let garbage = WITH_GARBAGE
  open('notes', () => garbage)
  for (const times of [1, 2, 3]) {
    garbage = { ...WITH_GARBAGE, writes: times }
    while (started.length < times) {
      void automatic.check()
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    garbage = CLEAN
    await end(true)
  }
  t.equal(started.length, 3)
})

t.test('after writes during a compaction, the next one does not wait', async (t) => {
  const { automatic, started, open, end } = thread()
  let writes = 1
  open('notes', () => ({ ...WITH_GARBAGE, writes }))
  void automatic.check()
  await new Promise((resolve) => setImmediate(resolve))
  writes += 1
  await end(true)
  while (started.length < 2) {
    void automatic.check()
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
  await end(true)
  t.same(started, ['notes 1', 'notes 1'])
})

t.test('a closed database is reopened for its compaction, unless it was deleted', async (t) => {
  const { automatic, started, open, end } = thread()
  open('garbage', WITH_GARBAGE)
  open('clean', CLEAN)
  open('deleted', WITH_GARBAGE)
  for (const name of ['garbage', 'clean', 'deleted']) await automatic.onClosing(name)
  automatic.forget('deleted')
  for (let n = 0; n < 3; n++) {
    void automatic.check()
    await new Promise((resolve) => setImmediate(resolve))
    await end(true)
  }
  t.same(started, ['garbage 1'], 'it is compacted once')
})

t.test('a store that cannot report its garbage is skipped', async (t) => {
  const { automatic, started, open, end } = thread()
  automatic.onOpened('broken', 1, { garbage: () => Promise.reject(new Error('closed')) })
  open('garbage', WITH_GARBAGE)
  void automatic.check()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, ['garbage 1'])
  await end(true)
})

const NOW = 1_700_000_000_000
const DAY = 24 * 60 * 60 * 1000
const MB = 1_000_000
const RULES = DEFAULT_RULES.compaction

const garbage = (some: Partial<GarbageCounts>): GarbageCounts => ({
  writes: 0,
  storedBytes: 10 * MB,
  freeBytes: 0,
  supersededBytes: 0,
  maybeUnreferencedBytes: 0,
  oldestRetained: null,
  compactedAt: 0,
  needsCompaction: false,
  ...some,
})

t.test('a compaction is due by garbage, age or request', async (t) => {
  const cases: [what: string, garbage: Partial<GarbageCounts>, isDue: boolean][] = [
    ['nothing to do', {}, false],
    ['a fifth of the file is superseded', { supersededBytes: 2.1 * MB }, true],
    ['less than that', { supersededBytes: 1.9 * MB }, false],
    ['contents without a reference', { maybeUnreferencedBytes: 2.1 * MB }, true],
    ['free pages', { freeBytes: 2.1 * MB }, true],
    [
      'a fifth in sum',
      { freeBytes: 0.8 * MB, supersededBytes: 0.8 * MB, maybeUnreferencedBytes: 0.8 * MB },
      true,
    ],
    ['all of a small file, but little', { storedBytes: 0.3 * MB, supersededBytes: 0.2 * MB }, false],
    ['64 MB of a large file', { storedBytes: 10_000 * MB, supersededBytes: 68 * MB }, true],
    ['little of a large file', { storedBytes: 10_000 * MB, supersededBytes: 60 * MB }, false],
    ['a compaction was requested', { needsCompaction: true }, true],
    ['a retained body is too old', { oldestRetained: NOW - 31 * DAY, compactedAt: NOW - 2 * DAY }, true],
    [
      'a retained body is too old, but the last compaction was today',
      { oldestRetained: NOW - 31 * DAY, compactedAt: NOW - DAY / 2 },
      false,
    ],
    [
      'a retained body is not yet too old',
      { oldestRetained: NOW - 29 * DAY, compactedAt: NOW - 9 * DAY },
      false,
    ],
  ]
  for (const [what, some, expected] of cases) t.equal(isDue(garbage(some), RULES, NOW), expected, what)
})

t.test('retained bodies are removed at once when retention is switched off', async (t) => {
  const off = { ...RULES, keepMs: 0 }
  t.equal(isDue(garbage({ oldestRetained: NOW - 1, compactedAt: NOW }), off, NOW), true)
  t.equal(isDue(garbage({}), off, NOW), false)
  t.same(retention(off, NOW), {})
  t.same(retention(RULES, NOW), { keepSince: NOW - 30 * DAY, keepBytes: 2 ** 30 })
})
