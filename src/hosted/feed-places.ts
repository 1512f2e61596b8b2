/**
 * How many feeds an account has open at once. Beyond its number a feed waits for a place; and so that it does not wait
 * for ever, the oldest feed is ended, in order and with its position, once it is old enough. A client that is ended so
 * comes back and waits in its turn: none is refused, and none goes round without pause.
 */
import type { Clock } from '../changes/source.ts'

/** A feed is left alone for so long. */
const LEAST_AGE_MS = 20_000
/** A feed that is ended may have a reader that takes nothing; then whoever waits for its place does not get it. */
const MAX_WAIT_MS = 40_000
/** As many as may be open; with large numbers fewer. */
const MAX_WAITING = 256

/** A feed's place, which it leaves when it ends. */
export interface Place {
  leave(): void
}

interface Open {
  readonly since: number
  /** Ends the feed in order. */
  readonly end: () => void
  isEnding: boolean
}

interface Waiting {
  readonly until: number
  readonly end: () => void
  readonly settle: (place: Place | null) => void
}

export class FeedPlaces {
  readonly #clock: Clock
  readonly #accounts = new Map<string, AccountFeeds>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** How many feeds an account has open. */
  count(key: string): number {
    return this.#accounts.get(key)?.count ?? 0
  }

  /**
   * Waits for a place.
   * @param limit how many the account may have, at least 1
   * @param end called when the feed is to end for another
   * @param signal aborted when the client has gone
   * @returns null: too many wait already, or the client has gone
   */
  take(key: string, limit: number, end: () => void, signal: AbortSignal): Promise<Place | null> {
    let feeds = this.#accounts.get(key)
    if (feeds === undefined) {
      feeds = new AccountFeeds(this.#clock, () => this.#accounts.delete(key))
      this.#accounts.set(key, feeds)
    }
    return feeds.take(limit, end, signal)
  }

  /** The server stops. */
  close(): void {
    for (const feeds of this.#accounts.values()) feeds.close()
  }
}

class AccountFeeds {
  readonly #clock: Clock
  readonly #onEmpty: () => void
  /** The oldest first. */
  readonly #open = new Set<Open>()
  readonly #waiting = new Set<Waiting>()
  #limit = 1
  #cancelTimer: (() => void) | null = null

  constructor(clock: Clock, onEmpty: () => void) {
    this.#clock = clock
    this.#onEmpty = onEmpty
  }

  get count(): number {
    return this.#open.size
  }

  take(limit: number, end: () => void, signal: AbortSignal): Promise<Place | null> {
    this.#limit = limit
    if (this.#waiting.size === 0 && this.#open.size < limit) return Promise.resolve(this.#enter(end))
    if (this.#waiting.size >= Math.min(limit, MAX_WAITING) || signal.aborted) return Promise.resolve(null)
    return new Promise((resolve) => {
      const cancel = () => waiting.settle(null)
      const waiting: Waiting = {
        until: this.#clock.now() + MAX_WAIT_MS,
        end,
        settle: (place) => {
          signal.removeEventListener('abort', cancel)
          this.#waiting.delete(waiting)
          resolve(place)
          this.#tidy()
        },
      }
      signal.addEventListener('abort', cancel, { once: true })
      this.#waiting.add(waiting)
      this.#makeRoom()
    })
  }

  #enter(end: () => void): Place {
    const open: Open = { since: this.#clock.now(), end, isEnding: false }
    this.#open.add(open)
    return {
      leave: () => {
        if (!this.#open.delete(open)) return
        this.#makeRoom()
        this.#tidy()
      },
    }
  }

  /** Lets in whoever waits longest; ends the oldest feeds for those that still wait. */
  #makeRoom(): void {
    const now = this.#clock.now()
    for (const waiting of [...this.#waiting]) {
      if (this.#open.size < this.#limit) waiting.settle(this.#enter(waiting.end))
      else if (waiting.until <= now) waiting.settle(null)
    }
    let wanted = this.#waiting.size - [...this.#open].filter(({ isEnding }) => isEnding).length
    for (const open of [...this.#open]) {
      if (wanted <= 0 || open.since + LEAST_AGE_MS > now) break
      if (open.isEnding) continue
      wanted -= 1
      open.isEnding = true
      open.end()
    }
    this.#setTimer(now, wanted > 0)
  }

  /** @param isShort whether more feeds are to be ended as soon as they are old enough */
  #setTimer(now: number, isShort: boolean): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    const [first] = this.#waiting
    if (first === undefined) return
    const oldest = isShort ? [...this.#open].find(({ isEnding }) => !isEnding) : undefined
    const due = Math.min(first.until, (oldest?.since ?? Infinity) + LEAST_AGE_MS)
    this.#cancelTimer = this.#clock.after(Math.max(1, Math.ceil(due - now)), () => this.#makeRoom())
  }

  #tidy(): void {
    if (this.#open.size === 0 && this.#waiting.size === 0) this.#onEmpty()
  }

  close(): void {
    this.#cancelTimer?.()
    for (const waiting of [...this.#waiting]) waiting.settle(null)
  }
}
