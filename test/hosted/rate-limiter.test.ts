import t from 'tap'
import type { FeedSlot, LimitedRequest } from '../../src/auth/policy.ts'
import { addressKey } from '../../src/core/network.ts'
import { FeedSlots } from '../../src/hosted/feed-slots.ts'
import { RateLimiter, RateLimiters } from '../../src/hosted/rate-limiter.ts'
import { FakeClock, settled } from '../changes/helpers.ts'

/** Requests in the order in which they went on, and those that were refused. */
function record() {
  const started: string[] = []
  const refused: [string, number | null][] = []
  const request = (name: string, hasPriority = false): LimitedRequest => ({
    hasPriority,
    start: () => started.push(name),
    refuse: (seconds) => refused.push([name, seconds]),
  })
  return { started, refused, request }
}

const capacity = () => ({ waiting: 0, max: 1000 })

t.test('a burst goes at once, then so many a second', async (t) => {
  const clock = new FakeClock()
  const limiter = new RateLimiter(clock, capacity(), 10)
  const { started, refused, request } = record()
  const enter = (name: string) => {
    limiter.enter(request(name), 10)
    // It ends as soon as it has begun.
    if (started.at(-1) === name) limiter.leave()
  }
  for (let at = 0; at < 50; at++) enter(`burst ${at}`)
  t.equal(started.length, 50, 'five seconds worth')
  for (let at = 0; at < 20; at++) enter(`later ${at}`)
  t.equal(started.length, 50)
  for (let second = 1; second <= 4; second++) {
    await clock.pass(500)
    t.equal(started.length, 50 + 5 * second, `after ${second / 2} s`)
    for (let at = 0; at < 5; at++) limiter.leave()
  }
  t.strictSame(refused, [])
  t.strictSame(
    started.slice(50),
    Array.from({ length: 20 }, (_, at) => `later ${at}`),
    'in their order',
  )
  t.equal(clock.timers, 0)
  t.notOk(limiter.isIdle(), 'what was asked is remembered')
  await clock.pass(5000)
  t.ok(limiter.isIdle(), 'for as long as it counts')
})

t.test('so many at once; the next goes when one has ended', async (t) => {
  const limiter = new RateLimiter(new FakeClock(), capacity(), 1000)
  const { started, request } = record()
  for (let at = 0; at < 20; at++) limiter.enter(request(String(at)), 1000)
  t.equal(started.length, 16)
  limiter.leave()
  t.equal(started.at(-1), '16')
  limiter.enter(request('checkpoint', true), 1000)
  t.equal(started.at(-1), 'checkpoint', 'what goes first has places of its own')
})

t.test('without a limit only what is at once is bounded', async (t) => {
  const limiter = new RateLimiter(new FakeClock(), capacity(), Infinity)
  const { started, refused, request } = record()
  for (let at = 0; at < 300; at++) limiter.enter(request(String(at)), Infinity)
  t.equal(started.length, 16)
  t.equal(refused.length, 300 - 16 - 256)
  for (let at = 0; at < 256; at++) limiter.leave()
  t.equal(started.length, 16 + 256)
})

t.test('only a flood is refused, with the time to wait', async (t) => {
  const clock = new FakeClock()
  const shared = capacity()
  const limiter = new RateLimiter(clock, shared, 100)
  const { started, refused, request } = record()
  for (let at = 0; at < 1000; at++) limiter.enter(request(String(at)), 100)
  t.equal(started.length, 16)
  t.equal(shared.waiting, 256)
  t.equal(refused.length, 1000 - 16 - 256)
  t.ok(refused.every(([, seconds]) => seconds !== null && seconds >= 1 && seconds <= 20))
})

t.test('none waits for more than 20 s', async (t) => {
  const clock = new FakeClock()
  const shared = capacity()
  const limiter = new RateLimiter(clock, shared, 2)
  const { started, refused, request } = record()
  for (let at = 0; at < 10; at++) limiter.enter(request('burst'), 2)
  for (let at = 0; at < 10; at++) limiter.leave()
  for (let at = 0; at < 41; at++) limiter.enter(request(String(at)), 2)
  t.strictSame(refused, [['40', 21]], 'one that would is refused at once')
  // Others go first, so that the last of those that wait have no turn in time.
  for (let at = 0; at < 4; at++) limiter.enter(request('first', true), 2)
  for (let half = 0; half < 40; half++) {
    const before = started.length
    await clock.pass(500)
    for (let at = before; at < started.length; at++) limiter.leave()
  }
  t.strictSame(started.slice(10, 15), ['first', 'first', 'first', 'first', '0'])
  t.strictSame(
    refused.slice(1).map(([name]) => name),
    ['36', '37', '38', '39'],
  )
  t.equal(shared.waiting, 0)
  t.equal(clock.timers, 0)
})

t.test('what goes first is never refused for its rate, and bounded all the same', async (t) => {
  const limiter = new RateLimiter(new FakeClock(), capacity(), 1)
  const { started, refused, request } = record()
  for (let at = 0; at < 1100; at++) limiter.enter(request(String(at), true), 1)
  t.equal(started.length, 5)
  t.equal(refused.length, 1100 - 5 - 1024)
  t.ok(
    refused.every(([, seconds]) => seconds === null),
    'beyond a thousand without an answer',
  )
})

t.test('a client that has started leaves its place', async (t) => {
  const clock = new FakeClock()
  const shared = capacity()
  const limiter = new RateLimiter(clock, shared, 1000)
  const { started, request } = record()
  for (let at = 0; at < 16; at++) limiter.enter(request(String(at)), 1000)
  const [impatient, first] = [request('impatient'), request('first', true)]
  limiter.enter(impatient, 1000)
  for (let at = 0; at < 5; at++) limiter.enter(at === 4 ? first : request('busy', true), 1000)
  limiter.enter(request('patient'), 1000)
  limiter.cancel(impatient)
  limiter.cancel(first)
  limiter.cancel(first)
  t.equal(shared.waiting, 1)
  for (let at = 0; at < 5; at++) limiter.leave()
  t.equal(started.at(-1), 'patient')
  t.equal(shared.waiting, 0)
})

t.test('all limiters together have capacity for so many', async (t) => {
  const shared = { waiting: 0, max: 3 }
  const { refused, request } = record()
  for (let tenant = 0; tenant < 2; tenant++) {
    const limiter = new RateLimiter(new FakeClock(), shared, 1)
    for (let at = 0; at < 7; at++) limiter.enter(request(`${tenant} ${at}`), 1)
  }
  t.strictSame(
    refused.map(([name]) => name),
    ['1 6'],
  )
})

t.test('limiters without waiters are removed', async (t) => {
  const clock = new FakeClock()
  const limiters = new RateLimiters(clock)
  const kept = limiters.of('kept', 1)
  kept.enter(record().request('at work'), 1)
  for (let at = 0; at < 30_000; at++) limiters.of(`address ${at}`, 1)
  t.equal(limiters.of('kept', 1), kept, 'not one that is used')
  t.ok(limiters.size < 20_001, String(limiters.size))
  limiters.close()
})

t.test('the limiter of an anonymous request', async (t) => {
  t.equal(addressKey('192.0.2.7'), '@192.0.2.7')
  t.equal(addressKey('::ffff:192.0.2.7'), '@192.0.2.7')
  const ours = addressKey('2001:db8:1:2:3:4:5:6')
  t.equal(addressKey('2001:0DB8:1:2::1'), ours)
  t.equal(addressKey('2001:db8:1:2::'), ours)
  t.not(addressKey('2001:db8:1:3::1'), ours)
  t.equal(addressKey('::1'), '@0:0:0:0::/64')
})

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
