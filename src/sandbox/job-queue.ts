/** What waits for a sandbox thread: a queue for each database, and the queues take turns. */
import { CouchError } from '../core/errors.ts'
import { keyOf, lengthOf, type Work } from './work.ts'

/** Calls and characters that may wait; a single piece of work may be larger. */
const MAX_CALLS = 20_000
const MAX_TEXT = 67_108_864
/** Threads that one database may have at once: one that hangs leaves others to the rest. */
const MAX_AT_WORK = 2

/** Work that was asked for, and how far it is. */
export interface Job {
  readonly number: number
  readonly work: Work
  /** Of its function. */
  readonly key: string
  /** Results of the first calls. */
  readonly results: string[]
  /** When it began to wait for its next piece, on this thread's clock. */
  since: number
  /** The thread that is to run it must be told the design document. */
  needsSource: boolean
  /** A thread has died with a piece of it. */
  wasLost: boolean
  readonly text: number
  resolve(results: readonly string[]): void
  reject(error: unknown): void
}

/** A database's jobs that wait, and how many are being run. */
interface DatabaseQueue {
  readonly jobs: Job[]
  atWork: number
}

export class JobQueue {
  /** In the order of service: a database that was served goes to the end. */
  readonly #databases = new Map<number, DatabaseQueue>()
  readonly #jobs = new Set<Job>()
  #calls = 0
  #text = 0
  #count = 0

  get isEmpty(): boolean {
    return this.#jobs.size === 0
  }

  /** @returns the results. @throws unavailable when too much waits; and what the job is failed with */
  async add(work: Work): Promise<readonly string[]> {
    const text = work.calls.reduce((sum, call) => sum + lengthOf(call), 0)
    const isFull = this.#calls + work.calls.length > MAX_CALLS || this.#text + text > MAX_TEXT
    if (isFull && !this.isEmpty) throw new CouchError('unavailable')
    this.#calls += work.calls.length
    this.#text += text
    this.#count += 1
    return new Promise((resolve, reject) => {
      const job: Job = {
        number: this.#count,
        work,
        key: keyOf(work.fn),
        results: [],
        since: performance.now(),
        needsSource: false,
        wasLost: false,
        text,
        resolve,
        reject,
      }
      this.#jobs.add(job)
      this.#of(job).jobs.push(job)
    })
  }

  #of({ work }: Job): DatabaseQueue {
    const known = this.#databases.get(work.fn.database)
    if (known !== undefined) return known
    const made: DatabaseQueue = { jobs: [], atWork: 0 }
    this.#databases.set(work.fn.database, made)
    return made
  }

  /** The job that is to be served now, if there is one; it counts as at work until it is put back or done. */
  next(): Job | undefined {
    for (const [database, queue] of this.#databases) {
      if (queue.atWork >= MAX_AT_WORK) continue
      const job = queue.jobs.shift()
      if (job === undefined) continue
      queue.atWork += 1
      this.#databases.delete(database)
      this.#databases.set(database, queue)
      return job
    }
    return undefined
  }

  /** A job goes on after the others of its database. */
  putBack(job: Job): void {
    if (!this.#jobs.has(job)) return
    const queue = this.#of(job)
    queue.atWork -= 1
    job.since = performance.now()
    queue.jobs.push(job)
  }

  /** A job could not be begun, and is the next of all. */
  putFirst(job: Job): void {
    if (!this.#jobs.has(job)) return
    const { database } = job.work.fn
    const queue = this.#of(job)
    queue.atWork -= 1
    queue.jobs.unshift(job)
    const others = [...this.#databases].filter(([other]) => other !== database)
    this.#databases.clear()
    for (const [other, its] of [[database, queue] as const, ...others]) this.#databases.set(other, its)
  }

  finish(job: Job): void {
    if (this.#leave(job)) job.resolve(job.results)
  }

  fail(job: Job, error: unknown): void {
    if (this.#leave(job)) job.reject(error)
  }

  /** Whatever waits or is at work is over. */
  failAll(error: unknown): void {
    for (const job of this.#jobs) job.reject(error)
    this.#jobs.clear()
    this.#databases.clear()
    this.#calls = 0
    this.#text = 0
  }

  /** A job that was at work is over. */
  #leave(job: Job): boolean {
    if (!this.#jobs.delete(job)) return false
    this.#calls -= job.work.calls.length
    this.#text -= job.text
    const queue = this.#of(job)
    queue.atWork -= 1
    if (queue.atWork === 0 && queue.jobs.length === 0) this.#databases.delete(job.work.fn.database)
    return true
  }
}
