/**
 * The event loop of a thread: how long work may hold it, how often it has handled messages, and when it is idle. Each
 * thread has this module for itself.
 */
import { readlinkSync } from 'node:fs'
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** How long one piece of work may hold a thread, in ms: architecture.md, "Five ideas", 2. */
const HOLD_MS = 5
/** The same during foreground writes, which wait for each piece of long work before them. */
const SHORT_HOLD_MS = 2
/** How long after a foreground write another is likely, in ms. */
const FOREGROUND_MS = 50

/** In ms of `performance.now()`. */
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

let turn = 1
let isTurnCounted = false

/** The number of this turn of the event loop, of those in which it was asked for. */
export function currentTurn(): number {
  if (!isTurnCounted) {
    isTurnCounted = true
    setImmediate(() => {
      isTurnCounted = false
      turn += 1
    })
  }
  return turn
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
const waiting: (() => void)[] = []
/** When this turn began to resume such work, in ms of `performance.now()`; null if it has not begun. */
let resumedSince: number | null = null

/** Resolves in a later turn of the event loop. One turn resumes as much work as may hold the thread. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve)
    setImmediate(resumeNext)
  })
}

/** Called once for each waiter; reschedules itself if this turn has held the thread long enough. */
function resumeNext(): void {
  if (resumedSince === null) {
    resumedSince = performance.now()
    setImmediate(() => {
      resumedSince = null
    })
  } else if (isHeldLong(resumedSince)) {
    setImmediate(resumeNext)
    return
  }
  waiting.shift()?.()
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

  /** Restarts the time: the work has waited for something, and others have used the thread meanwhile. */
  restart(): void {
    this.#since = performance.now()
  }

  async yieldIfDue(): Promise<void> {
    if (this.isDue) await this.yieldNow()
  }

  /** Yields in any case: before a step that holds the thread as long again and bounds itself. */
  async yieldNow(): Promise<void> {
    await nextTurn()
    this.restart()
  }
}

/** How long work runs without a pause, in ms. */
const STRETCH_MS = 10
/** The longest pause, in ms. */
const LONGEST_PAUSE_MS = 50

const NEVER = new Int32Array(new SharedArrayBuffer(4))

/** Blocks its thread between stretches of background work; for threads that have nothing else to do. */
export class Throttle {
  #since = performance.now()

  /** Call between two pieces of work: pauses for as long as it has worked since the last pause. */
  pause(): void {
    const worked = performance.now() - this.#since
    if (worked < STRETCH_MS) return
    Atomics.wait(NEVER, 0, 0, Math.min(worked, LONGEST_PAUSE_MS))
    this.#since = performance.now()
  }
}

/**
 * The heartbeat of this thread, in memory that another thread reads: how often its event loop has handled messages, and
 * whether it is in a call that may legitimately take long. The places in the memory:
 */
const TURNS = 0
const LAST_CALL = 1
const LONG_CALLS = 2
const SYSTEM_ID = 3
const SIZE = 4

let own = new Int32Array(new SharedArrayBuffer(4 * SIZE))

/** A reading of a thread's heartbeat. */
export interface Heartbeat {
  /** Turns to messages so far; wraps around. */
  readonly turns: number
  /** The newest call that has reached the thread, by its number's lowest 32 bits; see {@link isLater}. */
  readonly lastCall: number
  /** Whether the thread is in a {@link longCall}. */
  readonly isInLongCall: boolean
  /** The operating system's number of the thread; 0 where it cannot be known, or before the thread starts. */
  readonly systemId: number
}

/** @returns memory for the heartbeat of a thread, which uses it with {@link joinHeartbeat} */
export function heartbeatMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer(4 * SIZE)
}

/** Uses shared memory for this thread's heartbeat, and stores the thread's number in it. */
export function joinHeartbeat(memory: SharedArrayBuffer = new SharedArrayBuffer(4 * SIZE)): void {
  own = new Int32Array(memory)
  noteWork()
  Atomics.store(own, SYSTEM_ID, systemThreadId())
}

