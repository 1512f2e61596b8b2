/** Feeds that wait at one remote take turns. */
import t from 'tap'
import { FeedTurns } from '../../src/replication/remote/feed-turns.ts'

const never = new AbortController().signal

t.test('a feed keeps its place while no other wants it', async (t) => {
  let now = 0
  const turns = new FeedTurns(2, () => now)
  const [first, second] = [await turns.take(never), await turns.take(never)]
  t.strictSame([first.holdMs, second.holdMs], [null, null])
  const third = turns.take(never)
  first.end()
  // Others may come back at once.
  t.equal((await third).holdMs, 250)
  now = 20_000
  second.end()
  const fourth = await turns.take(never)
  t.equal(fourth.holdMs, null)
  fourth.end()
  ;(await third).end()
  t.ok(turns.isIdle)
})

t.test('a place is taken from the feed that has held it longest, unless that has news', async (t) => {
  const turns = new FeedTurns(2)
  const [first, second] = [await turns.take(never), await turns.take(never)]
  first.keep()
  const third = turns.take(never)
  await new Promise((resolve) => second.signal.addEventListener('abort', resolve))
  t.notOk(first.signal.aborted)
  second.end()
  await third
})

t.test('with more feeds than places each has its turn, in order, for a short time', async (t) => {
  const turns = new FeedTurns(1)
  const order: number[] = []
  const run = async (n: number) => {
    for (let round = 0; round < 2; round++) {
      const turn = await turns.take(never)
      order.push(n)
      if (order.length > 1 && order.length < 6) t.equal(turn.holdMs, 125)
      await new Promise(setImmediate)
      turn.end()
    }
  }
  await Promise.all([run(1), run(2), run(3)])
  t.strictSame(order, [1, 2, 3, 1, 2, 3])
})

t.test('a feed that ends while it waits leaves the queue; more places let more feeds in', async (t) => {
  const turns = new FeedTurns(1)
  const first = await turns.take(never)
  const abort = new AbortController()
  const left = turns.take(abort.signal)
  const third = turns.take(never)
  abort.abort()
  await t.rejects(left)
  await t.rejects(turns.take(abort.signal))
  turns.setPlaces(2)
  ;(await third).end()
  first.end()
  t.ok(turns.isIdle)
})
