import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import { getHeapStatistics } from 'node:v8'
import t, { type Test } from 'tap'
import {
  BatchSize,
  collectAll,
  currentTurn,
  hasForegroundWrite,
  IdleCollector,
  noteForegroundWrite,
  Yielder,
} from '../../src/core/event-loop.ts'

/** Works without a pause until a yielder is due. */
function hold(yielder: Yielder): void {
  while (!yielder.isDue);
}

/** Stops this thread's clock for a test, since a busy machine may pause the thread at any time. */
function stopClock(t: Test): { now: number } {
  const clock = { now: performance.now() }
  t.intercept(performance, 'now', { value: () => clock.now })
  return clock
}

t.test('a yielder is due when the thread was held for 5 ms', async (t) => {
  const clock = stopClock(t)
  const yielder = new Yielder()
  t.equal(yielder.isDue, false)
  clock.now += 5
  t.equal(yielder.isDue, false)
  clock.now += 1
  t.equal(yielder.isDue, true)
})

t.test('a due yielder gives the event loop a turn and restarts its time', async (t) => {
  const clock = stopClock(t)
  const yielder = new Yielder()
  clock.now += 6
  let isServed = false
  setImmediate(() => {
    isServed = true
  })
  await yielder.yieldIfDue()
  t.equal(isServed, true)
  t.equal(yielder.isDue, false)
})

t.test('a yielder that is not due takes no turn', async (t) => {
  stopClock(t)
  let isServed = false
  const served = turn().then(() => {
    isServed = true
  })
  await new Yielder().yieldIfDue()
  t.equal(isServed, false)
  await served
})

t.test('work that yields at the same time resumes in order, in more than one turn', async (t) => {
  const order: number[] = []
  const turns: number[] = []
  const works = Array.from({ length: 6 }, async (_, n) => {
    const yielder = new Yielder()
    for (let round = 0; round < 2; round += 1) {
      await yielder.yieldNow()
      order.push(n)
      hold(yielder)
    }
  })
  let isOver = false
  const over = Promise.all(works).then(() => {
    isOver = true
  })
  for (let seen = 0; !isOver; seen = order.length) {
    await turn()
    turns.push(order.length - seen)
  }
  await over
  t.same(order, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])
  t.ok(Math.max(...turns) <= 2, turns.join())
})

t.test('after a foreground write a yielder is due after 2 ms, for 50 ms', async (t) => {
  const clock = stopClock(t)
  t.equal(hasForegroundWrite(), false)
  noteForegroundWrite()
  t.equal(hasForegroundWrite(), true)
  t.equal(hasForegroundWrite(clock.now + 40), true)
  t.equal(hasForegroundWrite(clock.now + 10_000), false)
  const yielder = new Yielder()
  clock.now += 3
  t.equal(yielder.isDue, true)
  clock.now += 50
  const later = new Yielder()
  clock.now += 3
  t.equal(later.isDue, false)
  clock.now += 3
  t.equal(later.isDue, true)
})

t.test('a restarted yielder counts from then on', async (t) => {
  const clock = stopClock(t)
  const yielder = new Yielder()
  clock.now += 6
  yielder.restart()
  t.equal(yielder.isDue, false)
})

t.test('a turn has one number, which the next one does not have', async (t) => {
  const first = currentTurn()
  await null
  t.equal(currentTurn(), first)
  await turn()
  const second = currentTurn()
  t.not(second, first)
  t.equal(currentTurn(), second)
})

t.test('a batch grows after quick calls, up to its bound, and shrinks after slow ones', async (t) => {
  const batch = new BatchSize(25, 100)
  const clock = stopClock(t)
  const after = (ms: number) => {
    batch.adapt(clock.now - ms)
    return batch.size
  }
  t.same([after(0), after(0), after(0), after(3), after(20), after(20)], [50, 100, 100, 100, 50, 25])
  for (let n = 0; n < 10; n++) after(20)
  t.equal(batch.size, 1)
})

/** Work goes on until `holds`. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(5)
}

t.test(
  'the garbage of a thread is collected once the thread is idle, and again only after the heap has grown',
  async (t) => {
    let count = 0
    const collect = () => {
      count += 1
    }
    // The test's own runner may use more than a server at rest.
    const rest = new IdleCollector(10, collect, Number.POSITIVE_INFINITY)
    await sleep(40)
    t.equal(count, 0, 'before it has worked there is nothing to give back')
    rest.noteWork()
    await until(() => count === 1)
    rest.noteWork()
    await sleep(60)
    t.equal(count, 1)
  },
)

t.test('no garbage is collected while the thread works', async (t) => {
  let count = 0
  const collect = () => {
    count += 1
  }
  const rest = new IdleCollector(50, collect, Number.POSITIVE_INFINITY)
  for (let n = 0; n < 20; n += 1) {
    rest.noteWork()
    await sleep(5)
  }
  t.equal(count, 0)
  await until(() => count === 1)
})

t.test('a collection returns the free memory of the heap', async (t) => {
  for (let n = 0; n < 300_000; n += 1) JSON.parse(`{"n":${n}}`)
  const before = getHeapStatistics().total_heap_size
  collectAll()
  t.ok(getHeapStatistics().total_heap_size <= before)
})