/** Notes that the event loop handles messages, some of which may be calls. */
export function noteTurn(messages: readonly { readonly type: string; readonly call?: number }[]): void {
  Atomics.add(own, TURNS, 1)
  noteWork()
  for (const { call } of messages) {
    if (call !== undefined && isLater(call, Atomics.load(own, LAST_CALL))) Atomics.store(own, LAST_CALL, call)
  }
}

/** Whether a call came after another, by their numbers, which count up and wrap around at 32 bits. */
export function isLater(call: number, other: number): boolean {
  return ((call - other) | 0) > 0
}

/**
 * Runs one statement that may block the thread for more than 10 s, such as SQLite's `integrity_check` or the creation of
 * an index. The watchdog does not end the thread meanwhile.
 */
export function longCall<T>(statement: () => T): T {
  Atomics.add(own, LONG_CALLS, 1)
  try {
    return statement()
  } finally {
    Atomics.sub(own, LONG_CALLS, 1)
  }
}

/** @param memory of another thread's heartbeat */
export function readHeartbeat(memory: SharedArrayBuffer): Heartbeat {
  const cells = new Int32Array(memory)
  return {
    turns: Atomics.load(cells, TURNS),
    lastCall: Atomics.load(cells, LAST_CALL),
    isInLongCall: Atomics.load(cells, LONG_CALLS) > 0,
    systemId: Atomics.load(cells, SYSTEM_ID),
  }
}

/** From /proc on Linux; elsewhere 0. */
function systemThreadId(): number {
  try {
    const [, id] = /task\/(\d+)$/.exec(readlinkSync('/proc/thread-self')) ?? []
    return Number(id ?? 0)
  } catch {
    return 0
  }
}

/** How often to check for idleness, in ms. A thread is idle after one to two intervals without work. */
const LOOK_MS = 5000
/** A heap that has grown by less since the last collection is left alone, in bytes. */
const LEAST_GROWTH = 3 * 1024 * 1024
/** A larger heap is left to V8: to collect it at once would hold the thread too long. In bytes. */
const MOST_USED = 40 * 1024 * 1024

/**
 * Gives memory back while a thread is idle: V8 lets the heap grow with each request, and collects only when it needs
 * more (docs/decisions/0038).
 */
export class IdleCollector {
  readonly #lookMs: number
  readonly #collect: () => void
  readonly #mostUsed: number
  #hasWorked = false
  /** Bytes of the heap after the last collection. */
  #size = 0
  #timer: NodeJS.Timeout | undefined

  /** @param lookMs, collect, mostUsed for tests */
  constructor(lookMs: number = LOOK_MS, collect: () => void = collectAll, mostUsed: number = MOST_USED) {
    this.#lookMs = lookMs
    this.#collect = collect
    this.#mostUsed = mostUsed
  }

  /** Notes that the thread works. */
  noteWork(): void {
    this.#hasWorked = true
    this.#timer ??= setInterval(() => this.#look(), this.#lookMs).unref()
  }

  #look(): void {
    if (this.#hasWorked) {
      this.#hasWorked = false
      return
    }
    this.#stop()
    const { total_heap_size: size, used_heap_size: used } = getHeapStatistics()
    if (size < this.#size + LEAST_GROWTH || used > this.#mostUsed) return
    this.#collect()
    this.#size = getHeapStatistics().total_heap_size
  }

  #stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}

/**
 * Collects all garbage of the calling thread, compiled code that was not used lately included, and gives free pages back.
 * V8 offers its function for this in contexts that are made while a flag is set.
 * The next collection removes the context.
 */
export function collectAll(): void {
  setFlagsFromString('--expose-gc')
  const gc: unknown = runInNewContext('globalThis.gc')
  if (typeof gc === 'function') gc({ type: 'major', flavor: 'last-resort' })
}

const idleCollector = new IdleCollector()

/** Notes that this thread works; once it is idle, it gives memory back. */
export function noteWork(): void {
  idleCollector.noteWork()
}
