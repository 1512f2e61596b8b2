/** Large bodies of one caller take turns; those of others, and small ones, do not wait for them. */
import t from 'tap'
import { LargeBodies } from '../../src/http/transport/body-limits.ts'

const LARGE = 1024 * 1024

/** Work that goes on until it is told to end. */
function work() {
  const { promise, resolve } = Promise.withResolvers<string>()
  const seen = { hasBegun: false }
  const begin = () => {
    seen.hasBegun = true
    return promise
  }
  return { seen, begin, end: resolve }
}

t.test('two at once of one caller', async (t) => {
  const bodies = new LargeBodies()
  const own = [work(), work(), work()]
  const done = own.map(({ begin }) => bodies.take('anna', LARGE, begin))
  const other = work()
  const small = work()
  const more = [bodies.take('ben', LARGE, other.begin), bodies.take('anna', 1000, small.begin)]
  t.same(
    own.map(({ seen }) => seen.hasBegun),
    [true, true, false],
  )
  t.ok(other.seen.hasBegun && small.seen.hasBegun)
  own[1]?.end('second')
  t.equal(await done[1], 'second')
  t.ok(own[2]?.seen.hasBegun)
  for (const { end } of [...own, other, small]) end('end')
  t.same(await Promise.all([...done, ...more]), ['end', 'second', 'end', 'end', 'end'])
})

t.test('one at a time of those above 2 MB, beside a smaller one', async (t) => {
  const bodies = new LargeBodies()
  const own = [work(), work(), work()]
  const sizes = [8 * LARGE, 8 * LARGE, LARGE]
  const done = own.map(({ begin }, n) => bodies.take('anna', (sizes[n] ?? 0) + 1, begin))
  const begun = () => own.map(({ seen }) => seen.hasBegun)
  t.same(begun(), [true, false, true])
  own[0]?.end('first')
  await done[0]
  t.same(begun(), [true, true, true])
  for (const { end } of own) end('end')
  t.same(await Promise.all(done), ['first', 'end', 'end'])
})

t.test('a bounded number wait, and a failure lets the next one begin', async (t) => {
  const bodies = new LargeBodies()
  const first = [work(), work()]
  const begun = first.map(({ begin }) => bodies.take('anna', LARGE, begin))
  const waiting = Array.from({ length: 100 }, (_, n) => bodies.take('anna', LARGE, async () => n))
  await t.rejects(
    bodies.take('anna', LARGE, async () => 0),
    { code: 'unavailable' },
  )
  await t.rejects(
    bodies.take('ben', LARGE, () => Promise.reject(new Error('failed'))),
    { message: 'failed' },
  )
  for (const { end } of first) end('end')
  await Promise.all(begun)
  t.same((await Promise.all(waiting)).at(-1), 99)
})
