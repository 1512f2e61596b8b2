import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { KeyedMutex, Limiter } from '../../src/core/concurrency.ts'

/** A limiter whose tasks run until the test finishes them; `order` has the callers of tasks that have started. */
function setUp(maxRunning: number, maxWaiting: number) {
  const limiter = new Limiter(maxRunning, maxWaiting)
  const order: string[] = []
  const running: (() => void)[] = []
  const run = (caller?: string) =>
    limiter.run(async () => {
      order.push(caller ?? '-')
      await new Promise<void>((resolve) => running.push(resolve))
    }, caller)
  const finish = async (all: Promise<unknown>[]) => {
    let open = true
    const end = Promise.allSettled(all).finally(() => {
      open = false
    })
    while (open) {
      running.shift()?.()
      await nextTurn()
    }
    return (await end).map(({ status }) => (status === 'fulfilled' ? '+' : '-')).join('')
  }
  return { limiter, order, run, finish }
}

t.test('callers take turns, however many tasks one of them has', async (t) => {
  const { order, run, finish } = setUp(1, 10)
  await finish(['a', 'a', 'a', 'a', 'b', 'c', 'b'].map(run))
  t.equal(order.join(''), 'aabcaba')
})

t.test('when the queue is full, the caller with the most tasks loses its newest', async (t) => {
  const { order, run, finish, limiter } = setUp(1, 4)
  const all = ['a', 'a', 'a', 'a', 'a', 'b', 'a', 'c'].map(run)
  t.equal(limiter.waiting, 4)
  t.equal(await finish(all), '+++--+-+')
  t.equal(order.join(''), 'aabca')
  await t.rejects(all[4] as Promise<void>, { code: 'unavailable' })
  t.equal(limiter.waiting, 0)
})

t.test('without callers, so many tasks run at once, so many wait, and the rest are refused', async (t) => {
  const { order, run, finish, limiter } = setUp(2, 2)
  const all = Array.from({ length: 6 }, () => run())
  t.equal(order.length, 2)
  t.equal(limiter.waiting, 2)
  await t.rejects(all[4] as Promise<void>, { code: 'unavailable' })
  t.equal(await finish(all), '++++--')
  t.equal(order.length, 4)
})

t.test('a task that fails hands its place on', async (t) => {
  const limiter = new Limiter(1, 1)
  const failing = limiter.run(async () => {
    throw new Error('no')
  }, 'a')
  const next = limiter.run(async () => 'yes', 'a')
  await t.rejects(failing, { message: 'no' })
  t.equal(await next, 'yes')
  t.equal(await limiter.run(async () => 1, 'b'), 1)
})

t.test('tasks of one key run one at a time in order of arrival, even if some fail', async (t) => {
  const mutex = new KeyedMutex()
  const events: string[] = []
  const task =
    (name: string, fails = false) =>
    async () => {
      events.push(`+${name}`)
      await nextTurn()
      events.push(`-${name}`)
      if (fails) throw new Error(name)
      return name
    }
  const first = mutex.run('a', task('1', true))
  const second = mutex.run('a', task('2'))
  await t.rejects(first, { message: '1' })
  t.equal(await second, '2')
  t.same(events, ['+1', '-1', '+2', '-2'])
})

t.test('tasks of different keys overlap', async (t) => {
  const mutex = new KeyedMutex()
  let release: () => void = () => undefined
  const held = mutex.run('a', () => new Promise<void>((resolve) => (release = resolve)))
  t.equal(await mutex.run('b', async () => 'b'), 'b')
  let isIdle = false
  const idle = mutex.whenIdle('a').then(() => (isIdle = true))
  await nextTurn()
  t.notOk(isIdle)
  release()
  await held
  await idle
  t.ok(isIdle)
  await mutex.whenIdle('never used')
})
