/**
 * Writes that wait share a statement. While one group is under way the next one gathers, so that the groups grow with the
 * load. Once it is large it is sent as well, so that it is decided on while PostgreSQL carries out the one before. An id occurs
 * once in the groups under way: a second write of it waits for the first, on which it is decided. Writes of one call get their
 * sequence numbers in order, so no two groups under way have writes of the same call.
 */
import { CouchError } from '../../core/errors.ts'

/** A write that waits. */
export interface QueuedWrite {
  readonly id: string
  /** About how many bytes it writes. */
  readonly bytes: number
  /** Nothing of it is stored. */
  failed(error: unknown): void
}

interface Waiting<Job> {
  readonly job: Job
  /** Identifies the call that has added it. */
  readonly call: number
}

interface Options<Job> {
  /**
   * Stores a group, and answers each of its writes.
   * @throws if none of them is stored
   */
  readonly commit: (group: readonly Job[]) => Promise<void>
}

const GROUP_JOBS = 256
/** The groups under way at most, and how many writes must wait for another one besides the first. */
const MAX_GROUPS = 2
const LARGE = 64
const GROUP_BYTES = 1024 * 1024
/** The maximum number of writes that wait when a call adds its own, and about how many bytes they take. */
const MAX_WAITING = 10_000
const MAX_WAITING_BYTES = 64 * 1024 * 1024

export class GroupQueue<Job extends QueuedWrite> {
  readonly #options: Options<Job>
  /** Those before `#next` are done. */
  #queue: Waiting<Job>[] = []
  #next = 0
  #waitingBytes = 0
  readonly #running = new Set<Promise<void>>()
  /** The ids and calls of the groups under way. */
  readonly #ids = new Set<string>()
  readonly #calls = new Set<number>()
  #lastCall = 0
  #isStarting = false

  constructor(options: Options<Job>) {
    this.#options = options
  }

  /** Adds writes, which are begun in order. @throws store_unavailable if too many wait */
  add(jobs: readonly Job[]): void {
    const isFull = this.#queue.length - this.#next > MAX_WAITING || this.#waitingBytes > MAX_WAITING_BYTES
    if (isFull) throw new CouchError('store_unavailable')
    this.#lastCall += 1
    for (const job of jobs) {
      this.#queue.push({ job, call: this.#lastCall })
      this.#waitingBytes += job.bytes
    }
    this.#startSoon()
  }

  /** Resolves when all queued writes are answered. */
  async drained(): Promise<void> {
    while (this.#isStarting || this.#running.size > 0) {
      if (this.#isStarting) await new Promise(setImmediate)
      else await Promise.race(this.#running)
    }
  }

  /** Callers of this turn share a group. */
  #startSoon(): void {
    if (this.#isStarting) return
    this.#isStarting = true
    setImmediate(() => {
      this.#isStarting = false
      this.#start()
    })
  }

  #start(): void {
    for (;;) {
      const waiting = this.#queue.length - this.#next
      if (waiting === 0 || this.#running.size === MAX_GROUPS) return
      if (this.#running.size > 0 && waiting < LARGE) return
      const group = this.#nextGroup()
      if (group.length === 0) return
      const run: Promise<void> = this.#run(group).finally(() => {
        this.#running.delete(run)
        this.#start()
      })
      this.#running.add(run)
    }
  }

  async #run(group: readonly Waiting<Job>[]): Promise<void> {
    const jobs = group.map(({ job }) => job)
    for (const { job, call } of group) {
      this.#ids.add(job.id)
      this.#calls.add(call)
    }
    await this.#commit(jobs)
    for (const { job, call } of group) {
      this.#ids.delete(job.id)
      this.#calls.delete(call)
    }
  }

  /** @returns an empty one if the next write has to wait for those under way */
  #nextGroup(): Waiting<Job>[] {
    const end = this.#endOfGroup()
    const group = this.#queue.slice(this.#next, end)
    for (const { job } of group) this.#waitingBytes -= job.bytes
    this.#next = end
    if (this.#next === this.#queue.length) {
      this.#queue = []
      this.#next = 0
    }
    return group
  }

  /** It ends with a call, unless the first call is too large, so that the next group need not wait for this one. */
  #endOfGroup(): number {
    const ids = new Set<string>()
    let bytes = 0
    let begun = this.#next
    for (let at = this.#next; at < this.#queue.length; at++) {
      const { job, call } = this.#queue[at] as Waiting<Job>
      if (this.#queue[at - 1]?.call !== call) begun = at
      bytes += job.bytes
      const isFull = ids.size === GROUP_JOBS || (ids.size > 0 && bytes > GROUP_BYTES)
      if (isFull || ids.has(job.id) || this.#ids.has(job.id) || this.#calls.has(call))
        return begun > this.#next ? begun : at
      ids.add(job.id)
    }
    return this.#queue.length
  }

  async #commit(group: readonly Job[]): Promise<void> {
    try {
      await this.#options.commit(group)
    } catch (error) {
      if (group.length > 1 && isOfOne(error)) for (const job of group) await this.#commit([job])
      else for (const job of group) job.failed(error)
    }
  }
}

/** Whether the fault may be that of one write, so that each is tried alone. */
function isOfOne(error: unknown): boolean {
  if (!(error instanceof CouchError)) return true
  return error.code === 'internal_server_error' || error.code === 'insufficient_storage'
}
