/** Turns of the feeds that wait at one remote, when there are more of them than its connections can hold. */

/** A feed's place at a remote. */
export interface FeedTurn {
  /** How long the remote should hold the request, in ms; null: as long as it likes, since no other feed waits. */
  readonly holdMs: number | null
  /** Aborted when another feed needs the place. */
  readonly signal: AbortSignal
  /** The feed has news, which it reads to their end before it gives up the place. */
  keep(): void
  end(): void
}

interface Holder {
  readonly abort: AbortController
  /** When the place may be taken away, in ms of `performance.now()`. */
  until: number
}

interface Waiter {
  readonly start: (turn: FeedTurn) => void
}

/** Requests of feeds without news to one remote, per second, while feeds wait for a place. */
const REQUESTS_PER_SECOND = 8
/** How long an answer may be late before its place is taken away, in ms. */
const GRACE_MS = 1000

export class FeedTurns {
  readonly #holders = new Set<Holder>()
  /** In the order of their turns. */
  readonly #waiting = new Set<Waiter>()
  #places: number
  #timer: NodeJS.Timeout | undefined

  /** @param places feeds that wait at the remote at once */
  constructor(places: number) {
    this.#places = places
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
      if (this.#holders.size >= this.#places) break
      this.#waiting.delete(waiter)
      waiter.start(this.#turn())
    }
    this.#plan()
  }

  #turn(): FeedTurn {
    const shareMs = (this.#places / REQUESTS_PER_SECOND) * 1000
    const isShared = this.#waiting.size > 0
    const abort = new AbortController()
    const holder: Holder = { abort, until: performance.now() + shareMs + (isShared ? GRACE_MS : 0) }
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
    this.#timer = setTimeout(() => this.#takeAway(), Math.max(0, first - performance.now()))
  }

  #takeAway(): void {
    const now = performance.now()
    for (const holder of this.#holders) {
      if (holder.until > now) continue
      holder.until = Number.POSITIVE_INFINITY
      holder.abort.abort()
    }
    this.#plan()
  }
}
