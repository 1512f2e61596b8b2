/** The statistics of the successive database threads of one slot, on the HTTP thread. */
import { addHistograms } from '../core/histogram.ts'
import type { Thread } from './thread.ts'
import type { HeapSize, ThreadReport, ThreadStats } from './thread-stats.ts'

/** How long a thread may take to answer, in ms: the caller is a metrics scraper with a time limit of its own. */
const ANSWER_MS = 1000

const NO_HEAP: HeapSize = { total: 0, used: 0, external: 0 }

/** The part of a thread that a report needs. */
interface ReportingThread extends Pick<Thread, 'isRunning' | 'callsUnderWay' | 'busySeconds'> {
  ask(query: { readonly type: 'stats' }): Promise<ThreadStats>
}

export class ThreadRecord {
  readonly #answerMs: number
  #thread: ReportingThread | undefined
  /** The last statistics of the current thread. */
  #last: ThreadStats | null = null
  #busySeconds = 0
  /** The counters of the previous threads. */
  #previous: ThreadStats | null = null
  #previousBusySeconds = 0
  /** The answer under way. A thread that has not answered is not asked again. */
  #pendingAnswer: Promise<boolean> | undefined

  /** @param answerMs for tests */
  constructor(answerMs = ANSWER_MS) {
    this.#answerMs = answerMs
  }

  /**
   * Asks a thread for its statistics. If it does not answer in time, returns its last ones. Never rejects.
   * @param number the number of the slot, from 1
   */
  async report(thread: ReportingThread, number: number): Promise<ThreadReport> {
    if (this.#thread !== thread) this.#beginThread(thread)
    const { callsUnderWay: calls } = thread
    this.#pendingAnswer ??= this.#ask(thread)
    const isAnswering = await answersWithin(this.#pendingAnswer, this.#answerMs)
    if (!thread.isRunning) this.#endThread()
    this.#busySeconds = Math.max(this.#busySeconds, thread.busySeconds)
    return {
      number,
      isAnswering,
      calls,
      busySeconds: this.#previousBusySeconds + this.#busySeconds,
      stats: this.#last === null ? this.#previous : sumOf(this.#last, this.#previous),
    }
  }

  #beginThread(thread: ReportingThread): void {
    this.#endThread()
    this.#thread = thread
    this.#pendingAnswer = undefined
    this.#previousBusySeconds += this.#busySeconds
    this.#busySeconds = 0
  }

  /** Keeps only the counters of a thread that has ended. */
  #endThread(): void {
    if (this.#last === null) return
    const ended = { openDatabases: 0, waitingCalls: 0, functionCalls: 0, heap: NO_HEAP, delay: null }
    this.#previous = { ...sumOf(this.#last, this.#previous), ...ended }
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
      if (this.#thread === thread) this.#pendingAnswer = undefined
    }
  }
}

/** @returns false when the time runs out */
function answersWithin(answer: Promise<boolean>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(false), ms)
    void answer.then((isAnswering) => {
      clearTimeout(late)
      resolve(isAnswering)
    })
  })
}

function sumOf(stats: ThreadStats, previous: ThreadStats | null): ThreadStats {
  if (previous === null) return stats
  return {
    ...stats,
    commits: {
      writes: addHistograms(stats.commits.writes, previous.commits.writes),
      updates: addHistograms(stats.commits.updates, previous.commits.updates),
      seconds: addHistograms(stats.commits.seconds, previous.commits.seconds),
    },
    functions: {
      done: stats.functions.done + previous.functions.done,
      failed: stats.functions.failed + previous.functions.failed,
    },
    unindexedQueries: stats.unindexedQueries + previous.unindexedQueries,
  }
}
