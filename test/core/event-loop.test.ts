import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import { getHeapStatistics } from 'node:v8'
import t from 'tap'
import {
  BatchSize,
  collectAll,
  hasForegroundWrite,
  IdleCollector,
  noteForegroundWrite,
  Yielder,
} from '../../src/core/event-loop.ts'

/** Works without a pause until a yielder is due. */
function hold(yielder: Yielder): void {
  while (!yielder.isDue);
}

t.test('a yielder is due when the thread was held for some milliseconds', async (t) => {
  const since = performance.now()
  const yielder = new Yielder()
  t.equal(yielder.isDue, false)
  hold(yielder)
  t.ok(performance.now() - since >= 5)
})

t.test('a due yield gives the event loop a turn and restarts the clock', async (t) => {
  const yielder = new Yielder()
  hold(yielder)
  let isServed = false
  setImmediate(() => {
    isServed = true
  })
  await yielder.yieldIfDue()
  t.equal(isServed, true)
  t.equal(yielder.isDue, false)
})

t.test('taking one that is not due costs no turn', async (t) => {
  let isServed = false
  const served = turn().then(() => {
    isServed = true
  })
  await new Yielder().yieldIfDue()
  t.equal(isServed, false)
  await served
})

t.test(
  'works that rest at once go on one after the other, in their order, and not all in one turn',
  async (t) => {
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
  },
)

t.test('while somebody saves, a yielder is due sooner', async (t) => {
  t.equal(hasForegroundWrite(), false)
  const later = performance.now()
  noteForegroundWrite()
  t.equal(hasForegroundWrite(later + 40), true)
  t.equal(hasForegroundWrite(later + 10_000), false)
  const since = performance.now()
  hold(new Yielder())
  t.ok(performance.now() - since >= 2)
})

t.test('that does not last longer than somebody saves', async (t) => {
  noteForegroundWrite()
  while (hasForegroundWrite()) await turn()
  const since = performance.now()
  hold(new Yielder())
  t.ok(performance.now() - since >= 5)
})

t.test('a restarted yielder counts from then on', async (t) => {
  const yielder = new Yielder()
  hold(yielder)
  yielder.restart()
  t.equal(yielder.isDue, false)
})

t.test('a stride grows after quick calls, up to its bound, and shrinks after slow ones', async (t) => {
  const stride = new BatchSize(25, 100)
  const after = (ms: number) => {
    stride.adapt(performance.now() - ms)
    return stride.size
  }
  t.same([after(0), after(0), after(0), after(3), after(20), after(20)], [50, 100, 100, 100, 50, 25])
  for (let n = 0; n < 10; n++) after(20)
  t.equal(stride.size, 1)
})

/** Work goes on until `holds`. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(5)
}

t.test(
  'a thread that has worked is collected once it rests, and not again before the heap grows',
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

t.test('it is not while it works', async (t) => {
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
