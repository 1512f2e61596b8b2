/**
 * Who scans next on a database thread: however many scans are under way, one of them works for a few milliseconds
 * (core/breath.ts) in each turn of the event loop, so that a save waits for one piece of one scan. Callers take turns,
 * and each may have some scans under way; the others wait behind them.
 */

/** Scans of one caller that are under way at once. */
const MOST_OF_CALLER = 8

export class ScanTurns {
  /** Scans that wait for a turn, by caller. Insertion order is the order of service: who was served goes to the end. */
  readonly #waiting = new Map<string, (() => void)[]>()
  readonly #callers = new Map<string, { underWay: number; readonly queue: (() => void)[] }>()
  #isScheduled = false

  /**
   * Begins a scan once the caller has fewer than {@link MOST_OF_CALLER} others under way.
   * @returns what ends it; to be called once
   */
  async begin(caller: string): Promise<() => void> {
    const own = this.#callers.get(caller) ?? { underWay: 0, queue: [] }
    this.#callers.set(caller, own)
    if (own.underWay < MOST_OF_CALLER) own.underWay += 1
    else await new Promise<void>((resolve) => own.queue.push(resolve))
    return () => {
      const next = own.queue.shift()
      if (next !== undefined) return next()
      own.underWay -= 1
      if (own.underWay === 0) this.#callers.delete(caller)
    }
  }

  /** Waits for the caller's turn: never in the turn of the event loop in which another had its own. */
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
      const scan = queue.shift()
      if (queue.length > 0) this.#waiting.set(caller, queue)
      scan?.()
      return
    }
  }
}
