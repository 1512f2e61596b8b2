/**
 * The databases that a standby has yet to copy, in the order in which they became due, and how far behind it is. Pure:
 * times are given, in ms of a clock that does not jump.
 */

interface Entry {
  /** Whatever the primary had acknowledged by then is here; null: nothing is known to be missing. */
  since: number | null
  isRunning: boolean
  /** The database has changed again during its copy. */
  again: { readonly since: number | null } | null
  /** Not before this time, since it has failed. */
  dueAt: number
  failures: number
  reason: string | null
}

/** A database that cannot be copied at present. */
export interface Failure {
  readonly database: string
  readonly reason: string
}

const FIRST_WAIT_MS = 1000
const LONGEST_WAIT_MS = 60_000

export class Backlog {
  /** At most one per database. */
  readonly #entries = new Map<string, Entry>()

  get size(): number {
    return this.#entries.size
  }

  /**
   * Notes that a database must be copied.
   * @param since whatever the primary had acknowledged by then is here; null: it is only checked
   */
  mark(database: string, since: number | null): void {
    const entry = this.#entries.get(database)
    if (entry === undefined) {
      const fresh = { since, isRunning: false, again: null, dueAt: Number.NEGATIVE_INFINITY }
      this.#entries.set(database, { ...fresh, failures: 0, reason: null })
    } else if (entry.isRunning) {
      entry.again = { since: earlier(entry.again?.since ?? null, since) }
    } else {
      entry.since = earlier(entry.since, since)
    }
  }

  /** Takes the database that has waited longest; null if none is due. */
  take(now: number): string | null {
    for (const [database, entry] of this.#entries) {
      if (entry.isRunning || entry.dueAt > now) continue
      entry.isRunning = true
      return database
    }
    return null
  }

  /** A copy that was taken has reached the end of the primary's feed. */
  done(database: string): void {
    const entry = this.#entries.get(database)
    if (entry === undefined) return
    this.#entries.delete(database)
    if (entry.again !== null) this.mark(database, entry.again.since)
  }

  /**
   * A copy that was taken has failed; it is due again after a wait that doubles.
   * @param reason in words
   * @returns whether the reason is another one than before
   */
  fail(database: string, now: number, reason: string): boolean {
    const entry = this.#entries.get(database)
    if (entry === undefined) return true
    const isNew = entry.reason !== reason
    entry.failures += 1
    const wait = Math.min(FIRST_WAIT_MS * 2 ** (entry.failures - 1), LONGEST_WAIT_MS)
    if (entry.again !== null) entry.since = earlier(entry.since, entry.again.since)
    Object.assign(entry, { isRunning: false, again: null, dueAt: now + wait, reason })
    // Others go first.
    this.#entries.delete(database)
    this.#entries.set(database, entry)
    return isNew
  }

  /** The database no longer exists. */
  forget(database: string): void {
    this.#entries.delete(database)
  }

  /** Whatever the primary had acknowledged by then is here; null: no database is known to be behind. */
  get oldest(): number | null {
    let oldest: number | null = null
    for (const { since, again } of this.#entries.values()) {
      oldest = earlier(earlier(oldest, since), again?.since ?? null)
    }
    return oldest
  }

  /** When the next database that failed is due; null: none waits. */
  get nextDue(): number | null {
    let next: number | null = null
    for (const { isRunning, dueAt } of this.#entries.values()) {
      if (!isRunning) next = earlier(next, dueAt)
    }
    return next
  }

  failures(): readonly Failure[] {
    return [...this.#entries].flatMap(([database, { reason }]) =>
      reason === null ? [] : [{ database, reason }],
    )
  }
}

function earlier(a: number | null, b: number | null): number | null {
  if (a === null) return b
  return b === null ? a : Math.min(a, b)
}
