/** The jobs of this server and their turns: as many run as allowed, and the others wait; protocol.md 14.4. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Yielder } from '../../core/event-loop.ts'
import type { ReplicationJob } from './job.ts'
import { schedule } from './job-state.ts'

/** Section `[replicator]`. */
export interface SchedulerLimits {
  /** Jobs that run at once. */
  readonly maxJobs: number
  /** Jobs that make room for others after each interval. */
  readonly maxChurn: number
  /** In ms. */
  readonly interval: number
}

/** Jobs that start in one turn of the event loop. */
const STARTS = 10

export class Scheduler {
  readonly #limits: () => SchedulerLimits
  readonly #jobs = new Map<string, ReplicationJob>()
  /** How many jobs each user has. */
  readonly #counts = new Map<string | null, number>()
  #rotation: NodeJS.Timeout | undefined
  #next: NodeJS.Immediate | undefined
  #isClosed = false

  constructor(limits: () => SchedulerLimits) {
    this.#limits = limits
  }

  get size(): number {
    return this.#jobs.size
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** @returns the number of jobs of a user */
  countOf(user: string | null): number {
    return this.#counts.get(user) ?? 0
  }

  find(id: string): ReplicationJob | undefined {
    return this.#jobs.get(id)
  }

  /** The jobs, in the order of their ids. */
  jobs(): readonly ReplicationJob[] {
    return [...this.#jobs.values()].sort((a, b) => (a.id < b.id ? -1 : 1))
  }

  /** Adds a job, which starts when there is a free place. Its id must be new. */
  add(job: ReplicationJob): void {
    this.#jobs.set(job.id, job)
    this.#count(job, 1)
    this.#wake()
  }

  /** The state of a job has changed. */
  changed(job: ReplicationJob): void {
    if (job.isOver && this.#jobs.get(job.id) === job) {
      this.#jobs.delete(job.id)
      this.#count(job, -1)
    }
    this.#wake()
  }

  /** Stops all jobs after a last checkpoint. @param graceMs after which it does not wait any more */
  async close(graceMs: number): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#rotation)
    clearImmediate(this.#next)
    const stopped = this.#stopAll()
    // A remote that is down must not delay the end of the server.
    await Promise.race([stopped, sleep(graceMs, undefined, { ref: false })])
  }

  async #stopAll(): Promise<void> {
    const yielder = new Yielder()
    const stops: Promise<void>[] = []
    for (const job of this.#jobs.values()) {
      stops.push(job.stop('cancel'))
      await yielder.yieldIfDue()
    }
    await Promise.all(stops)
  }

  #count({ user }: ReplicationJob, change: number): void {
    const count = this.countOf(user.name) + change
    if (count === 0) this.#counts.delete(user.name)
    else this.#counts.set(user.name, count)
  }

  /** Many changes in one turn, such as those of a start, are one decision. */
  #wake(): void {
    if (this.#isClosed) return
    this.#next ??= setImmediate(() => {
      this.#next = undefined
      this.#schedule(false)
    })
  }

  #schedule(mayRotate: boolean): void {
    const limits = this.#limits()
    const jobs = [...this.#jobs.values()]
    const { start, stop } = schedule(jobs, limits, mayRotate)
    // A job that must stop makes room when it has written its checkpoint.
    for (const job of stop) void job.stop('stop')
    const free = start.slice(0, start.length - stop.length)
    for (const job of free.slice(0, STARTS)) job.start()
    if (free.length > STARTS) this.#wake()
    if (this.#rotation !== undefined || jobs.every(({ state }) => state !== 'pending')) return
    this.#rotation = setTimeout(() => {
      this.#rotation = undefined
      this.#schedule(true)
    }, limits.interval).unref()
  }
}
