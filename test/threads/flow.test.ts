import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { holdOutgoing, releaseOutgoing } from '../../src/core/outgoing.ts'
import { Flow } from '../../src/threads/flow.ts'

/** What a waiting call has come to. */
function watched<T>(promise: Promise<T>) {
  const seen: { value?: T; error?: unknown } = {}
  promise.then(
    (value) => {
      seen.value = value
    },
    (error) => {
      seen.error = error
    },
  )
  return seen
}

/** One whose reader has to pull. */
async function used(): Promise<Flow> {
  const flow = new Flow()
  await flow.next()
  await flow.next()
  return flow
}

t.test('two chunks go unasked, each further one when one is done with', async (t) => {
  const flow = new Flow()
  t.equal(await flow.next(), true)
  t.equal(await flow.next(), true)
  const third = watched(flow.next())
  await turn()
  t.same(third, {})
  flow.pull()
  await turn()
  t.same(third, { value: true })
})

t.test('where much waits for readers who have stopped, none goes ahead', async (t) => {
  const crowd = 8 * 1024 * 1024
  holdOutgoing(crowd)
  t.teardown(() => releaseOutgoing(crowd))
  const flow = new Flow()
  t.equal(await flow.next(), true)
  const second = watched(flow.next())
  await turn()
  t.same(second, {}, 'the reader has the first in hand')
  flow.pull()
  await turn()
  t.same(second, { value: true })
})

t.test('what was pulled ahead is remembered', async (t) => {
  const flow = new Flow()
  flow.pull()
  flow.pull()
  for (let n = 0; n < 4; n += 1) t.equal(await flow.next(), true)
  const fifth = watched(flow.next())
  await turn()
  t.same(fifth, {})
})

t.test('cancelling ends a wait, and every later one', async (t) => {
  const flow = await used()
  const waiting = flow.next()
  flow.cancel()
  t.equal(await waiting, false)
  t.equal(await flow.next(), false)
  t.equal(flow.isWanted(), false)
})

t.test('cancelling before the beginning is not lost', async (t) => {
  const flow = new Flow()
  flow.cancel()
  t.equal(flow.isWanted(), false)
  t.equal(await flow.next(), false)
})

t.test('failing ends a wait with the error, the first that came', async (t) => {
  const flow = await used()
  const waiting = flow.next()
  flow.fail(new Error('first'))
  flow.fail(new Error('second'))
  await t.rejects(waiting, { message: 'first' })
  t.throws(() => flow.isWanted(), { message: 'first' })
})
