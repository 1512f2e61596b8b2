import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { LoopWatch } from '../../src/threads/thread-stats.ts'

/** Asks until there is something to tell. */
async function measured(watch: LoopWatch) {
  for (;;) {
    const delay = watch.read()
    if (delay !== null) return delay
    await pause(50)
  }
}

t.test('the first reading starts the measurement, the next ones report the time since', async (t) => {
  const watch = new LoopWatch()
  t.teardown(() => watch.close())
  t.equal(watch.read(), null)
  const delay = await measured(watch)
  for (const seconds of Object.values(delay)) t.ok(seconds >= 0 && Number.isFinite(seconds))
  t.ok(delay.max >= delay.p50)
})

t.test('a closed watch reports nothing', async (t) => {
  const watch = new LoopWatch()
  watch.read()
  watch.close()
  watch.close()
  t.equal(watch.read(), null)
})
