import { setImmediate as nextTurn } from 'node:timers/promises'

/** How long one piece of work may hold a thread, in ms; less than the 10 ms of design.md 1.2. */
const HOLD_MS = 5
/** The same while somebody saves: every piece of long work that stands before a save is waited for. */
const SHORT_HOLD_MS = 2
/** For so long after a save, in ms, another is likely. */
const HURRY_MS = 50

/** In ms of `performance.now()`. Of this thread: each has modules of its own. */
let hurriedUntil = Number.NEGATIVE_INFINITY

/** Somebody waits for something short on this thread: for a while whatever takes long holds it for a shorter time. */
export function hurry(): void {
  hurriedUntil = performance.now() + HURRY_MS
}

/** Whether somebody is likely to wait for something short on this thread. */
export function isHurried(now: number = performance.now()): boolean {
  return now < hurriedUntil
}

/** Whether one piece of work that has begun at this time, in ms of `performance.now()`, has held the thread long enough. */
export function isHeldLong(since: number): boolean {
  const now = performance.now()
  return now - since > (isHurried(now) ? SHORT_HOLD_MS : HOLD_MS)
}

/**
 * For work of many small steps on a thread that others share: `await breath.take()` between two steps gives the
 * event loop a turn when this work has held the thread for {@link HOLD_MS}.
 */
export class Breath {
  #since = performance.now()

  /** Whether the thread has been held long enough. */
  get isDue(): boolean {
    return isHeldLong(this.#since)
  }

  /** Counts anew: the work has waited for something, and the thread was others' meanwhile. */
  restart(): void {
    this.#since = performance.now()
  }

  async take(): Promise<void> {
    if (this.isDue) await this.rest()
  }

  /** A turn in any case: before what holds the thread as long again, and bounds itself. */
  async rest(): Promise<void> {
    await nextTurn()
    this.restart()
  }
}
