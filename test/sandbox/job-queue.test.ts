/** The order of the jobs that wait for a sandbox thread. */
import t from 'tap'
import { type Job, JobQueue } from '../../src/sandbox/job-queue.ts'
import type { Call, Work } from '../../src/sandbox/messages.ts'

const work = (database: number, rev = '1-a', calls: readonly Call[] = ['{}']): Work => ({
  kind: 'filter',
  fn: { database, ddoc: '_design/x', rev, path: ['filters', 'f'], source: '{}' },
  shared: '{}',
  calls,
})

function served(queue: JobQueue): string[] {
  const order: string[] = []
  for (let job = queue.next(); job !== undefined; job = queue.next()) {
    order.push(`${job.work.fn.database}:${job.work.fn.rev}`)
    queue.finish(job)
  }
  return order
}

t.test('databases take turns, and the jobs of one run in order', async (t) => {
  const queue = new JobQueue()
  const done = [work(1, 'a'), work(1, 'b'), work(1, 'c'), work(2, 'd'), work(3, 'e'), work(2, 'f')].map(
    (one) => queue.add(one),
  )
  t.same(served(queue), ['1:a', '2:d', '3:e', '1:b', '2:f', '1:c'])
  await Promise.all(done)
  t.ok(queue.isEmpty)
})

t.test('one database gets at most two threads', async (t) => {
  const queue = new JobQueue()
  for (const rev of ['a', 'b', 'c']) queue.add(work(1, rev)).catch(() => undefined)
  const first = queue.next() as Job
  t.equal((queue.next() as Job).key.includes('"b"'), true)
  t.equal(queue.next(), undefined)
  const other = queue.add(work(2))
  const of2 = queue.next() as Job
  t.equal(of2.work.fn.database, 2)
  queue.finish(of2)
  await other
  queue.finish(first)
  t.equal(queue.next()?.work.fn.rev, 'c')
})

t.test('lists do not count among the two threads of a database', async (t) => {
  const queue = new JobQueue()
  const list = (rev: string): Work => ({ ...work(1, rev), kind: 'list', exchange: async () => 'null' })
  const all = [list('a'), work(1, 'b'), work(1, 'c'), work(1, 'd'), list('e')].map((one) => queue.add(one))
  const taken = Array.from({ length: 4 }, () => queue.next() as Job)
  t.same(
    taken.map((job) => job.work.fn.rev),
    ['a', 'b', 'c', 'e'],
  )
  t.equal(queue.next(), undefined)
  for (const job of taken) queue.finish(job)
  t.equal(queue.calls, 1)
  const last = queue.next() as Job
  t.equal(last.work.fn.rev, 'd')
  queue.finish(last)
  await Promise.all(all)
  t.ok(queue.isEmpty)
})

t.test(
  'a job that yields goes behind the others of its database, and one that could not start stays first',
  async (t) => {
    const queue = new JobQueue()
    const all = [work(1, 'a'), work(1, 'b'), work(2, 'c')].map((one) => queue.add(one))
    const a = queue.next() as Job
    queue.putFirst(a)
    t.equal(queue.next(), a)
    queue.putBack(a)
    t.same(served(queue), ['2:c', '1:b', '1:a'])
    await Promise.all(all)
  },
)

t.test('the size of the queue is limited, except for a single large job', async (t) => {
  const queue = new JobQueue()
  const calls = Array.from({ length: 30_000 }, () => '{}')
  const large = queue.add(work(1, 'a', calls))
  await t.rejects(queue.add(work(2)), { code: 'unavailable' })
  queue.finish(queue.next() as Job)
  await large
  const next = queue.add(work(2))
  t.same(served(queue), ['2:1-a'])
  await next
})

