/** How many large bodies of one caller are worked on at once. */
import { WorkQueue } from '../core/work-queue.ts'

/** A larger body counts, in bytes: what is made of it takes several times as much memory. */
const LARGE = 256 * 1024
const AT_ONCE = 2
/** Of one caller; the connections that a network may have are the bound of all. */
const MAY_WAIT = 100

interface Caller {
  readonly queue: WorkQueue
  requests: number
}

/**
 * Large bodies that have arrived take turns by caller, so that one who sends many at once takes the memory of two, and
 * waits behind nobody else.
 */
export class LargeBodies {
  readonly #callers = new Map<string, Caller>()

  /**
   * @param name the account, or the address of a caller without one
   * @param length of the body, in bytes
   * @returns what the work returns; the work of a small body begins at once
   * @throws unavailable when too many large bodies of the caller wait already; and as the work
   */
  async take<T>(name: string, length: number, work: () => Promise<T>): Promise<T> {
    if (length <= LARGE) return work()
    const caller = this.#callers.get(name) ?? { queue: new WorkQueue(AT_ONCE, MAY_WAIT), requests: 0 }
    this.#callers.set(name, caller)
    caller.requests += 1
    try {
      return await caller.queue.take(work)
    } finally {
      caller.requests -= 1
      if (caller.requests === 0) this.#callers.delete(name)
    }
  }
}
