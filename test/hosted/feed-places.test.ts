import t from 'tap'
import { FeedPlaces, type Place } from '../../src/hosted/feed-places.ts'
import { FakeClock, settled } from '../changes/helpers.ts'

/** Feeds of one account by their names: which were let in, refused, and asked to end. */
function feeds(limit: number) {
  const clock = new FakeClock()
  const places = new FeedPlaces(clock)
  const open = new Map<string, Place>()
  const refused: string[] = []
  const ended: string[] = []
  const begin = async (name: string, { signal = new AbortController().signal, isStuck = false } = {}) => {
    const end = () => {
      ended.push(name)
      if (!isStuck) leave(name)
    }
    places.take('anna', limit, end, signal).then((place) => {
      if (place === null) refused.push(name)
      else open.set(name, place)
    }, t.fail)
    await settled()
  }
  const leave = (name: string) => {
    open.get(name)?.leave()
    open.delete(name)
  }
  return { clock, places, open, refused, ended, begin, leave }
}

t.test('beyond its number a feed waits, until one ends', async (t) => {
  const { clock, places, open, begin, leave } = feeds(2)
  for (const name of ['a', 'b', 'c']) await begin(name)
  t.same([...open.keys()], ['a', 'b'])
  t.equal(places.count('anna'), 2)
  leave('a')
  await settled()
  t.same([...open.keys()], ['b', 'c'])
  leave('b')
  leave('c')
  t.equal(places.count('anna'), 0)
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

t.test('too many that wait are refused; so is one that gets no place in time', async (t) => {
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
  const { clock, places, refused, begin } = feeds(1)
  const gone = new AbortController()
  await begin('a')
  await begin('b', { signal: gone.signal })
  gone.abort()
  await settled()
  t.same(refused, ['b'])
  await begin('c')
  places.close()
  await settled()
  t.same(refused, ['b', 'c'], 'nor does any when the server stops')
  t.equal(clock.timers, 0)
})

t.test('accounts do not count for each other', async (t) => {
  const { places, begin } = feeds(1)
  await begin('a')
  const place = await places.take('bert', 1, () => {}, new AbortController().signal)
  t.ok(place)
  t.equal(places.count('bert'), 1)
})
