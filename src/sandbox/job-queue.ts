/** Queues the work that waits for a sandbox thread. Each database has a queue, and the queues take turns. */
import { CouchError } from '../core/errors.ts'
import { keyOf, lengthOf, type Work } from './messages.ts'

/** The maximum number of calls and of characters that may wait. A single job may be larger. */
const MAX_CALLS = 20_000
const MAX_TEXT = 67_108_864
/**
 * How many threads one database may use at once, so that hanging functions leave threads to other databases. Lists do not
 * count: they wait for their clients, and the HTTP thread limits them.
 */
const MAX_RUNNING = 2

/** Requested work and its progress. */
export interface Job {
  readonly number: number
  readonly work: Work
  /** The key of its function. */
  readonly key: string
  /** Results of the first calls. */
  readonly results: string[]
  /** Characters of the results. */
  resultText: number
  /** When it began to wait for its next piece, on this thread's clock. */
  since: number
  isRunning: boolean
  /** Whether the sandbox thread needs the design document with the next piece. */
  needsSource: boolean
  /** Whether a thread has died while running a piece of it. */
  wasLost: boolean
  /** Where a sandbox thread waits during a list; null for other work. */
  readonly signal: SharedArrayBuffer | null
  readonly size: Size
  resolve(results: readonly string[]): void
  reject(error: unknown): void
}

/** The size of work: calls, and characters of their arguments. */
interface Size {
  readonly calls: number
  readonly text: number
}

/** A database's waiting jobs, the number of running ones, and the size of both. */
interface DatabaseQueue {
  readonly jobs: Job[]
  running: number
  size: Size
}

const NOTHING: Size = { calls: 0, text: 0 }

export class JobQueue {
  /** In the order of service: a database that was just served is last. */
  readonly #databases = new Map<number, DatabaseQueue>()
  readonly #jobs = new Set<Job>()
  #size = NOTHING
  #count = 0

  get isEmpty(): boolean {
    return this.#jobs.size === 0
  }

  /** Calls that wait or run. */
  get calls(): number {
    return this.#size.calls
  }

  /** @returns the results. @throws unavailable if too much work waits; the error with which the job fails */
  async add(work: Work): Promise<readonly string[]> {
    const size = sizeOf(work)
    if (!this.#makeRoom(work.fn.database, size)) throw new CouchError('unavailable')
    this.#count += 1
    return new Promise((resolve, reject) => {
      const job: Job = {
        number: this.#count,
        work,
        key: keyOf(work.fn),
        results: [],
        resultText: 0,
        since: performance.now(),
        isRunning: false,
        needsSource: false,
        wasLost: false,
        signal: work.exchange === undefined ? null : new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT),
        size,
        resolve,
        reject,
      }
      this.#jobs.add(job)
      this.#resize(this.#of(job), size, 1)
      this.#of(job).jobs.push(job)
    })
  }

  #of({ work }: Job): DatabaseQueue {
    const known = this.#databases.get(work.fn.database)
    if (known !== undefined) return known
    const queue: DatabaseQueue = { jobs: [], running: 0, size: NOTHING }
    this.#databases.set(work.fn.database, queue)
    return queue
  }

  #resize(queue: DatabaseQueue, size: Size, sign: 1 | -1): void {
    queue.size = sum(queue.size, size, sign)
    this.#size = sum(this.#size, size, sign)
  }

  /**
   * Makes room if too much work waits, so that one database cannot block the others. The database with the most waiting
   * work loses its newest job that has not started. @returns false if that is the database of the new job
   */
  #makeRoom(database: number, size: Size): boolean {
    while (!this.isEmpty && shareOf(sum(this.#size, size, 1)) > 1) {
      const [largest] = [...this.#databases.values()].sort((a, b) => shareOf(b.size) - shareOf(a.size))
      const own = this.#databases.get(database)?.size ?? NOTHING
      if (largest === undefined || shareOf(sum(own, size, 1)) >= shareOf(largest.size)) return false
      const newest = largest.jobs.findLast(({ results }) => results.length === 0)
      // A single job may exceed the limits.
      if (newest === undefined || largest.jobs.length + largest.running === 1) return false
      this.fail(newest, new CouchError('unavailable'))
    }
    return true
  }

  /** The next job to run, if any. It counts as running until it is put back or done. */
  next(): Job | undefined {
    for (const [database, queue] of this.#databases) {
      const at = queue.running < MAX_RUNNING ? 0 : queue.jobs.findIndex(isList)
      const [job] = at === -1 ? [] : queue.jobs.splice(at, 1)
      if (job === undefined) continue
      job.isRunning = true
      queue.running += placesOf(job)
      this.#databases.delete(database)
      this.#databases.set(database, queue)
      return job
    }
    return undefined
  }

  /** Puts a job behind the others of its database. */
  putBack(job: Job): void {
    if (!this.#jobs.has(job)) return
    job.since = performance.now()
    this.#markStopped(job).jobs.push(job)
  }

  /** Puts a job that could not start before all others. */
  putFirst(job: Job): void {
    if (!this.#jobs.has(job)) return
    const { database } = job.work.fn
    const queue = this.#markStopped(job)
    queue.jobs.unshift(job)
    const others = [...this.#databases].filter(([other]) => other !== database)
    this.#databases.clear()
    for (const [other, its] of [[database, queue] as const, ...others]) this.#databases.set(other, its)
  }

  #markStopped(job: Job): DatabaseQueue {
    const queue = this.#of(job)
    job.isRunning = false
    queue.running -= placesOf(job)
    return queue
  }

  finish(job: Job): void {
    if (this.#leave(job)) job.resolve(job.results)
  }

  fail(job: Job, error: unknown): void {
    if (this.#leave(job)) job.reject(error)
  }

  /** Fails all jobs. */
  failAll(error: unknown): void {
    for (const job of this.#jobs) this.fail(job, error)
  }

  /** Fails all jobs of a database. */
  failAllOf(database: number, error: unknown): void {
    for (const job of this.#jobs) if (job.work.fn.database === database) this.fail(job, error)
  }

  /** Fails the jobs that have waited for their next piece since before a time on this thread's clock. */
  failWaiting(before: number, error: unknown): void {
    for (const job of this.#jobs) if (!job.isRunning && job.since < before) this.fail(job, error)
  }

  /** Removes a job that has ended. */
  #leave(job: Job): boolean {
    if (!this.#jobs.delete(job)) return false
    const queue = this.#of(job)
    this.#resize(queue, job.size, -1)
    if (job.isRunning) queue.running -= placesOf(job)
    else queue.jobs.splice(queue.jobs.indexOf(job), 1)
    if (queue.size.calls === 0) this.#databases.delete(job.work.fn.database)
    return true
  }
}

/** How many of the threads of its database a job takes: see {@link MAX_RUNNING}. */
function placesOf(job: Job): number {
  return isList(job) ? 0 : 1
}

function isList({ work }: Job): boolean {
  return work.exchange !== undefined
}

function sizeOf({ calls }: Work): Size {
  return { calls: calls.length, text: calls.reduce((text, call) => text + lengthOf(call), 0) }
}

function sum(a: Size, b: Size, sign: 1 | -1): Size {
  return { calls: a.calls + sign * b.calls, text: a.text + sign * b.text }
}

/** The fraction of the limits that a size takes; more than 1 is too much. */
function shareOf({ calls, text }: Size): number {
  return Math.max(calls / MAX_CALLS, text / MAX_TEXT)
}
