/** The statistics of the database threads that have followed each other in one slot, on the HTTP thread. */
import { addHistograms } from '../core/histogram.ts'
import type { Thread } from './thread.ts'
import type { HeapSize, ThreadReport, ThreadStats } from './thread-stats.ts'

/** How long a thread may take to answer, in ms: the caller is a metrics scraper with a time limit of its own. */
const ANSWER_MS = 1000

const NO_HEAP: HeapSize = { total: 0, used: 0, external: 0 }

/** What is used of a thread. */
interface ReportingThread extends Pick<Thread, 'isRunning' | 'callsUnderWay' | 'busySeconds'> {
  ask(query: { readonly type: 'stats' }): Promise<ThreadStats>
}

export class ThreadRecord {
  readonly #answerMs: number
  #thread: ReportingThread | undefined
  /** The last statistics of the current thread. */
  #last: ThreadStats | null = null
  #busySeconds = 0
  /** The counters of the threads before it. */
  #before: ThreadStats | null = null
  #busyBefore = 0
  /** The answer that is still awaited; a thread that does not answer is not asked again. */
  #asked: Promise<boolean> | undefined

  /** @param answerMs for tests */
  constructor(answerMs = ANSWER_MS) {
    this.#answerMs = answerMs
  }

  /**
   * Asks a thread for its statistics. If it does not answer in time, its last ones count. Never rejects.
   * @param number the number of the slot, from 1
   * @param databases how many databases the thread owns
   */
  async report(thread: ReportingThread, number: number, databases: number): Promise<ThreadReport> {
    if (this.#thread !== thread) this.#succeed(thread)
    const { callsUnderWay: calls } = thread
    this.#asked ??= this.#ask(thread)
    const isAnswering = await inTime(this.#asked, this.#answerMs)
    if (!thread.isRunning) this.#end()
    this.#busySeconds = Math.max(this.#busySeconds, thread.busySeconds)
    return {
      number,
      isAnswering,
      databases,
      calls,
      busySeconds: this.#busyBefore + this.#busySeconds,
      stats: this.#last === null ? this.#before : added(this.#last, this.#before),
    }
  }

  #succeed(thread: ReportingThread): void {
    this.#end()
    this.#thread = thread
    this.#asked = undefined
    this.#busyBefore += this.#busySeconds
    this.#busySeconds = 0
  }

  /** Keeps only the counters of a thread that has ended. */
  #end(): void {
    if (this.#last === null) return
    const over = { openDatabases: 0, waitingCalls: 0, functionCalls: 0, heap: NO_HEAP, delay: null }
    this.#before = { ...added(this.#last, this.#before), ...over }
    this.#last = null
  }

  async #ask(thread: ReportingThread): Promise<boolean> {
    try {
      const stats = await thread.ask({ type: 'stats' })
      if (this.#thread === thread) this.#last = stats
      return true
    } catch {
      return false
    } finally {
      if (this.#thread === thread) this.#asked = undefined
    }
  }
}

/** @returns false when the time runs out */
function inTime(answer: Promise<boolean>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(false), ms)
    void answer.then((isAnswering) => {
      clearTimeout(late)
      resolve(isAnswering)
    })
  })
}

function added(stats: ThreadStats, before: ThreadStats | null): ThreadStats {
  if (before === null) return stats
  return {
    ...stats,
    commits: {
      writes: addHistograms(stats.commits.writes, before.commits.writes),
      updates: addHistograms(stats.commits.updates, before.commits.updates),
      seconds: addHistograms(stats.commits.seconds, before.commits.seconds),
    },
    functions: {
      done: stats.functions.done + before.functions.done,
      failed: stats.functions.failed + before.functions.failed,
    },
  }
}
