/**
 * Databases that were being served when their thread hung or ran out of memory. They are served on a thread apart, so
 * that the same request, sent again, holds up nobody else; and one that does it again is refused for a time.
 */

/** From the second time on a database is refused for so long, doubled with each further one, in ms. */
const FIRST_PAUSE_MS = 10_000
const LONGEST_PAUSE_MS = 10 * 60_000
/** So long after the last time it is forgotten, in ms. */
const FORGOTTEN_MS = 60 * 60_000
/** How many are remembered; the oldest go first. */
const MOST = 1000

interface Record {
  times: number
  last: number
}

export class Suspects {
  readonly #now: () => number
  /** Oldest first. */
  readonly #records = new Map<string, Record>()

  /** @param now in ms of a clock that only goes forward; for tests */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** A thread has hung while it served this database. */
  add(database: string): void {
    const record = this.#known(database) ?? { times: 0, last: 0 }
    record.times += 1
    record.last = this.#now()
    this.#records.delete(database)
    this.#records.set(database, record)
    for (const oldest of this.#records.keys()) {
      if (this.#records.size <= MOST) break
      this.#records.delete(oldest)
    }
  }

  /** The database is gone. */
  remove(database: string): void {
    this.#records.delete(database)
  }

  has(database: string): boolean {
    return this.#records.size > 0 && this.#known(database) !== undefined
  }

  /** Whether the database is to be refused now. */
  isPaused(database: string): boolean {
    if (this.#records.size === 0) return false
    const record = this.#known(database)
    if (record === undefined || record.times < 2) return false
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (record.times - 2))
    return this.#now() - record.last < pause
  }

  #known(database: string): Record | undefined {
    const record = this.#records.get(database)
    if (record === undefined || this.#now() - record.last < FORGOTTEN_MS) return record
    this.#records.delete(database)
    return undefined
  }
}
