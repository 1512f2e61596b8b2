/**
 * The few numbers that the main thread, the sandbox threads and the database threads share: which sandbox thread is
 * free, who has it, since when it is at the call it is at, who waits for one, and how long and large a call may be.
 * They stand in shared memory, since a thread that is held by a function answers nobody.
 */

/** Sandbox threads at the most, those that are held by a long call included. */
export const MAX_SLOTS = 8

/** What one call of one function may take. */
export interface FunctionLimits {
  readonly timeoutMs: number
  /** Bytes, QuickJS itself included; counted in pages of 64 KiB. */
  readonly memory: number
}

/** A thread in its place on the board: another thread in the same place is another one. */
export interface Seat {
  readonly slot: number
  /** Never given twice. */
  readonly thread: number
}

const PAGE = 65_536

/** Cells for all. */
const FREED = 0
const TIMEOUT = 1
const PAGES = 2
/** Cells of a slot. */
const FIRST = 3
const OWNER = 0
const SINCE = 1
const THREAD = 2
const CELLS = 3
/** A cell for each who waits: since when, or 0. Two database threads with one cell would share their turn. */
const WAITERS = FIRST + CELLS * MAX_SLOTS
const MAX_WAITERS = 64
/** Who has waited so much longer goes first, in ms. */
const AHEAD_MS = 10

/** Owners beside database threads, which have numbers from 1. */
const FREE = 0
const ABSENT = -1

export class Board {
  readonly memory: SharedArrayBuffer
  readonly #cells: Int32Array

  /** @param memory of another thread's board; without it the board is new, and no thread is on it */
  constructor(memory?: SharedArrayBuffer) {
    this.memory = memory ?? new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT * (WAITERS + MAX_WAITERS))
    this.#cells = new Int32Array(this.memory)
    if (memory !== undefined) return
    for (let slot = 0; slot < MAX_SLOTS; slot += 1) this.#store(slot, OWNER, ABSENT)
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

  /** A thread is there and free. */
  open({ slot, thread }: Seat): void {
    this.#store(slot, THREAD, thread)
    this.#store(slot, SINCE, now())
    this.#store(slot, OWNER, FREE)
    this.#tellFreed()
  }

  /** Nobody gets this thread any more. */
  close({ slot }: Seat): void {
    this.#store(slot, OWNER, ABSENT)
  }

  /** {@link close}s a thread if nobody has it. */
  closeIfFree({ slot }: Seat): boolean {
    return this.#change(slot, FREE, ABSENT)
  }

  /** Takes a free thread for one piece of work. */
  claim({ slot, thread }: Seat, owner: number): boolean {
    if (!this.#change(slot, FREE, owner)) return false
    this.#store(slot, SINCE, now())
    if (this.#load(slot, THREAD) === thread) return true
    this.#change(slot, owner, FREE)
    return false
  }

  /** Said by the thread before each call of a function. */
  begin({ slot }: Seat): void {
    this.#store(slot, SINCE, now())
  }

  /** Said by the thread when the piece of work is done; nothing when it was closed in the meantime. */
  release({ slot }: Seat, owner: number): void {
    this.#store(slot, SINCE, now())
    if (this.#change(slot, owner, FREE)) this.#tellFreed()
  }

  isFree({ slot }: Seat): boolean {
    return this.#load(slot, OWNER) === FREE
  }

  /** How long a claimed thread has been at the call it is at, in ms; 0 for a free one. */
  busyMs({ slot }: Seat): number {
    return this.#load(slot, OWNER) > FREE ? this.#age(slot) : 0
  }

  /**
   * A mark of the call that a claimed thread is at: another call has another one, unless it begins in the same
   * millisecond. Undefined for a thread that is free or gone.
   */
  callOf(seat: Seat): number | undefined {
    return this.#load(seat.slot, OWNER) > FREE ? this.markOf(seat) : undefined
  }

  /** The mark of the call that a thread came to last, or of when it became free. */
  markOf({ slot }: Seat): number {
    return this.#load(slot, SINCE)
  }

  /** How long a thread has been free, in ms; 0 for a claimed one. */
  idleMs(seat: Seat): number {
    return this.isFree(seat) ? this.#age(seat.slot) : 0
  }

  /** A database thread waits from now on, unless it does already. */
  wait(client: number): void {
    // 0 says that nobody waits.
    Atomics.compareExchange(this.#cells, waiterOf(client), 0, now() | 1)
  }

  stopWaiting(client: number): void {
    Atomics.store(this.#cells, waiterOf(client), 0)
  }

  /** Whether a database thread that takes a sandbox thread now takes it from one that has waited longer. */
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
   * @param ms the longest wait
   * @returns false when the time ran out
   */
  async whenFreed(seen: number, ms: number): Promise<boolean> {
    return (await Atomics.waitAsync(this.#cells, FREED, seen, ms).value) !== 'timed-out'
  }

  #tellFreed(): void {
    Atomics.add(this.#cells, FREED, 1)
    Atomics.notify(this.#cells, FREED)
  }

  /** The difference of two 32-bit clocks is right across their turn. */
  #age(slot: number): number {
    return (now() - this.#load(slot, SINCE)) | 0
  }

  #load(slot: number, cell: number): number {
    return Atomics.load(this.#cells, FIRST + slot * CELLS + cell)
  }

  #store(slot: number, cell: number, value: number): void {
    Atomics.store(this.#cells, FIRST + slot * CELLS + cell, value)
  }

  #change(slot: number, from: number, to: number): boolean {
    return Atomics.compareExchange(this.#cells, FIRST + slot * CELLS + OWNER, from, to) === from
  }
}

function waiterOf(client: number): number {
  return WAITERS + (client % MAX_WAITERS)
}

/** Milliseconds on a clock that all threads share and nobody sets, in 32 bits. */
function now(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return (seconds * 1000 + Math.floor(nanoseconds / 1e6)) | 0
}
