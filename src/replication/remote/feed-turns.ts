/** Turns of the feeds that wait at one remote, when there are more of them than its connections can hold. */

/** A feed's place at a remote. */
export interface FeedTurn {
  /** How long the remote should hold the request, in ms; null: as long as it likes, since no other feed needs the place. */
  readonly holdMs: number | null
  /** Aborted when another feed needs the place. */
  readonly signal: AbortSignal
  /** The feed has news, which it reads to their end before it gives up the place. */
  keep(): void
  end(): void
}

interface Holder {
  readonly abort: AbortController
  /** When the place may be taken away, in ms of the clock. */
  until: number
}

interface Waiter {
  readonly start: (turn: FeedTurn) => void
}

/** Requests of feeds without news to one remote, per second, while feeds wait for a place. */
const REQUESTS_PER_SECOND = 8
/** How long a connection may take, before a place that nobody else needed so far is taken away, in ms. */
const SETUP_MS = 1000
/**
 * How long an answer may be late before its place is taken away, in ms. Taking it away ends the connection, and asks a slow
 * remote for another one.
 */
const GRACE_MS = 10_000
/**
 * How long turns stay short after a feed has waited for a place, in ms: feeds that have just had news come back together.
 * A long turn would be taken away from them, which ends a connection over HTTP/1.1.
 */
const SHORT_TURNS_MS = 10_000

export class FeedTurns {
  readonly #holders = new Set<Holder>()
  /** In the order of their turns. */
  readonly #waiting = new Set<Waiter>()
  readonly #now: () => number
  #places: number
  /** When a feed last waited for a place. */
  #waitedAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  /**
   * @param places feeds that wait at the remote at once
   * @param now the clock, in ms
   */
  constructor(places: number, now = () => performance.now()) {
    this.#places = places
    this.#now = now
  }

  get isIdle(): boolean {
    return this.#holders.size === 0 && this.#waiting.size === 0
  }

  setPlaces(places: number): void {
    this.#places = places
    this.#fill()
  }

  /** @returns when a place is free @throws what `signal` is aborted with */
  async take(signal: AbortSignal): Promise<FeedTurn> {
    signal.throwIfAborted()
    const { promise, resolve, reject } = Promise.withResolvers<FeedTurn>()
    const waiter = { start: resolve }
    const leave = () => {
      if (this.#waiting.delete(waiter)) reject(signal.reason)
    }
    signal.addEventListener('abort', leave, { once: true })
    this.#waiting.add(waiter)
    this.#fill()
    try {
      return await promise
    } finally {
      signal.removeEventListener('abort', leave)
    }
  }

  #fill(): void {
    for (const waiter of this.#waiting) {
      if (this.#holders.size >= this.#places) {
        this.#waitedAt = this.#now()
        break
      }
      this.#waiting.delete(waiter)
      waiter.start(this.#turn())
    }
    this.#plan()
  }

  #turn(): FeedTurn {
    const shareMs = (this.#places / REQUESTS_PER_SECOND) * 1000
    const isShared = this.#waiting.size > 0 || this.#now() - this.#waitedAt < SHORT_TURNS_MS
    const abort = new AbortController()
    const holder: Holder = { abort, until: this.#now() + shareMs + (isShared ? GRACE_MS : SETUP_MS) }
    this.#holders.add(holder)
    return {
      holdMs: isShared ? shareMs : null,
      signal: abort.signal,
      keep: () => {
        holder.until = Number.POSITIVE_INFINITY
      },
      end: () => {
        if (this.#holders.delete(holder)) this.#fill()
      },
    }
  }

  /** Plans when the next place is taken away. */
  #plan(): void {
    clearTimeout(this.#timer)
    if (this.#waiting.size === 0) return
    const first = Math.min(...[...this.#holders].map(({ until }) => until))
    if (first === Number.POSITIVE_INFINITY) return
    this.#timer = setTimeout(() => this.#takeAway(), Math.max(0, first - this.#now()))
  }

  #takeAway(): void {
    const now = this.#now()
    for (const holder of this.#holders) {
      if (holder.until > now) continue
      holder.until = Number.POSITIVE_INFINITY
      holder.abort.abort()
    }
    this.#plan()
  }
}
