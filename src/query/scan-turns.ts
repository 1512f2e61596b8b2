/** Decides which search of a database thread works next. */

/** The maximum number of concurrent searches of one caller; further ones wait. */
const SEARCHES_PER_CALLER = 8

/**
 * The turns of all searches of a thread. In each turn of the event loop a single search works, for a few milliseconds
 * (core/event-loop.ts), so a save waits for one step of one search at most. Callers take turns.
 */
class ScanTurns {
  /** Waiting searches by caller. A caller that was served moves to the end of the insertion order. */
  readonly #waiting = new Map<string, (() => void)[]>()
  readonly #callers = new Map<string, { underWay: number; readonly queue: (() => void)[] }>()
  #isScheduled = false

  /**
   * Begins a search as soon as the caller has fewer than {@link SEARCHES_PER_CALLER} others under way.
   * @returns a function that ends the search; call it once
   */
  async begin(caller: string): Promise<() => void> {
    const own = this.#callers.get(caller) ?? { underWay: 0, queue: [] }
    this.#callers.set(caller, own)
    if (own.underWay < SEARCHES_PER_CALLER) own.underWay += 1
    else await new Promise<void>((resolve) => own.queue.push(resolve))
    return () => {
      const next = own.queue.shift()
      if (next !== undefined) return next()
      own.underWay -= 1
      if (own.underWay === 0) this.#callers.delete(caller)
    }
  }

  /** Waits for the caller's turn. Two searches never work in the same turn of the event loop. */
  next(caller: string): Promise<void> {
    return new Promise((resolve) => {
      const queue = this.#waiting.get(caller) ?? []
      queue.push(resolve)
      this.#waiting.set(caller, queue)
      this.#schedule()
    })
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#serve()
      if (this.#waiting.size > 0) this.#schedule()
    })
  }

  #serve(): void {
    for (const [caller, queue] of this.#waiting) {
      this.#waiting.delete(caller)
      const search = queue.shift()
      if (queue.length > 0) this.#waiting.set(caller, queue)
      search?.()
      return
    }
  }
}

/** There is one instance per thread, since each thread loads its own modules. */
export const scanTurns = new ScanTurns()
