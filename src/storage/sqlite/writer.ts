/**
 * Group commit (design.md 1.3). The writes that have arrived share one transaction and one fsync, each in a
 * savepoint of its own, and are answered after it.
 *
 * Some errors (a full disk, a failed read or write) make SQLite roll back the whole transaction by itself; the
 * next statement would then run in autocommit. So after every error it is asked whether the transaction still
 * stands. If it does not, nobody in the group is answered, and each write is tried alone, in order.
 */
import type { Connection } from './connection.ts'
import { storageError } from './connection.ts'

/** One write: what is done inside the transaction, and what is told to whom afterwards. */
export interface Job {
  /** About how many bytes it writes. */
  readonly bytes: number
  /** Runs inside a savepoint; may be run again from the start after a rollback. */
  apply(): void
  /** The write is durable. */
  done(): void
  /** The write has left no trace. */
  failed(error: unknown): void
}

/** What must follow a transaction's fate, beside the file. */
export interface Memory {
  /** A point to go back to. */
  mark(): unknown
  back(mark: unknown): void
  /** Writes what is still only in memory, before the commit. */
  flush(): void
  committed(): void
}

interface Entry {
  readonly job: Job
  /** Why it was rolled back by itself. */
  refusal: { readonly error: unknown } | undefined
}

const GROUP_JOBS = 256
const GROUP_BYTES = 1024 * 1024
const GROUP_MS = 5

export class Writer {
  readonly #connection: Connection
  readonly #memory: Memory
  readonly #queue: Job[] = []
  /** Writes of a group that failed as a whole: each is tried by itself before anything newer. */
  readonly #alone: Job[] = []
  #scheduled = false
  readonly #idle: (() => void)[] = []

  constructor(connection: Connection, memory: Memory) {
    this.#connection = connection
    this.#memory = memory
  }

  /** Takes a write; it is carried out in this turn of the event loop or a later one, in the order taken. */
  add(job: Job): void {
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
    const before = this.#memory.mark()
    const group: Entry[] = []
    try {
      this.#connection.prepare('BEGIN IMMEDIATE').run()
      this.#applyGroup(group)
      this.#commit()
    } catch {
      // What went wrong is told to whom it belongs when each is tried alone.
      this.#undo(before)
      const jobs = group.length > 0 ? group.map(({ job }) => job) : this.#queue.splice(0, 1)
      this.#alone.push(...jobs)
      return
    }
    this.#memory.committed()
    for (const { job, refusal } of group) {
      if (refusal === undefined) job.done()
      else job.failed(refusal.error)
    }
  }

  #applyGroup(group: Entry[]): void {
    const deadline = performance.now() + GROUP_MS
    let bytes = 0
    while (this.#queue.length > 0 && group.length < GROUP_JOBS) {
      const job = this.#queue[0] as Job
      if (group.length > 0 && (bytes + job.bytes > GROUP_BYTES || performance.now() > deadline)) return
      this.#queue.shift()
      const entry: Entry = { job, refusal: undefined }
      group.push(entry)
      bytes += job.bytes
      this.#applyInSavepoint(entry)
    }
  }

  #applyInSavepoint(entry: Entry): void {
    const before = this.#memory.mark()
    this.#connection.prepare('SAVEPOINT job').run()
    try {
      entry.job.apply()
    } catch (error) {
      if (!this.#connection.inTransaction) throw error
      this.#connection.prepare('ROLLBACK TO job').run()
      this.#memory.back(before)
      entry.refusal = { error: storageError(error) }
    }
    this.#connection.prepare('RELEASE job').run()
  }

  #commitAlone(job: Job): void {
    const before = this.#memory.mark()
    try {
      this.#connection.prepare('BEGIN IMMEDIATE').run()
      job.apply()
      this.#commit()
    } catch (error) {
      this.#undo(before)
      job.failed(storageError(error))
      return
    }
    this.#memory.committed()
    job.done()
  }

  #commit(): void {
    this.#memory.flush()
    this.#connection.prepare('COMMIT').run()
  }

  #undo(before: unknown): void {
    this.#connection.rollback()
    this.#memory.back(before)
  }
}
