/**
 * How users' databases are divided among threads (docs/decisions/0042). One thread serves all of them until it is busy:
 * it compiles the code once and takes its memory once. Then new databases go to another thread, and some of those that
 * are in use move there. Many databases are divided in any case.
 */

/** How often the load is measured while there are calls, in ms. */
export const BALANCE_MS = 1000
/** The part of its time above which a thread is busy. Waiting for a disk counts, since nothing else runs meanwhile. */
const BUSY = 0.7
/** The weight of the last measurement in the average: a thread that is never idle counts as busy after four seconds. */
const WEIGHT = 0.3
/**
 * A thread with so many databases gets no more while there may be another thread. After a restart, all of them are opened at
 * once, and a thread that works through a queue cannot give any away.
 */
const MANY_DATABASES = 1000
/** How much less busy a thread must be before databases move to it. */
const GAP = 0.3
/** Databases that move at once. */
const MAX_MOVED = 16
/** How long a database stays where it is after a move, or an attempt, in ms: a move costs two openings and an epoch. */
const STAY_MS = 10 * 60_000

/** The load of one thread. */
export interface ThreadLoad {
  /** The part of its time that the thread was busy, from 0 to 1: an average of some seconds. */
  readonly busy: number
  /** The number of calls during the last measurement, by database. */
  readonly calls: ReadonlyMap<string, number>
}

export interface Move {
  /** The index of the thread that is too busy. */
  readonly from: number
  /** The index of the thread that takes databases over; the number of threads for a new one. */
  readonly to: number
  readonly databases: readonly string[]
}

/**
 * Plans to move databases from the busiest thread: those with up to half of its calls. The database with the most calls
 * stays.
 * @param maxThreads how many threads there may be
 * @param isMovable whether a database may move now
 * @returns null if all stay
 */
export function planMove(
  loads: readonly ThreadLoad[],
  maxThreads: number,
  isMovable: (database: string) => boolean,
): Move | null {
  const sorted = loads.toSorted((a, b) => a.busy - b.busy)
  const [lightest, busiest] = [sorted[0], sorted.at(-1)]
  if (lightest === undefined || busiest === undefined) return null
  if (busiest.busy < BUSY || busiest.calls.size < 2) return null
  const to = busiest.busy - lightest.busy >= GAP ? loads.indexOf(lightest) : loads.length
  if (to >= maxThreads) return null
  const databases = lighterHalf(busiest.calls, isMovable)
  return databases.length === 0 ? null : { from: loads.indexOf(busiest), to, databases }
}

function lighterHalf(calls: ReadonlyMap<string, number>, isMovable: (database: string) => boolean): string[] {
  const sorted = [...calls].sort(([, a], [, b]) => b - a)
  const half = sorted.reduce((sum, [, count]) => sum + count, 0) / 2
  const movable = sorted.filter(([database]) => isMovable(database))
  // One database stays in any case.
  if (movable.length === sorted.length) movable.shift()
  const moved: string[] = []
  let sum = 0
  for (const [database, count] of movable) {
    if (moved.length === MAX_MOVED) break
    if (moved.length > 0 && sum + count > half) continue
    moved.push(database)
    sum += count
  }
  return moved
}

/** Measures the load of one thread. */
export class LoadMeter implements ThreadLoad {
  readonly #now: () => number
  #calls = new Map<string, number>()
  #lastCalls: ReadonlyMap<string, number> = this.#calls
  #busy = 0
  #sampledAt: number
  #busySeconds = 0

  /** @param now in ms of a clock that only goes forward; for tests */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
    this.#sampledAt = now()
  }

  get busy(): number {
    return this.#busy
  }

  get calls(): ReadonlyMap<string, number> {
    return this.#lastCalls
  }

  /** Counts a call. */
  note(database: string): void {
    this.#calls.set(database, (this.#calls.get(database) ?? 0) + 1)
  }

  /** @param databases of the thread */
  mayTakeMore(databases: number): boolean {
    return this.#busy < BUSY && databases < MANY_DATABASES
  }

  /** Ends a measurement. @param busySeconds of the thread since its start @returns whether there were calls */
  sample(busySeconds: number): boolean {
    const now = this.#now()
    // A thread that was replaced counts from 0 again.
    const busyMs = Math.max(0, busySeconds - this.#busySeconds) * 1000
    const busy = Math.min(1, busyMs / Math.max(1, now - this.#sampledAt))
    this.#busy += (busy - this.#busy) * WEIGHT
    this.#sampledAt = now
    this.#busySeconds = busySeconds
    this.#lastCalls = this.#calls
    this.#calls = new Map()
    return this.#lastCalls.size > 0
  }
}

/** Databases that have moved, or that could not, and therefore stay where they are for a time. */
export class Settled {
  readonly #now: () => number
  /** Oldest first. */
  readonly #since = new Map<string, number>()

  /** @param now in ms of a clock that only goes forward; for tests */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  add(database: string): void {
    this.#since.delete(database)
    this.#since.set(database, this.#now())
  }

  has(database: string): boolean {
    const now = this.#now()
    for (const [oldest, since] of this.#since) {
      if (now - since < STAY_MS) break
      this.#since.delete(oldest)
    }
    return this.#since.has(database)
  }
}