t.test('failing all jobs includes waiting and running ones', async (t) => {
  const queue = new JobQueue()
  const [a, b] = [queue.add(work(1, 'a')), queue.add(work(1, 'b'))]
  const refused = Promise.all([t.rejects(a, { message: 'over' }), t.rejects(b, { message: 'over' })])
  const job = queue.next() as Job
  queue.failAll(new Error('over'))
  queue.finish(job)
  queue.putBack(job)
  queue.putFirst(job)
  t.equal(queue.next(), undefined)
  t.ok(queue.isEmpty)
  await refused
})

/** Adds a job and records how it ends. */
function ask(queue: JobQueue, database: number, calls: number, ends: string[] = []): string[] {
  const texts = Array.from({ length: calls }, () => '{}')
  queue.add(work(database, `${calls}`, texts)).then(
    () => ends.push('done'),
    (error: { code?: string; message: string }) => ends.push(error.code ?? error.message),
  )
  return ends
}

/** Waits until rejections have arrived. */
const settled = () => new Promise(setImmediate)

t.test('when too much waits, the database with the most work loses its newest job', async (t) => {
  const queue = new JobQueue()
  const many = Array.from({ length: 10 }, () => ask(queue, 1, 1900))
  const running = queue.next() as Job
  const small = ask(queue, 2, 500)
  await settled()
  t.same(small, [], 'there is space')
  const second = ask(queue, 3, 2000)
  await settled()
  t.same(second, [])
  t.same(many[9], ['unavailable'], 'the newest job')
  t.same(many.slice(0, 9).flat(), [])
  t.same(ask(queue, 1, 1900, many[9]), ['unavailable'])
  await settled()
  t.same(many[9], ['unavailable', 'unavailable'], 'the new job belongs to the database with the most work')
  for (let database = 4; database < 12; database += 1) ask(queue, database, 2000)
  await settled()
  t.equal(many.flat().length, 10, 'all jobs that had not started, and the new one')
  t.same(many[0], [])
  queue.finish(running)
  await settled()
  t.same(many[0], ['done'])
  queue.failAll(new Error('over'))
})

t.test('a job that has started is not dropped', async (t) => {
  const queue = new JobQueue()
  const [first, second] = [ask(queue, 1, 9000), ask(queue, 1, 9000)]
  for (const job of [queue.next() as Job, queue.next() as Job]) {
    job.results.push('true')
    queue.putBack(job)
  }
  const refused = ask(queue, 2, 3000)
  await settled()
  t.same([first, second, refused], [[], [], ['unavailable']])
  queue.failAll(new Error('over'))
})

t.test('the jobs of a database fail, waiting and running ones', async (t) => {
  const queue = new JobQueue()
  const ends = [ask(queue, 1, 1), ask(queue, 2, 1), ask(queue, 1, 1), ask(queue, 1, 1)]
  const running = queue.next() as Job
  queue.failAllOf(1, new Error('gone'))
  await settled()
  t.same(ends, [['gone'], [], ['gone'], ['gone']])
  queue.putBack(running)
  t.same(served(queue), ['2:1'])
  t.ok(queue.isEmpty)
  ask(queue, 1, 1)
  t.same(served(queue), ['1:1'], 'it may have two threads again')
})

t.test('jobs that have waited too long fail, running ones do not', async (t) => {
  const queue = new JobQueue()
  const ends = [ask(queue, 1, 1), ask(queue, 1, 2), ask(queue, 1, 3)]
  const [first, second] = [queue.next() as Job, queue.next() as Job]
  queue.failWaiting(performance.now() - 60_000, new Error('late'))
  await settled()
  t.same(ends.flat(), [])
  const now = performance.now() + 1
  queue.failWaiting(now, new Error('late'))
  await settled()
  t.same(ends, [[], [], ['late']])
  while (performance.now() < now) await settled()
  queue.putBack(first)
  queue.failWaiting(now, new Error('late'))
  queue.finish(second)
  await settled()
  t.same(ends, [[], ['done'], ['late']], 'the wait counts from when the job was put back')
  queue.failAll(new Error('over'))
})
