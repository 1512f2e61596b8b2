/** What is known of a thread by whoever asks it, over threads that answer as they are told to. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { countOf } from '../../src/core/histogram.ts'
import { CommitTally } from '../../src/storage/upkeep.ts'
import { ThreadRecord } from '../../src/threads/thread-record.ts'
import type { ThreadStats } from '../../src/threads/thread-stats.ts'

/** A thread's words after so many commits. */
function statsAfter(commits: number, openDatabases = 1): ThreadStats {
  const tally = new CommitTally()
  for (let n = 0; n < commits; n += 1) tally.add(1, 1, 1)
  return {
    commits: tally.counts(),
    functions: { done: commits, failed: 0 },
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
  asked = 0
  answer: () => Promise<ThreadStats>

  constructor(answer: () => Promise<ThreadStats>) {
    this.answer = answer
  }

  ask(): Promise<ThreadStats> {
    this.asked += 1
    return this.answer()
  }
}

const dead = () => Promise.reject(new CouchError('unavailable'))
const silent = () => new Promise<never>(() => undefined)

function commitsIn(stats: ThreadStats | null): number | null {
  return stats && countOf(stats.commits.writes)
}

t.test('a thread that answers is reported with its own statistics', async (t) => {
  const report = await new ThreadRecord().report(new FakeThread(async () => statsAfter(5)), 1, 7)
  t.match(report, { number: 1, isAnswering: true, databases: 7, calls: 4, busySeconds: 1 })
  t.strictSame(report.stats, statsAfter(5))
})

t.test(
  'a thread that does not answer in time is reported with its last statistics, and not asked again',
  async (t) => {
    const record = new ThreadRecord(1)
    const thread = new FakeThread(async () => statsAfter(5))
    await record.report(thread, 1, 1)
    let answer: (stats: ThreadStats) => void = () => undefined
    thread.answer = () =>
      new Promise((resolve) => {
        answer = resolve
      })
    const late = await record.report(thread, 1, 1)
    t.equal(late.isAnswering, false)
    t.equal(commitsIn(late.stats), 5)
    t.equal((await record.report(thread, 1, 1)).isAnswering, false)
    t.equal(thread.asked, 2, 'its answer is still waited for')
    const third = record.report(thread, 1, 1)
    answer(statsAfter(6))
    t.match(await third, { isAnswering: true })
    t.equal(commitsIn((await third).stats), 6)
  },
)

t.test('a thread that never answered has no statistics', async (t) => {
  const report = await new ThreadRecord(1).report(new FakeThread(silent), 2, 0)
  t.match(report, { number: 2, isAnswering: false, stats: null, busySeconds: 1 })
})

t.test('counters never fall, even when a thread dies and is replaced', async (t) => {
  const record = new ThreadRecord(1)
  const first = new FakeThread(async () => statsAfter(5))
  await record.report(first, 1, 1)
  first.isRunning = false
  first.answer = dead
  first.busySeconds = 0
  const gone = await record.report(first, 1, 1)
  t.match(gone, {
    isAnswering: false,
    busySeconds: 1,
    stats: { openDatabases: 0, waitingCalls: 0, heap: { used: 0 } },
  })
  t.equal(commitsIn(gone.stats), 5)
  const second = new FakeThread(silent)
  second.busySeconds = 0.5
  const silentOne = await record.report(second, 1, 1)
  t.equal(commitsIn(silentOne.stats), 5, 'nothing twice')
  t.equal(silentOne.busySeconds, 1.5)
  const third = new FakeThread(async () => statsAfter(2, 3))
  const report = await record.report(third, 1, 1)
  t.equal(commitsIn(report.stats), 7)
  t.match(report.stats, { openDatabases: 3, functions: { done: 7 } })
})
