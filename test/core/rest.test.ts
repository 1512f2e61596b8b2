import { setTimeout as sleep } from 'node:timers/promises'
import { getHeapStatistics } from 'node:v8'
import t from 'tap'
import { collectAll, IdleCollector } from '../../src/core/heartbeat.ts'

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

t.test('a collection gives back what the heap has kept', async (t) => {
  for (let n = 0; n < 300_000; n += 1) JSON.parse(`{"n":${n}}`)
  const before = getHeapStatistics().total_heap_size
  collectAll()
  t.ok(getHeapStatistics().total_heap_size <= before)
})
