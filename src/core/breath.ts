import { setImmediate as nextTurn } from 'node:timers/promises'

/** How long one piece of work may hold a thread, in ms; less than the 10 ms of design.md 1.2. */
const HOLD_MS = 5

/**
 * For work of many small steps on a thread that others share: `await breath.take()` between two steps gives the
 * event loop a turn when this work has held the thread for {@link HOLD_MS}.
 */
export class Breath {
  #since = performance.now()

  /** Whether the thread has been held long enough. */
  get isDue(): boolean {
    return performance.now() - this.#since > HOLD_MS
  }

  /** Counts anew: the work has waited for something, and the thread was others' meanwhile. */
  restart(): void {
    this.#since = performance.now()
  }

  async take(): Promise<void> {
    if (!this.isDue) return
    await nextTurn()
    this.restart()
  }
}
