/** How long one piece of work may hold a thread, in ms: architecture.md, "Five ideas", 2. */
const HOLD_MS = 5
/** The same during foreground writes, which wait for each piece of long work before them. */
const SHORT_HOLD_MS = 2
/** How long after a foreground write another is likely, in ms. */
const FOREGROUND_MS = 50

/** In ms of `performance.now()`. Of this thread: each has modules of its own. */
let foregroundUntil = Number.NEGATIVE_INFINITY

/** Notes a foreground write: for a while, long work holds this thread for shorter times. */
export function noteForegroundWrite(): void {
  foregroundUntil = performance.now() + FOREGROUND_MS
}

/** Whether a foreground write on this thread is likely. */
export function hasForegroundWrite(now: number = performance.now()): boolean {
  return now < foregroundUntil
}

/** Whether one piece of work that has begun at this time, in ms of `performance.now()`, has held the thread long enough. */
export function isHeldLong(since: number): boolean {
  const now = performance.now()
  return now - since > (hasForegroundWrite(now) ? SHORT_HOLD_MS : HOLD_MS)
}

/**
 * How many things one uninterruptible call does, such as reading some documents. The size doubles after a quick call and
 * halves after a slow one.
 */
export class BatchSize {
  readonly #most: number
  size: number

  /** @param first size of the first batch @param most largest size */
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

/** Work that waits for a turn, in order. */
const resting: (() => void)[] = []
/** When this turn of the event loop began to go on with such work, in ms of `performance.now()`; null: it has not. */
let wentOnSince: number | null = null

/** Resolves in a later turn of the event loop. One turn resumes as much work as may hold the thread. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    resting.push(resolve)
    setImmediate(goOn)
  })
}

/** Called once for each waiter; reschedules itself if this turn has held the thread long enough. */
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

/** How long it works at a stretch, in ms. */
const STRETCH_MS = 10
/** The longest pause, in ms. */
const LONGEST_REST_MS = 50

const NEVER = new Int32Array(new SharedArrayBuffer(4))

/** Blocks its thread between stretches of background work; for threads that have nothing else to do. */
export class Throttle {
  #since = performance.now()

  /** Call between two pieces of work: pauses for as long as it has worked since the last pause. */
  pause(): void {
    const worked = performance.now() - this.#since
    if (worked < STRETCH_MS) return
    Atomics.wait(NEVER, 0, 0, Math.min(worked, LONGEST_REST_MS))
    this.#since = performance.now()
  }
}
