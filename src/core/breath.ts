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

  async take(): Promise<void> {
    if (this.isDue) await this.rest()
  }

  /** A turn in any case: before what holds the thread as long again, and bounds itself. */
  async rest(): Promise<void> {
    await nextTurn()
    this.#since = performance.now()
  }
}
