/**
 * Limits the requests of each tenant, and of each address without an account: a token bucket for requests per second,
 * and a number of requests at once. Others wait here, before they take anything that tenants share. A request is refused
 * only if it would wait for long. Requests without which a client gives up for good (clients.md R6, R7) have priority.
 */
import type { LimitedRequest, RequestLimiter } from '../auth/policy.ts'
import type { Clock } from '../changes/source.ts'

/** Requests at once. Clients of one device send up to 30, and most are answered within milliseconds. */
const MAX_ACTIVE = 16
/** More of them with priority, since slow uploads must not hold up a checkpoint. */
const MORE_WITH_PRIORITY = 4
/** The size of the bucket, in seconds of the rate. */
const BURST_SECONDS = 5
const MAX_WAIT_MS = 20_000
/** Stands for no limit, so that no arithmetic meets Infinity. */
const MAX_RATE = 1_000_000
/** A waiting request holds its connection and a few kilobytes. */
const MAX_WAITING = 256
/** Far more than any sync client sends. */
const MAX_WAITING_WITH_PRIORITY = 1024

/** The waiting requests of all limiters together, and their limit. */
interface Capacity {
  waiting: number
  readonly max: number
}

interface Waiter {
  readonly request: LimitedRequest
  /** When it is refused, by the clock. */
  readonly until: number
}

/** The limiter of one client. */
export class RateLimiter implements RequestLimiter {
  readonly #clock: Clock
  readonly #capacity: Capacity
  /** Requests per second. */
  #rate: number
  #tokens: number
  #refilledAt: number
  #active = 0
  readonly #priority: LimitedRequest[] = []
  readonly #others: Waiter[] = []
  #cancelTimer: (() => void) | null = null

  constructor(clock: Clock, capacity: Capacity, rate: number) {
    this.#clock = clock
    this.#capacity = capacity
    this.#rate = Math.min(rate, MAX_RATE)
    this.#tokens = burst(this.#rate)
    this.#refilledAt = clock.now()
  }

  /** Whether the limiter can be dropped: a new one would behave the same. */
  isIdle(): boolean {
    this.#refill()
    return this.#active === 0 && this.#waiting === 0 && this.#tokens >= burst(this.#rate)
  }

  get #waiting(): number {
    return this.#priority.length + this.#others.length
  }

  enter(request: LimitedRequest, rate: number): void {
    this.#rate = Math.min(rate, MAX_RATE)
    this.#refill()
    if (this.#waiting === 0 && this.#mayStart(request.hasPriority)) {
      this.#start(request)
      return
    }
    const refusal = this.#refusal(request.hasPriority)
    if (refusal === undefined) this.#wait(request)
    else request.refuse(refusal)
  }

  #wait(request: LimitedRequest): void {
    this.#capacity.waiting += 1
    if (request.hasPriority) this.#priority.push(request)
    else this.#others.push({ request, until: this.#clock.now() + MAX_WAIT_MS })
    this.#startWaiting()
  }

  /** @returns seconds or null as `LimitedRequest.refuse` takes them; undefined: the request may wait */
  #refusal(hasPriority: boolean): number | null | undefined {
    const { waiting, max } = this.#capacity
    if (hasPriority) return this.#priority.length >= MAX_WAITING_WITH_PRIORITY ? null : undefined
    const seconds = (this.#waiting + 1 - this.#tokens) / this.#rate
    const isTooLong = seconds * 1000 > MAX_WAIT_MS
    if (!isTooLong && this.#others.length < MAX_WAITING && waiting < max) return undefined
    return Math.max(1, Math.ceil(seconds))
  }

  cancel(request: LimitedRequest): void {
    if (!removed(this.#priority, (each) => each === request)) {
      if (!removed(this.#others, (each) => each.request === request)) return
    }
    this.#capacity.waiting -= 1
  }

  leave(): void {
    this.#active -= 1
    if (this.#waiting > 0) this.#startWaiting()
  }

  #refill(): void {
    const now = this.#clock.now()
    this.#tokens = Math.min(burst(this.#rate), this.#tokens + ((now - this.#refilledAt) * this.#rate) / 1000)
    this.#refilledAt = now
  }

  #mayStart(hasPriority: boolean): boolean {
    return this.#tokens >= 1 && this.#active < MAX_ACTIVE + (hasPriority ? MORE_WITH_PRIORITY : 0)
  }

  #start(request: LimitedRequest): void {
    this.#tokens -= 1
    this.#active += 1
    request.start()
  }

  #startWaiting(): void {
    this.#refill()
    while (this.#priority.length > 0 && this.#mayStart(true))
      this.#startNext(this.#priority.shift() as LimitedRequest)
    while (this.#others.length > 0 && this.#priority.length === 0 && this.#mayStart(false)) {
      this.#startNext((this.#others.shift() as Waiter).request)
    }
    this.#refuseExpired()
    this.#setTimer()
  }

  #startNext(request: LimitedRequest): void {
    this.#capacity.waiting -= 1
    this.#start(request)
  }

  /** Refuses requests that others with priority have held up for too long. */
  #refuseExpired(): void {
    const now = this.#clock.now()
    for (let [oldest] = this.#others; oldest !== undefined && oldest.until <= now; [oldest] = this.#others) {
      this.#others.shift()
      this.#capacity.waiting -= 1
      oldest.request.refuse(Math.max(1, Math.ceil(this.#waiting / this.#rate)))
    }
  }

  /** Wakes at the next token, or when the oldest request expires. */
  #setTimer(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    if (this.#waiting === 0) return
    const token = this.#tokens >= 1 ? Infinity : ((1 - this.#tokens) / this.#rate) * 1000
    const end = (this.#others[0]?.until ?? Infinity) - this.#clock.now()
    const ms = Math.max(1, Math.ceil(Math.min(token, end)))
    // Without a timer, the next leave() goes on.
    if (ms !== Infinity) this.#cancelTimer = this.#clock.after(ms, () => this.#startWaiting())
  }

  close(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
  }
}

function burst(rate: number): number {
  return Math.max(1, rate * BURST_SECONDS)
}

function removed<T>(list: T[], matches: (each: T) => boolean): boolean {
  const at = list.findIndex(matches)
  if (at !== -1) list.splice(at, 1)
  return at !== -1
}

/** Waiting requests of all limiters: about 50 MB with their connections. */
const MAX_WAITING_TOGETHER = 4096
/** Limiters above which idle ones are dropped. */
const SWEEP_AT = 10_000

/** The limiters of all clients. */
export class RateLimiters {
  readonly #clock: Clock
  readonly #capacity: Capacity = { waiting: 0, max: MAX_WAITING_TOGETHER }
  readonly #limiters = new Map<string, RateLimiter>()
  #sweepAt = SWEEP_AT

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#limiters.size
  }

  /** @param rate requests per second, for a new limiter */
  of(key: string, rate: number): RateLimiter {
    let limiter = this.#limiters.get(key)
    if (limiter === undefined) {
      if (this.#limiters.size >= this.#sweepAt) this.#sweep()
      limiter = new RateLimiter(this.#clock, this.#capacity, rate)
      this.#limiters.set(key, limiter)
    }
    return limiter
  }

  /** A limiter is idle after some seconds, so the map cannot grow beyond the clients of these. */
  #sweep(): void {
    for (const [key, limiter] of this.#limiters) if (limiter.isIdle()) this.#limiters.delete(key)
    this.#sweepAt = Math.max(SWEEP_AT, 2 * this.#limiters.size)
  }

  close(): void {
    for (const limiter of this.#limiters.values()) limiter.close()
  }
}
