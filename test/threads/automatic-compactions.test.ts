import t from 'tap'
import { DEFAULT_RULES } from '../../src/core/types.ts'
import type { GarbageCounts } from '../../src/storage/upkeep.ts'
import { AutomaticCompactions } from '../../src/threads/compactions.ts'

const CLEAN: GarbageCounts = {
  writes: 1,
  fileBytes: 1_000_000,
  freeBytes: 0,
  supersededBytes: 0,
  looseBytes: 0,
  oldestRetained: null,
  compactedAt: 0,
  isOwed: false,
}
const WORN: GarbageCounts = { ...CLEAN, supersededBytes: 900_000 }

/** A thread whose databases are as the test says, and whose compactions end when it says so. */
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
    automatic.opened(name, incarnation, {
      garbage: async () => (typeof garbage === 'function' ? garbage() : garbage),
    })
  const end = async (isDone: boolean) => {
    ends.shift()?.(isDone)
    await new Promise((resolve) => setImmediate(resolve))
  }
  return { automatic, started, open, end }
}

t.test('one at a time, the one that has waited longest first', async (t) => {
  const { automatic, started, open, end } = thread()
  open('clean', CLEAN)
  open('first', WORN)
  void automatic.look()
  await new Promise((resolve) => setImmediate(resolve))
  open('second', WORN)
  await automatic.look()
  await automatic.look()
  t.same(started, ['first 1'])
  await end(true)
  void automatic.look()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, ['first 1', 'second 1'])
  await end(true)
})

t.test('no compaction starts before the database is quiet, or while automatic ones are off', async (t) => {
  for (const rules of [{ quietMs: 3_600_000 }, { isAutomatic: false }]) {
    const { automatic, started, open } = thread(rules)
    open('worn', WORN)
    await automatic.look()
    await automatic.look()
    t.same(started, [])
  }
})

t.test('after a failed or useless compaction, the database rests for a while', async (t) => {
  for (const isDone of [false, true]) {
    const { automatic, started, open, end } = thread()
    open('worn', WORN)
    void automatic.look()
    await new Promise((resolve) => setImmediate(resolve))
    await end(isDone)
    await automatic.look()
    await automatic.look()
    t.same(started, ['worn 1'])
  }
})

t.test('a database with new garbage is compacted again', async (t) => {
  const { automatic, started, open, end } = thread()
  let garbage = WORN
  open('notes', () => garbage)
  for (const times of [1, 2, 3]) {
    garbage = { ...WORN, writes: times }
    while (started.length < times) {
      void automatic.look()
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    garbage = CLEAN
    await end(true)
  }
  t.equal(started.length, 3)
})

t.test(
  'one that writes wear anew while it is compacted does not wait like one that compaction does not help',
  async (t) => {
    const { automatic, started, open, end } = thread()
    let writes = 1
    open('notes', () => ({ ...WORN, writes }))
    void automatic.look()
    await new Promise((resolve) => setImmediate(resolve))
    writes += 1
    await end(true)
    while (started.length < 2) {
      void automatic.look()
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    await end(true)
    t.same(started, ['notes 1', 'notes 1'])
  },
)

t.test('a closed database is reopened for its compaction, unless it was deleted', async (t) => {
  const { automatic, started, open, end } = thread()
  open('worn', WORN)
  open('clean', CLEAN)
  open('deleted', WORN)
  for (const name of ['worn', 'clean', 'deleted']) await automatic.closing(name)
  automatic.forget('deleted')
  for (let n = 0; n < 3; n++) {
    void automatic.look()
    await new Promise((resolve) => setImmediate(resolve))
    await end(true)
  }
  t.same(started, ['worn 1'], 'and once')
})

t.test('a store that cannot report its garbage is skipped', async (t) => {
  const { automatic, started, open, end } = thread()
  automatic.opened('broken', 1, { garbage: () => Promise.reject(new Error('closed')) })
  open('worn', WORN)
  void automatic.look()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, ['worn 1'])
  await end(true)
})
