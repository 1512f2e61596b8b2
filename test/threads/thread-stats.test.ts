/** Statistics of database threads: of real threads, of event loops, and of fake threads. */
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { countOf } from '../../src/core/histogram.ts'
import { CommitTally } from '../../src/storage/commit-tally.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { ThreadRecord } from '../../src/threads/thread-record.ts'
import {
  LoopWatch,
  sandboxThreads,
  type ThreadReport,
  type ThreadStats,
} from '../../src/threads/thread-stats.ts'
import { ADMIN, body } from '../documents/helpers.ts'
import { DEADLY_ENTRY, put, serve, until } from './served.ts'

async function threadsOf(databases: Databases): Promise<readonly ThreadReport[]> {
  return (await databases.stats()).threads
}

function commits(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats === null ? 0 : countOf(stats.commits.writes)), 0)
}

t.test('threads report their counters and databases', async (t) => {
  const { databases } = await serve(t, { threads: 2 })
  await databases.create('a')
  await databases.create('d')
  await put(await databases.get('a'), 'x')
  await put(await databases.get('d'), 'y')
  const before = await threadsOf(databases)
  t.strictSame(
    before.map(({ number }) => number),
    [1, 2, 3],
  )
  t.match(before, [
    // The first thread has the catalog.
    { isAnswering: true, calls: 0, stats: { openDatabases: 0 } },
    { isAnswering: true, calls: 0, stats: { openDatabases: 1, waitingCalls: 0 } },
    { isAnswering: true, calls: 0, stats: { openDatabases: 1, waitingCalls: 0 } },
  ])
  t.ok(before.every(({ busySeconds, stats }) => busySeconds > 0 && (stats?.heap.used ?? 0) > 0))
  const docs = Array.from({ length: 300 }, (_, n) => ({ _id: `d${n}` }))
  for await (const _ of (await databases.get('a')).bulkDocs(ADMIN, body({ docs })));
  const after = await threadsOf(databases)
  const made = commits(after) - commits(before)
  t.ok(made > 0 && made < 300, 'documents shared commits')
  const updates = after[1]?.stats?.commits.updates.sum ?? 0
  t.equal(updates - (before[1]?.stats?.commits.updates.sum ?? 0), 300)
})

t.test('a busy thread is reported without waiting for its work', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const handle = await databases.get('a')
  await put(handle, 'x')
  const docs = Array.from({ length: 3000 }, (_, n) => ({ _id: `d${n}`, text: 'x'.repeat(1000) }))
  const bulk = (async () => {
    for await (const _ of handle.bulkDocs(ADMIN, body({ docs })));
  })()
  const [, report] = await threadsOf(databases)
  t.match(report, { isAnswering: true, calls: 1 })
  await bulk
})

t.test('a dead thread is reported as such, and its counters stay', async (t) => {
  const { databases, faults } = await serve(t, { threadEntry: DEADLY_ENTRY })
  await databases.create('a')
  await put(await databases.get('a'), 'x')
  const before = commits(await threadsOf(databases))
  t.ok(before > 0)
  await t.rejects(put(await databases.get('a'), 'deadly'))
  await until(() => faults.length > 0)
  await until(async () => (await (await databases.get('a')).info(ADMIN).catch(() => undefined)) !== undefined)
  t.ok(commits(await threadsOf(databases)) >= before)
})

t.test('closed threads are not called', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  await databases.close()
  t.match(await threadsOf(databases), [{ isAnswering: false }])
})

/** Reads until there is a measurement. */
async function measure(watch: LoopWatch) {
  for (;;) {
    const delay = watch.read()
    if (delay !== null) return delay
    await pause(50)
  }
}

t.test(
  'the first reading starts the measurement, and each further one reports the time since the last',
  async (t) => {
    const watch = new LoopWatch()
    t.teardown(() => watch.close())
    t.equal(watch.read(), null)
    const delay = await measure(watch)
    for (const seconds of Object.values(delay)) t.ok(seconds >= 0 && Number.isFinite(seconds))
    t.ok(delay.max >= delay.p50)
  },
)

t.test('a closed watch reports nothing', async (t) => {
  const watch = new LoopWatch()
  watch.read()
  watch.close()
  watch.close()
  t.equal(watch.read(), null)
})

