/** How long one piece of work may hold a thread, in ms: architecture.md, "Five ideas", 2. */
const HOLD_MS = 5
/** The same while somebody saves: every piece of long work that stands before a save is waited for. */
const SHORT_HOLD_MS = 2
/** For so long after a save, in ms, another is likely. */
const FOREGROUND_MS = 50

/** In ms of `performance.now()`. Of this thread: each has modules of its own. */
let foregroundUntil = Number.NEGATIVE_INFINITY

/** Somebody waits for something short on this thread: for a while whatever takes long holds it for a shorter time. */
export function noteForegroundWrite(): void {
  foregroundUntil = performance.now() + FOREGROUND_MS
}

/** Whether somebody is likely to wait for something short on this thread. */
export function hasForegroundWrite(now: number = performance.now()): boolean {
  return now < foregroundUntil
}

/** Whether one piece of work that has begun at this time, in ms of `performance.now()`, has held the thread long enough. */
export function isHeldLong(since: number): boolean {
  const now = performance.now()
  return now - since > (hasForegroundWrite(now) ? SHORT_HOLD_MS : HOLD_MS)
}

/**
 * How many things are done in one call that cannot be left halfway, such as reading some documents: twice as many as
 * before after a call that was quick, half as many after one that was slow.
 */
export class BatchSize {
  readonly #most: number
  size: number

  /** @param first for the first call, of which nothing is known */
  constructor(first: number, most: number) {
    this.size = first
    this.#most = most
  }

  /** @param since when the call that has just ended began, in ms of `performance.now()` */
  adapt(since: number): void {
    const took = performance.now() - since
    if (took > HOLD_MS) this.size = Math.max(1, this.size >> 1)
    else if (took < SHORT_HOLD_MS) this.size = Math.min(this.#most, this.size * 2)
  }
}

/** Work that waits for a turn, in the order in which it came. */
const resting: (() => void)[] = []
/** When this turn of the event loop began to go on with such work, in ms of `performance.now()`; null: it has not. */
let wentOnSince: number | null = null

/** Resolves in a later turn of the event loop: as much work goes on in one as may hold the thread. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    resting.push(resolve)
    setImmediate(goOn)
  })
}

/** Called once for each that waits; one whose turn has not come calls itself again in the next. */
function goOn(): void {
  if (wentOnSince === null) {
    wentOnSince = performance.now()
    setImmediate(() => {
      wentOnSince = null
    })
  } else if (isHeldLong(wentOnSince)) {
    setImmediate(goOn)
    return
  }
  resting.shift()?.()
}

/**
 * For work of many small steps on a thread that others share: `await yielder.yieldIfDue()` between two steps gives the
 * event loop a turn when this work has held the thread for {@link HOLD_MS}.
 */
export class Yielder {
  #since = performance.now()

  /** Whether the thread has been held long enough. */
  get isDue(): boolean {
    return isHeldLong(this.#since)
  }

  /** Counts anew: the work has waited for something, and the thread was others' meanwhile. */
  restart(): void {
    this.#since = performance.now()
  }

  async yieldIfDue(): Promise<void> {
    if (this.isDue) await this.yieldNow()
  }

  /** A turn in any case: before what holds the thread as long again, and bounds itself. */
  async yieldNow(): Promise<void> {
    await nextTurn()
    this.restart()
  }
}

// Work that nobody waits for, at a speed that leaves the machine to others.

/** How long it works at a stretch, in ms. */
const STRETCH_MS = 10
/** How long it rests at the most, in ms, whatever the stretch before took. */
const LONGEST_REST_MS = 50

const NEVER = new Int32Array(new SharedArrayBuffer(4))

/** Holds its thread still between stretches of work; for threads that have nothing else to do. */
export class Throttle {
  #since = performance.now()

  /** Asked between two pieces of work: rests as long as it worked since it last did. */
  pause(): void {
    const worked = performance.now() - this.#since
    if (worked < STRETCH_MS) return
    Atomics.wait(NEVER, 0, 0, Math.min(worked, LONGEST_REST_MS))
    this.#since = performance.now()
  }
}
