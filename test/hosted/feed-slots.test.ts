import t from 'tap'
import type { FeedSlot } from '../../src/auth/policy.ts'
import { FeedSlots } from '../../src/hosted/feed-slots.ts'
import { FakeClock, settled } from '../changes/helpers.ts'

/** Feeds of one account by their names: which were opened, refused, and asked to end. */
function feeds(limit: number) {
  const clock = new FakeClock()
  const slots = new FeedSlots(clock)
  const open = new Map<string, FeedSlot>()
  const refused: string[] = []
  const ended: string[] = []
  const begin = async (name: string, { signal = new AbortController().signal, isStuck = false } = {}) => {
    const end = () => {
      ended.push(name)
      if (!isStuck) leave(name)
    }
    slots.take('anna', limit, end, signal).then((slot) => {
      if (slot === null) refused.push(name)
      else open.set(name, slot)
    }, t.fail)
    await settled()
  }
  const leave = (name: string) => {
    open.get(name)?.release()
    open.delete(name)
  }
  return { clock, slots, open, refused, ended, begin, leave }
}

t.test('beyond its number a feed waits, until one ends', async (t) => {
  const { clock, slots, open, begin, leave } = feeds(2)
  for (const name of ['a', 'b', 'c']) await begin(name)
  t.same([...open.keys()], ['a', 'b'])
  t.equal(slots.count('anna'), 2)
  leave('a')
  await settled()
  t.same([...open.keys()], ['b', 'c'])
  leave('b')
  leave('c')
  t.equal(slots.count('anna'), 0)
  t.equal(clock.timers, 0)
})

t.test('the oldest is ended for one that waits, when it is old enough', async (t) => {
  const { clock, open, ended, begin } = feeds(2)
  await begin('a')
  await clock.pass(5_000)
  await begin('b')
  await begin('c')
  await clock.pass(14_999)
  t.same(ended, [])
  await clock.pass(1)
  t.same(ended, ['a'])
  t.same([...open.keys()], ['b', 'c'])
  await clock.pass(60_000)
  t.same(ended, ['a'], 'not more than are waited for')
  await begin('d')
  t.same(ended, ['a', 'b'], 'at once, where one is old')
})

t.test('feeds that come back without pause do not go round without pause', async (t) => {
  const { clock, ended, begin } = feeds(2)
  for (const name of ['a', 'b', 'c', 'd']) await begin(name)
  for (let round = 0; round < 10; round++) {
    const before = ended.length
    await clock.pass(10_000)
    for (const name of ended.slice(before)) await begin(name)
  }
  t.equal(ended.length, 10, 'two feeds in 20 s')
})

t.test('too many that wait are refused; so is one that gets no slot in time', async (t) => {
  const { clock, refused, ended, begin } = feeds(1)
  await begin('stuck', { isStuck: true })
  await begin('b')
  await begin('c')
  t.same(refused, ['c'])
  await clock.pass(20_000)
  t.same(ended, ['stuck'])
  await clock.pass(20_000)
  t.same(refused, ['c', 'b'])
  t.equal(clock.timers, 0)
})

t.test('a client that has gone waits no more', async (t) => {
  const { clock, slots, refused, begin } = feeds(1)
  const gone = new AbortController()
  await begin('a')
  await begin('b', { signal: gone.signal })
  gone.abort()
  await settled()
  t.same(refused, ['b'])
  await begin('c')
  slots.close()
  await settled()
  t.same(refused, ['b', 'c'], 'nor does any when the server stops')
  t.equal(clock.timers, 0)
})

t.test('accounts do not count for each other', async (t) => {
  const { slots, begin } = feeds(1)
  await begin('a')
  const slot = await slots.take('bert', 1, () => {}, new AbortController().signal)
  t.ok(slot)
  t.equal(slots.count('bert'), 1)
})
