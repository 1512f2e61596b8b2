import type { Limits } from '../core/types.ts'
/**
 * Numbers that the main thread, the sandbox threads and the database threads share: which sandbox threads are free,
 * which database thread has each of them, when their current calls began, which database threads wait, and the limits
 * of a call. They are in shared memory, because a thread that runs a function cannot answer messages.
 */

/** The maximum number of sandbox threads, including those in a long call. */
export const MAX_SLOTS = 8

/** The fewest threads: a database uses two at most, and so do lists, which wait for their clients. */
export const MIN_SLOTS = 3

/** By how much the memories of all functions that a thread keeps ready may have grown, in bytes. A single function may take more. */
export const MAX_GROWN_BYTES = 32 * 1_048_576

/** About what a thread takes besides the memory of functions that has grown, in bytes. */
const THREAD_BYTES = 32 * 1_048_576

/**
 * @param total bytes that all threads may take
 * @param memory the limit of one function, in bytes
 * @returns how many threads there may be
 */
export function slotsWithin(total: number, memory: number): number {
  const slots = Math.floor(total / (memory + MAX_GROWN_BYTES + THREAD_BYTES))
  return Math.min(MAX_SLOTS, Math.max(MIN_SLOTS, slots))
}

/** The limits of one call of a function. */
export interface FunctionLimits {
  readonly timeoutMs: number
  /** In bytes, including QuickJS itself; counted in pages of 64 KiB. */
  readonly memory: number
}

/** @returns the limits of each call of a function, as configured */
export function functionLimits({ functionTimeout, functionMemory }: Limits): FunctionLimits {
  return { timeoutMs: functionTimeout, memory: functionMemory }
}

/** A slot of the table with its thread. */
export interface Slot {
  readonly index: number
  /** The number of the thread, which is never reused: a later thread in the same slot has another number. */
  readonly thread: number
}

const PAGE = 65_536

/** Cells for all slots. */
const FREED = 0
const TIMEOUT = 1
const PAGES = 2
/** Cells of a slot. */
const FIRST = 3
const OWNER = 0
const SINCE = 1
const THREAD = 2
const CELLS = 3
/** A cell per waiting database thread: when it began to wait, or 0. Two threads with the same cell share their turn. */
const WAITERS = FIRST + CELLS * MAX_SLOTS
const MAX_WAITERS = 64
/** How much longer a thread must have waited to be served first, in ms. */
const AHEAD_MS = 10

/** Owners other than database threads, whose numbers begin at 1. */
const FREE = 0
const ABSENT = -1

export class SlotTable {
  readonly memory: SharedArrayBuffer
  readonly #cells: Int32Array

