/** The queue of databases that a standby has yet to copy, and how far behind it is. */
import t from 'tap'
import { Backlog } from '../../src/standby/backlog.ts'

t.test('databases take turns in the order in which they became due', async (t) => {
  const backlog = new Backlog()
  for (const name of ['a', 'b', 'a', 'c']) backlog.mark(name, 10)
  t.same([backlog.take(20), backlog.take(20)], ['a', 'b'])
  backlog.mark('a', 15)
  backlog.done('a')
  t.same([backlog.take(20), backlog.take(20), backlog.take(20)], ['c', 'a', null])
})

t.test(
  'the oldest unknown moment counts, also of databases that are being copied or have failed',
  async (t) => {
    const backlog = new Backlog()
    t.equal(backlog.oldest, null)
    backlog.mark('a', 30)
    backlog.mark('b', 20)
    backlog.mark('c', null)
    t.equal(backlog.oldest, 20)
    t.equal(backlog.take(40), 'a')
    backlog.mark('a', 35)
    t.equal(backlog.take(40), 'b')
    backlog.done('b')
    t.equal(backlog.oldest, 30)
    t.ok(backlog.fail('a', 50, 'down'))
    t.equal(backlog.oldest, 30, 'a failed copy proves nothing')
    t.same(backlog.failures(), [{ database: 'a', reason: 'down' }])
    t.equal(backlog.take(50), 'c')
    backlog.done('c')
    t.equal(backlog.take(1049), null)
    t.equal(backlog.nextDue, 1050)
    t.equal(backlog.take(1050), 'a')
    backlog.mark('a', 1040)
    backlog.done('a')
    t.equal(backlog.oldest, 1040, 'changes that came during a copy are not covered by it')
    backlog.forget('a')
    t.same([backlog.oldest, backlog.size], [null, 0])
  },
)

t.test('a database that keeps failing waits twice as long each time, one minute at most', async (t) => {
  const backlog = new Backlog()
  backlog.mark('a', 0)
  const waits = []
  for (let now = 0, n = 0; n < 9; n++) {
    backlog.take(now)
    backlog.fail('a', now, 'down')
    waits.push((backlog.nextDue ?? 0) - now)
    now = backlog.nextDue ?? 0
  }
  t.same(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000])
})

t.test('a check does not make a standby look late, but a change noticed meanwhile does', async (t) => {
  const backlog = new Backlog()
  backlog.mark('a', null)
  t.equal(backlog.oldest, null)
  backlog.mark('a', 7)
  t.equal(backlog.oldest, 7)
})