/** The statistics of a thread after this many commits. */
function statsAfter(commits: number, openDatabases = 1): ThreadStats {
  const tally = new CommitTally()
  for (let n = 0; n < commits; n += 1) tally.add(1, 1, 1)
  return {
    commits: tally.counts(),
    functions: { done: commits, failed: 0 },
    unindexedQueries: commits,
    openDatabases,
    waitingCalls: 2,
    functionCalls: 3,
    heap: { total: 30, used: 20, external: 10 },
    delay: null,
  }
}

class FakeThread {
  isRunning = true
  callsUnderWay = 4
  busySeconds = 1
  calls = 0
  answer: () => Promise<ThreadStats>

  constructor(answer: () => Promise<ThreadStats>) {
    this.answer = answer
  }

  ask(): Promise<ThreadStats> {
    this.calls += 1
    return this.answer()
  }
}

const dead = () => Promise.reject(new CouchError('unavailable'))
const silent = () => new Promise<never>(() => undefined)

function commitsIn(stats: ThreadStats | null): number | null {
  return stats && countOf(stats.commits.writes)
}

t.test('a thread that answers is reported with its own statistics', async (t) => {
  const report = await new ThreadRecord().report(new FakeThread(async () => statsAfter(5)), 1)
  t.match(report, { number: 1, isAnswering: true, calls: 4, busySeconds: 1 })
  t.strictSame(report.stats, statsAfter(5))
})

t.test(
  'a thread that does not answer in time is reported with its last statistics, and not called again',
  async (t) => {
    const record = new ThreadRecord(1)
    const thread = new FakeThread(async () => statsAfter(5))
    await record.report(thread, 1)
    let answer: (stats: ThreadStats) => void = () => undefined
    thread.answer = () =>
      new Promise((resolve) => {
        answer = resolve
      })
    const late = await record.report(thread, 1)
    t.equal(late.isAnswering, false)
    t.equal(commitsIn(late.stats), 5)
    t.equal((await record.report(thread, 1)).isAnswering, false)
    t.equal(thread.calls, 2, 'its answer is still awaited')
    const third = record.report(thread, 1)
    answer(statsAfter(6))
    t.match(await third, { isAnswering: true })
    t.equal(commitsIn((await third).stats), 6)
  },
)

t.test('a thread that never answered has no statistics', async (t) => {
  const report = await new ThreadRecord(1).report(new FakeThread(silent), 2)
  t.match(report, { number: 2, isAnswering: false, stats: null, busySeconds: 1 })
})

t.test('counters never decrease, even when a thread dies and is replaced', async (t) => {
  const record = new ThreadRecord(1)
  const first = new FakeThread(async () => statsAfter(5))
  await record.report(first, 1)
  first.isRunning = false
  first.answer = dead
  first.busySeconds = 0
  const gone = await record.report(first, 1)
  t.match(gone, {
    isAnswering: false,
    busySeconds: 1,
    stats: { openDatabases: 0, waitingCalls: 0, heap: { used: 0 } },
  })
  t.equal(commitsIn(gone.stats), 5)
  const second = new FakeThread(silent)
  second.busySeconds = 0.5
  const replacement = await record.report(second, 1)
  t.equal(commitsIn(replacement.stats), 5, 'nothing counts twice')
  t.equal(replacement.busySeconds, 1.5)
  const third = new FakeThread(async () => statsAfter(2, 3))
  const report = await record.report(third, 1)
  t.equal(commitsIn(report.stats), 7)
  t.match(report.stats, { openDatabases: 3, functions: { done: 7 } })
})

t.test('the threads of functions take what is configured, or a part of the memory', async (t) => {
  const MB = 1024 * 1024
  const limits = { sandboxMemory: null, functionMemory: 64 * MB }
  t.equal(sandboxThreads(limits, 512 * MB), 3)
  t.equal(sandboxThreads(limits, 1024 * MB), 3, 'a Raspberry Pi with 1 GB')
  t.equal(sandboxThreads(limits, 2048 * MB), 4)
  t.equal(sandboxThreads(limits, 8192 * MB), 8)
  t.equal(sandboxThreads({ ...limits, sandboxMemory: 640 * MB }, 512 * MB), 5)
  t.equal(
    sandboxThreads({ ...limits, sandboxMemory: 64 * MB }),
    3,
    'with fewer, one database would stop the others',
  )
  t.equal(sandboxThreads({ ...limits, functionMemory: 2048 * MB }, 64_000 * MB), 3)
})
