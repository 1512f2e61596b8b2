/**
 * Limits how many feeds an account has open. A feed above the limit waits for a slot. So that it does not wait for ever,
 * the oldest feed ends, in order and with its position, once it is old enough. Its client comes back and waits in turn.
 * So no feed is refused, and no client reconnects in a tight loop.
 */
import type { FeedSlot } from '../auth/policy.ts'
import type { Clock } from '../changes/source.ts'

/** A feed can be ended for another after this time. */
const MIN_AGE_MS = 20_000
/** A feed whose reader has stopped may not end in time for the one that waits. */
const MAX_WAIT_MS = 40_000
/** As many feeds wait as may be open, up to this number. */
const MAX_WAITING = 256

interface Open {
  readonly since: number
  /** Ends the feed in order. */
  readonly end: () => void
  isEnding: boolean
}

interface Waiting {
  readonly until: number
  readonly end: () => void
  readonly resolve: (slot: FeedSlot | null) => void
}

export class FeedSlots {
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
   * Waits for a slot.
   * @param limit how many feeds the account may have, at least 1
   * @param end called when the feed must end for another
   * @param signal aborted when the client has gone
   * @returns null: too many feeds wait already, or the client has gone
   */
  take(key: string, limit: number, end: () => void, signal: AbortSignal): Promise<FeedSlot | null> {
    let feeds = this.#accounts.get(key)
    if (feeds === undefined) {
      feeds = new AccountFeeds(this.#clock, () => this.#accounts.delete(key))
      this.#accounts.set(key, feeds)
    }
    return feeds.take(limit, end, signal)
  }

  close(): void {
    for (const feeds of this.#accounts.values()) feeds.close()
  }
}

class AccountFeeds {
  readonly #clock: Clock
  readonly #onEmpty: () => void
  /** Oldest first. */
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

  take(limit: number, end: () => void, signal: AbortSignal): Promise<FeedSlot | null> {
    this.#limit = limit
    if (this.#waiting.size === 0 && this.#open.size < limit) return Promise.resolve(this.#enter(end))
    if (this.#waiting.size >= Math.min(limit, MAX_WAITING) || signal.aborted) return Promise.resolve(null)
    return new Promise((resolve) => {
      const cancel = () => waiting.resolve(null)
      const waiting: Waiting = {
        until: this.#clock.now() + MAX_WAIT_MS,
        end,
        resolve: (slot) => {
          signal.removeEventListener('abort', cancel)
          this.#waiting.delete(waiting)
          resolve(slot)
          this.#dropIfEmpty()
        },
      }
      signal.addEventListener('abort', cancel, { once: true })
      this.#waiting.add(waiting)
      this.#assign()
    })
  }

  #enter(end: () => void): FeedSlot {
    const open: Open = { since: this.#clock.now(), end, isEnding: false }
    this.#open.add(open)
    return {
      release: () => {
        if (!this.#open.delete(open)) return
        this.#assign()
        this.#dropIfEmpty()
      },
    }
  }

  /** Gives free slots to the feeds that wait longest, and ends the oldest feeds for the others. */
  #assign(): void {
    const now = this.#clock.now()
    for (const waiting of [...this.#waiting]) {
      if (this.#open.size < this.#limit) waiting.resolve(this.#enter(waiting.end))
      else if (waiting.until <= now) waiting.resolve(null)
    }
    let wanted = this.#waiting.size - [...this.#open].filter(({ isEnding }) => isEnding).length
    for (const open of [...this.#open]) {
      if (wanted <= 0 || open.since + MIN_AGE_MS > now) break
      if (open.isEnding) continue
      wanted -= 1
      open.isEnding = true
      open.end()
    }
    this.#setTimer(now, wanted > 0)
  }

  /** @param isShort whether more feeds must end as soon as they are old enough */
  #setTimer(now: number, isShort: boolean): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    const [first] = this.#waiting
    if (first === undefined) return
    const oldest = isShort ? [...this.#open].find(({ isEnding }) => !isEnding) : undefined
    const due = Math.min(first.until, (oldest?.since ?? Infinity) + MIN_AGE_MS)
    this.#cancelTimer = this.#clock.after(Math.max(1, Math.ceil(due - now)), () => this.#assign())
  }

  #dropIfEmpty(): void {
    if (this.#open.size === 0 && this.#waiting.size === 0) this.#onEmpty()
  }

  close(): void {
    this.#cancelTimer?.()
    for (const waiting of [...this.#waiting]) waiting.resolve(null)
  }
}
