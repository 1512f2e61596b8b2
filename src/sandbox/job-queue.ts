/** The work that waits for a sandbox thread: a queue per database, and the queues take turns. */
import { CouchError } from '../core/errors.ts'
import { keyOf, lengthOf, type Work } from './messages.ts'

/** The largest numbers of calls and characters that may wait; a single job may be larger. */
const MAX_CALLS = 20_000
const MAX_TEXT = 67_108_864
/** How many threads one database may use at once, so that its hanging functions leave threads to others. */
const MAX_AT_WORK = 2

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
  /** Since when it waits for its next piece, on this thread's clock. */
  since: number
  isAtWork: boolean
  /** Whether the sandbox thread needs the design document with the next piece. */
  needsSource: boolean
  /** Whether a thread has died while running a piece of it. */
  wasLost: boolean
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
  atWork: number
  size: Size
}

const NOTHING: Size = { calls: 0, text: 0 }

export class JobQueue {
  /** In the order of service: a database that was served goes to the end. */
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

  /** @returns the results. @throws unavailable when too much waits; the error that the job fails with */
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
        isAtWork: false,
        needsSource: false,
        wasLost: false,
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
    const made: DatabaseQueue = { jobs: [], atWork: 0, size: NOTHING }
    this.#databases.set(work.fn.database, made)
    return made
  }

  #resize(queue: DatabaseQueue, size: Size, sign: 1 | -1): void {
    queue.size = sum(queue.size, size, sign)
    this.#size = sum(this.#size, size, sign)
  }

  /**
   * Makes room when too much waits, so that one database cannot block the others: the database with the most waiting
   * work loses its newest job that has not started. @returns false when that is the database of the new job
   */
  #makeRoom(database: number, size: Size): boolean {
    while (!this.isEmpty && shareOf(sum(this.#size, size, 1)) > 1) {
      const [largest] = [...this.#databases.values()].sort((a, b) => shareOf(b.size) - shareOf(a.size))
      const own = this.#databases.get(database)?.size ?? NOTHING
      if (largest === undefined || shareOf(sum(own, size, 1)) >= shareOf(largest.size)) return false
      const newest = largest.jobs.findLast(({ results }) => results.length === 0)
      // A single job may exceed the limits.
      if (newest === undefined || largest.jobs.length + largest.atWork === 1) return false
      this.fail(newest, new CouchError('unavailable'))
    }
    return true
  }

  /** The next job to run, if there is one; it counts as running until it is put back or done. */
  next(): Job | undefined {
    for (const [database, queue] of this.#databases) {
      if (queue.atWork >= MAX_AT_WORK) continue
      const job = queue.jobs.shift()
      if (job === undefined) continue
      job.isAtWork = true
      queue.atWork += 1
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
    this.#rest(job).jobs.push(job)
  }

  /** Puts a job that could not start before all others. */
  putFirst(job: Job): void {
    if (!this.#jobs.has(job)) return
    const { database } = job.work.fn
    const queue = this.#rest(job)
    queue.jobs.unshift(job)
    const others = [...this.#databases].filter(([other]) => other !== database)
    this.#databases.clear()
    for (const [other, its] of [[database, queue] as const, ...others]) this.#databases.set(other, its)
  }

  #rest(job: Job): DatabaseQueue {
    const queue = this.#of(job)
    job.isAtWork = false
    queue.atWork -= 1
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
    for (const job of this.#jobs) if (!job.isAtWork && job.since < before) this.fail(job, error)
  }

  /** Removes a job that has ended. */
  #leave(job: Job): boolean {
    if (!this.#jobs.delete(job)) return false
    const queue = this.#of(job)
    this.#resize(queue, job.size, -1)
    if (job.isAtWork) queue.atWork -= 1
    else queue.jobs.splice(queue.jobs.indexOf(job), 1)
    if (queue.atWork === 0 && queue.jobs.length === 0) this.#databases.delete(job.work.fn.database)
    return true
  }
}

function sizeOf({ calls }: Work): Size {
  return { calls: calls.length, text: calls.reduce((text, call) => text + lengthOf(call), 0) }
}

function sum(a: Size, b: Size, sign: 1 | -1): Size {
  return { calls: a.calls + sign * b.calls, text: a.text + sign * b.text }
}

/** The share of the limits that a size takes; more than 1 is too much. */
function shareOf({ calls, text }: Size): number {
  return Math.max(calls / MAX_CALLS, text / MAX_TEXT)
}
