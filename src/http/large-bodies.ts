/** How many large bodies of one caller are worked on at once. */
import { WorkQueue } from '../core/work-queue.ts'

/** A larger body counts, in bytes: what is made of it takes several times as much memory. */
const LARGE = 256 * 1024
const AT_ONCE = 2
/** What is made of a list of 8 MB takes up to 45 MB: of bodies larger than this, in bytes, one is worked on at a time. */
const HUGE = 2 * 1024 * 1024
/** Of one caller; the connections that a network may have are the bound of all. */
const MAY_WAIT = 100

interface Caller {
  readonly large: WorkQueue
  readonly huge: WorkQueue
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
    const caller = this.#callers.get(name) ?? newCaller()
    this.#callers.set(name, caller)
    caller.requests += 1
    try {
      const inTurn = () => caller.large.take(work)
      return await (length > HUGE ? caller.huge.take(inTurn) : inTurn())
    } finally {
      caller.requests -= 1
      if (caller.requests === 0) this.#callers.delete(name)
    }
  }
}

function newCaller(): Caller {
  return { large: new WorkQueue(AT_ONCE, MAY_WAIT), huge: new WorkQueue(1, MAY_WAIT), requests: 0 }
}
