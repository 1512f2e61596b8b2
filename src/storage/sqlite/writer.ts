/**
 * Group commit (architecture.md, "Five ideas", 3). The writes that have arrived share one transaction and one fsync, and are answered
 * after it.
 *
 * A write is decided first, and then carried out. A decision that throws has written nothing, so it is refused alone
 * and the group goes on. What fails in the midst of its writing ends the group: all of it is rolled back, nobody is
 * answered, and each write is tried alone, in order (docs/decisions/0004). So it is also where SQLite, after some
 * errors (a full disk, a failed read or write), has rolled back the whole transaction by itself; the next statement
 * would then run in autocommit, hence the question after every error whether the transaction still stands.
 */
import type { Connection } from './connection.ts'
import { FileErrors, RETRIES } from './file-errors.ts'

/** One write. */
export interface Plan<O = unknown> {
  /** About how many bytes it writes. */
  readonly bytes: number
  /** The document that it looks at; absent for what looks at none. */
  readonly id?: string
  /** It takes room, and no decision refuses it where that is short: it is not tried again on a full disk. */
  readonly grows?: boolean
  /**
   * Looks, and writes nothing; may be called again after a rollback.
   * @returns what carries out the decision, inside the same transaction, and gives what came of it
   */
  decide(): () => O
}

/** A write, and what is told to whom afterwards. */
export interface Job<O = unknown> {
  readonly plan: Plan<O>
  /** The write is durable. */
  done(outcome: O): void
  /** The write has left no trace. */
  failed(error: unknown): void
}

/** What must follow a transaction's fate, beside the file. */
export interface Memory {
  /** A group begins, whose jobs will look at these documents. */
  expect(ids: readonly string[]): void
  /** Writes what is still only in memory, before the commit. */
  flush(): void
  /** The transaction is durable. @param writes it held, refused ones not counted @param ms that the COMMIT took */
  committed(writes: number, ms: number): void
  /** Goes back to where it stood after the last commit. */
  back(): void
}

interface Entry {
  readonly job: Job
  outcome: unknown
  /** Why it was refused by itself. */
  refusal: { readonly error: unknown } | undefined
}

const GROUP_JOBS = 256
const GROUP_BYTES = 1024 * 1024
const GROUP_MS = 5

export class Writer {
  readonly #connection: Connection
  readonly #memory: Memory
  readonly #errors: FileErrors
  readonly #queue: Job[] = []
  /** Writes of a group that failed as a whole: each is tried by itself before anything newer. */
  readonly #alone: Job[] = []
  #scheduled = false
  readonly #idle: (() => void)[] = []

  constructor(connection: Connection, memory: Memory, errors = new FileErrors()) {
    this.#connection = connection
    this.#memory = memory
    this.#errors = errors
  }

  /** Takes a write; it is carried out in this turn of the event loop or a later one, in the order taken. */
  add<O>(job: Job<O>): void {
    this.#queue.push(job)
    this.#schedule()
  }

  /** Resolves when everything taken so far has been answered. */
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

  /** One group, or one write that is tried alone, a turn: other work of the thread is served between two. */
  #turn(): void {
    const suspect = this.#alone.shift()
    if (suspect === undefined) this.#commitGroup()
    else this.#commitAlone(suspect)
  }

  #commitGroup(): void {
    const group: Entry[] = []
    let ms: number
    try {
      this.#connection.begin()
      this.#applyGroup(group)
      ms = this.#commit()
    } catch (error) {
      // What went wrong is told to whom it belongs when each is tried alone.
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

  /** Applies jobs from the head of the queue, where they stay until it is known what came of the group. */
  #applyGroup(group: Entry[]): void {
    const deadline = performance.now() + GROUP_MS
    const jobs = this.#nextJobs()
    this.#memory.expect(jobs.flatMap(({ plan }) => plan.id ?? []))
    for (const job of jobs) {
      if (group.length > 0 && performance.now() > deadline) return
      const entry: Entry = { job, outcome: undefined, refusal: undefined }
      group.push(entry)
      this.#apply(entry)
    }
  }

  /** As many as a group may have; time may cut it shorter. */
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

  /** @returns how long it took to become durable, in ms */
  #commit(): number {
    this.#memory.flush()
    const started = performance.now()
    this.#connection.commit()
    return performance.now() - started
  }

  #undo(reason: unknown): void {
    this.#connection.rollback(reason)
    this.#memory.back()
  }
}

function writesIn(group: readonly Entry[]): number {
  let writes = 0
  for (const { refusal } of group) if (refusal === undefined) writes += 1
  return writes
}