  /** @param memory the memory of another thread's table; without it, the table is new and empty */
  constructor(memory?: SharedArrayBuffer) {
    this.memory = memory ?? new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT * (WAITERS + MAX_WAITERS))
    this.#cells = new Int32Array(this.memory)
    if (memory !== undefined) return
    for (let index = 0; index < MAX_SLOTS; index += 1) this.#store(index, OWNER, ABSENT)
  }

  get limits(): FunctionLimits {
    return {
      timeoutMs: Atomics.load(this.#cells, TIMEOUT),
      memory: Atomics.load(this.#cells, PAGES) * PAGE,
    }
  }

  set limits({ timeoutMs, memory }: FunctionLimits) {
    Atomics.store(this.#cells, TIMEOUT, timeoutMs)
    Atomics.store(this.#cells, PAGES, Math.floor(memory / PAGE))
  }

  /** Adds a free thread. */
  open({ index, thread }: Slot): void {
    this.#store(index, THREAD, thread)
    this.#store(index, SINCE, now())
    this.#store(index, OWNER, FREE)
    this.#signalFreed()
  }

  /** Removes a thread, so that it can no longer be claimed. */
  close({ index }: Slot): void {
    this.#store(index, OWNER, ABSENT)
  }

  /** {@link close}s a thread if it is free. */
  closeIfFree({ index }: Slot): boolean {
    return this.#change(index, FREE, ABSENT)
  }

  /** Claims a free thread for one piece of work. */
  claim({ index, thread }: Slot, owner: number): boolean {
    if (!this.#change(index, FREE, owner)) return false
    this.#store(index, SINCE, now())
    if (this.#load(index, THREAD) === thread) return true
    this.#change(index, owner, FREE)
    return false
  }

  /** Called by the thread before each call of a function. */
  begin({ index }: Slot): void {
    this.#store(index, SINCE, now())
  }

  /** Called by the thread when the piece of work is done. Does nothing if the thread was closed in the meantime. */
  release({ index }: Slot, owner: number): void {
    this.#store(index, SINCE, now())
    if (this.#change(index, owner, FREE)) this.#signalFreed()
  }

  isFree({ index }: Slot): boolean {
    return this.#load(index, OWNER) === FREE
  }

  /** How long the current call of a claimed thread has run, in ms; 0 for a free one. */
  busyMs({ index }: Slot): number {
    return this.#load(index, OWNER) > FREE ? this.#age(index) : 0
  }

  /**
   * A mark of the current call of a claimed thread. Two calls have the same mark only if they begin in the same
   * millisecond. Undefined for a thread that is free or has ended.
   */
  callOf(slot: Slot): number | undefined {
    return this.#load(slot.index, OWNER) > FREE ? this.markOf(slot) : undefined
  }

  /** The mark of a thread's last call, or of when it became free. */
  markOf({ index }: Slot): number {
    return this.#load(index, SINCE)
  }

  /** How long a thread has been free, in ms; 0 for a claimed one. */
  idleMs(slot: Slot): number {
    return this.isFree(slot) ? this.#age(slot.index) : 0
  }

  /** Notes that a database thread waits, unless it does already. */
  wait(client: number): void {
    // 0 means that no thread waits.
    Atomics.compareExchange(this.#cells, waiterOf(client), 0, now() | 1)
  }

  stopWaiting(client: number): void {
    Atomics.store(this.#cells, waiterOf(client), 0)
  }

  /** Whether another database thread has waited longer for a sandbox thread than this one. */
  overtakes(client: number): boolean {
    const own = waiterOf(client)
    const since = Atomics.load(this.#cells, own) || now()
    for (let cell = WAITERS; cell < WAITERS + MAX_WAITERS; cell += 1) {
      const other = Atomics.load(this.#cells, cell)
      if (cell !== own && other !== 0 && ((since - other) | 0) > AHEAD_MS) return true
    }
    return false
  }

  /** A count that grows whenever a thread becomes free. */
  get freed(): number {
    return Atomics.load(this.#cells, FREED)
  }

  /**
   * Resolves when {@link freed} has changed, or after a time.
   * @param ms the maximum wait
   * @returns false if the time ran out
   */
  async whenFreed(seen: number, ms: number): Promise<boolean> {
    return (await Atomics.waitAsync(this.#cells, FREED, seen, ms).value) !== 'timed-out'
  }

  #signalFreed(): void {
    Atomics.add(this.#cells, FREED, 1)
    Atomics.notify(this.#cells, FREED)
  }

  /** The difference of two 32-bit times is right even when the clock wraps around. */
  #age(index: number): number {
    return (now() - this.#load(index, SINCE)) | 0
  }

  #load(index: number, cell: number): number {
    return Atomics.load(this.#cells, FIRST + index * CELLS + cell)
  }

  #store(index: number, cell: number, value: number): void {
    Atomics.store(this.#cells, FIRST + index * CELLS + cell, value)
  }

  #change(index: number, from: number, to: number): boolean {
    return Atomics.compareExchange(this.#cells, FIRST + index * CELLS + OWNER, from, to) === from
  }
}

function waiterOf(client: number): number {
  return WAITERS + (client % MAX_WAITERS)
}

/** Milliseconds on a monotonic clock that all threads share, in 32 bits. */
function now(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return (seconds * 1000 + Math.floor(nanoseconds / 1e6)) | 0
}
