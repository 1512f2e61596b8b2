import t from 'tap'
import { FairTurns } from '../../src/core/concurrency.ts'

function setUp(atOnce: number, mayWait: number) {
  const turns = new FairTurns(atOnce, mayWait)
  const order: string[] = []
  const running: (() => void)[] = []
  const ask = (asker: string) =>
    turns.take(asker, async () => {
      order.push(asker)
      await new Promise<void>((resolve) => running.push(resolve))
    })
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve))
  const finish = async (all: Promise<unknown>[]) => {
    let open = true
    const end = Promise.allSettled(all).finally(() => {
      open = false
    })
    while (open) {
      running.shift()?.()
      await settle()
    }
    return end
  }
  return { order, ask, finish, settle }
}

t.test('askers take turns, however much one asks for', async (t) => {
  const { order, ask, finish } = setUp(1, 10)
  const all = ['a', 'a', 'a', 'a', 'b', 'c', 'b'].map(ask)
  await finish(all)
  t.equal(order.join(''), 'aabcaba')
})

t.test('when the queue is full, who has most in it loses the newest', async (t) => {
  const { order, ask, finish } = setUp(1, 4)
  const all = ['a', 'a', 'a', 'a', 'a', 'b', 'a', 'c'].map(ask)
  const ends = await finish(all)
  t.equal(ends.map(({ status }) => (status === 'fulfilled' ? '+' : '-')).join(''), '+++--+-+')
  t.equal(order.join(''), 'aabca')
  t.match(ends[4], { reason: { code: 'unavailable' } })
})

t.test('work that fails gives its turn on', async (t) => {
  const turns = new FairTurns(1, 1)
  const failing = turns.take('a', async () => {
    throw new Error('no')
  })
  const next = turns.take('a', async () => 'yes')
  await t.rejects(failing, { message: 'no' })
  t.equal(await next, 'yes')
  t.equal(await turns.take('b', async () => 1), 1)
})
