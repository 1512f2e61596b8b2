/**
 * Group commit (architecture.md, "Five ideas", 3). The writes that have arrived share one transaction and one fsync,
 * and are answered after it.
 *
 * Each write is decided first and then carried out. A decision that throws has written nothing, so it is refused alone
 * and the group continues. An error while writing ends the group: all of it is rolled back, nothing is answered, and
 * each write is tried alone, in order (docs/decisions/0004). The same happens when SQLite has rolled back the whole
 * transaction by itself, as after a full disk or a failed read or write. The next statement would then run in
 * autocommit, so after every error it is checked whether the transaction is still open.
 */
import type { Connection } from './connection.ts'
import { FileErrors, type Job, RETRIES, type WriteQueue } from './database-access.ts'

/** In-memory state that follows the commits and rollbacks of the file. */
export interface InMemoryState {
  /** Called before a group whose jobs read these documents. */
  prefetch(ids: readonly string[]): void
  /** Writes the state that is only in memory, before the commit. */
  flush(): void
  /**
   * Called when the transaction is durable.
   * @param writes their number without refused ones
   * @param ms duration of the COMMIT
   */
  committed(writes: number, ms: number): void
  /** Restores the state after the last commit. */
  rollBack(): void
}

interface Entry {
  readonly job: Job
  outcome: unknown
  /** The error of its decision. */
  refusal: { readonly error: unknown } | undefined
}

const GROUP_JOBS = 256
const GROUP_BYTES = 1024 * 1024
const GROUP_MS = 5

export class Writer implements WriteQueue {
  readonly #connection: Connection
  readonly #memory: InMemoryState
  readonly #errors: FileErrors
  readonly #queue: Job[] = []
  /** Writes of a group that failed as a whole: each is tried alone, before newer writes. */
  readonly #alone: Job[] = []
  #scheduled = false
  readonly #idle: (() => void)[] = []

  constructor(connection: Connection, memory: InMemoryState, errors = new FileErrors()) {
    this.#connection = connection
    this.#memory = memory
    this.#errors = errors
  }

  /** Queues a write, which is carried out in a later turn of the event loop, in order. */
  add<O>(job: Job<O>): void {
    this.#queue.push(job)
    this.#schedule()
  }

  /** Resolves when all queued writes are answered. */
  async drained(): Promise<void> {
    if (this.#isBusy) await new Promise<void>((resolve) => this.#idle.push(resolve))
  }

  get #isBusy(): boolean {
    return this.#queue.length > 0 || this.#alone.length > 0
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#turn()
      if (this.#isBusy) this.#schedule()
      else for (const resolve of this.#idle.splice(0)) resolve()
    })
  }

  /** Runs one group, or one write alone, per turn, so that other work of the thread runs in between. */
  #turn(): void {
    const job = this.#alone.shift()
    if (job === undefined) this.#commitGroup()
    else this.#commitAlone(job)
  }

  #commitGroup(): void {
    const group: Entry[] = []
    const jobs = this.#nextJobs()
    let ms: number
    try {
      this.#connection.prepareGrowth(jobs.reduce((bytes, { plan }) => bytes + plan.bytes, 0))
      this.#connection.begin()
      this.#applyGroup(jobs, group)
      ms = this.#commit()
    } catch (error) {
      // The error is reported to the right write when each is tried alone.
      this.#undo(error)
      this.#alone.push(...this.#queue.splice(0, Math.max(group.length, 1)))
      return
    }
    this.#queue.splice(0, group.length)
    this.#memory.committed(writesIn(group), ms)
    for (const { job, outcome, refusal } of group) {
      if (refusal === undefined) job.done(outcome)
      else job.failed(refusal.error)
    }
  }

  /** Applies jobs from the head of the queue, where they stay until the group's outcome is known. */
  #applyGroup(jobs: readonly Job[], group: Entry[]): void {
    const deadline = performance.now() + GROUP_MS
    this.#memory.prefetch(jobs.flatMap(({ plan }) => plan.id ?? []))
    for (const job of jobs) {
      if (group.length > 0 && performance.now() > deadline) return
      const entry: Entry = { job, outcome: undefined, refusal: undefined }
      group.push(entry)
      this.#apply(entry)
    }
  }

  /** As many jobs as a group may have; a slow group takes fewer. */
  #nextJobs(): Job[] {
    let bytes = 0
    const end = this.#queue.findIndex(({ plan }, at) => {
      bytes += plan.bytes
      return at === GROUP_JOBS || (at > 0 && bytes > GROUP_BYTES)
    })
    return this.#queue.slice(0, end === -1 ? undefined : end)
  }

  #apply(entry: Entry): void {
    let carryOut: () => unknown
    try {
      carryOut = entry.job.plan.decide()
    } catch (error) {
      if (!this.#connection.inTransaction) throw error
      entry.refusal = { error: this.#errors.report(error) }
      return
    }
    entry.outcome = carryOut()
  }

  #commitAlone(job: Job, again = job.plan.grows ? 0 : RETRIES): void {
    let outcome: unknown
    let ms: number
    try {
      this.#connection.begin()
      outcome = job.plan.decide()()
      ms = this.#commit()
    } catch (error) {
      this.#undo(error)
      if (again > 0 && this.#errors.isWorthRetrying(error)) this.#commitAlone(job, again - 1)
      else job.failed(this.#errors.report(error))
      return
    }
    this.#memory.committed(1, ms)
    job.done(outcome)
  }

  /** @returns the duration of the COMMIT, in ms */
  #commit(): number {
    this.#memory.flush()
    const started = performance.now()
    this.#connection.commit()
    return performance.now() - started
  }

  #undo(reason: unknown): void {
    this.#connection.rollback(reason)
    this.#memory.rollBack()
  }
}

function writesIn(group: readonly Entry[]): number {
  let writes = 0
  for (const { refusal } of group) if (refusal === undefined) writes += 1
  return writes
}
