/**
 * The requests of one tenant, or of one address that nobody has logged in from: how many a second, and how many at
 * once. What is more waits here, outside of everything that tenants share, and is refused only when it would wait for
 * long. Reads and writes without which a client gives up for good (clients.md R6, R7) go first, and are never refused.
 */
import type { Clock } from '../changes/source.ts'
import { networkOf } from '../core/network.ts'

/** Requests that are served at once; clients of one device make up to 30, and most are answered in milliseconds. */
const AT_ONCE = 16
/** Beside them, for those that go first: slow uploads must not hold up a checkpoint. */
const AT_ONCE_FIRST = 4
/** What may be asked at once after a rest: so many seconds' worth. */
const BURST_SECONDS = 5
const MAX_WAIT_MS = 20_000
/** No limit, as far as arithmetic is concerned. */
const MAX_RATE = 1_000_000
/** What waits holds its connection and a few kilobytes. */
const MAX_WAITING = 256
/** Far more than clients ever have: whoever has sent so many is none. */
const MAX_WAITING_FIRST = 1024

export interface Waiter {
  /** Goes before others, and is never refused for how long it would wait. */
  readonly isFirst: boolean
  /** It may go on, and leaves the line when it has ended. */
  go(): void
  /** It may not. @param seconds after which it is worth another try; null: too many wait that are never refused */
  refuse(seconds: number | null): void
}

/** How many wait in all lines together, and may. */
interface Room {
  waiting: number
  readonly max: number
}

interface Patient {
  readonly waiter: Waiter
  readonly until: number
}

export class Line {
  readonly #clock: Clock
  readonly #room: Room
  /** Requests a second. */
  #rate: number
  #tokens: number
  #filledAt: number
  #atWork = 0
  readonly #first: Waiter[] = []
  readonly #others: Patient[] = []
  #cancelTimer: (() => void) | null = null

  constructor(clock: Clock, room: Room, rate: number) {
    this.#clock = clock
    this.#room = room
    this.#rate = Math.min(rate, MAX_RATE)
    this.#tokens = burst(this.#rate)
    this.#filledAt = clock.now()
  }

  /** Whether it may be forgotten: nothing is going on, and nothing is remembered against anybody. */
  isFresh(): boolean {
    this.#fill()
    return this.#atWork === 0 && this.#waiting === 0 && this.#tokens >= burst(this.#rate)
  }

  get #waiting(): number {
    return this.#first.length + this.#others.length
  }

  /** Has a request go at once, later, or never. @param rate requests a second, as the quota is now */
  enter(waiter: Waiter, rate: number): void {
    this.#rate = Math.min(rate, MAX_RATE)
    this.#fill()
    if (this.#waiting === 0 && this.#mayGo(waiter.isFirst)) {
      this.#go(waiter)
      return
    }
    const refusal = this.#refusal(waiter.isFirst)
    if (refusal === undefined) this.#wait(waiter)
    else waiter.refuse(refusal)
  }

  #wait(waiter: Waiter): void {
    this.#room.waiting += 1
    if (waiter.isFirst) this.#first.push(waiter)
    else this.#others.push({ waiter, until: this.#clock.now() + MAX_WAIT_MS })
    this.#pump()
  }

  #refusal(isFirst: boolean): number | null | undefined {
    const { waiting, max } = this.#room
    if (isFirst) return this.#first.length >= MAX_WAITING_FIRST ? null : undefined
    const seconds = (this.#waiting + 1 - this.#tokens) / this.#rate
    const isTooLong = seconds * 1000 > MAX_WAIT_MS
    if (!isTooLong && this.#others.length < MAX_WAITING && waiting < max) return undefined
    return Math.max(1, Math.ceil(seconds))
  }

  /** The client of a request that waits has gone. */
  cancel(waiter: Waiter): void {
    if (!removed(this.#first, (each) => each === waiter)) {
      if (!removed(this.#others, (each) => each.waiter === waiter)) return
    }
    this.#room.waiting -= 1
  }

  /** A request that went on has ended. */
  leave(): void {
    this.#atWork -= 1
    if (this.#waiting > 0) this.#pump()
  }

  #fill(): void {
    const now = this.#clock.now()
    this.#tokens = Math.min(burst(this.#rate), this.#tokens + ((now - this.#filledAt) * this.#rate) / 1000)
    this.#filledAt = now
  }

  #mayGo(isFirst: boolean): boolean {
    return this.#tokens >= 1 && this.#atWork < AT_ONCE + (isFirst ? AT_ONCE_FIRST : 0)
  }

  #go(waiter: Waiter): void {
    this.#tokens -= 1
    this.#atWork += 1
    waiter.go()
  }

  #pump(): void {
    this.#fill()
    while (this.#first.length > 0 && this.#mayGo(true)) this.#goOn(this.#first.shift() as Waiter)
    while (this.#others.length > 0 && this.#first.length === 0 && this.#mayGo(false)) {
      this.#goOn((this.#others.shift() as Patient).waiter)
    }
    this.#giveUp()
    this.#setTimer()
  }

  #goOn(waiter: Waiter): void {
    this.#room.waiting -= 1
    this.#go(waiter)
  }

  /** Patient went first for too long. */
  #giveUp(): void {
    const now = this.#clock.now()
    for (
      let oldest = this.#others[0];
      oldest !== undefined && oldest.until <= now;
      oldest = this.#others[0]
    ) {
      this.#others.shift()
      this.#room.waiting -= 1
      oldest.waiter.refuse(Math.max(1, Math.ceil(this.#waiting / this.#rate)))
    }
  }

  /** To the next token, or to when the one that waits longest has waited long enough. */
  #setTimer(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    if (this.#waiting === 0) return
    const token = this.#tokens >= 1 ? Infinity : ((1 - this.#tokens) / this.#rate) * 1000
    const end = (this.#others[0]?.until ?? Infinity) - this.#clock.now()
    const ms = Math.max(1, Math.ceil(Math.min(token, end)))
    // Without one, what is at work is waited for: leave() goes on.
    if (ms !== Infinity) this.#cancelTimer = this.#clock.after(ms, () => this.#pump())
  }

  /** The server stops. */
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

// A line for each tenant and each address that asks for something.

/** Requests that wait in all lines together: some 50 MB with their connections. */
const MAX_WAITING_TOGETHER = 4096
/** Lines above which those that nobody stands in are looked for. */
const MANY = 10_000

export class Lines {
  readonly #clock: Clock
  readonly #room: Room = { waiting: 0, max: MAX_WAITING_TOGETHER }
  readonly #lines = new Map<string, Line>()
  #sweepAt = MANY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#lines.size
  }

  /** @param rate requests a second, for a line that is new */
  of(key: string, rate: number): Line {
    let line = this.#lines.get(key)
    if (line === undefined) {
      if (this.#lines.size >= this.#sweepAt) this.#sweep()
      line = new Line(this.#clock, this.#room, rate)
      this.#lines.set(key, line)
    }
    return line
  }

  /** What is remembered is for seconds; so the map cannot grow beyond what comes in within these. */
  #sweep(): void {
    for (const [key, line] of this.#lines) if (line.isFresh()) this.#lines.delete(key)
    this.#sweepAt = Math.max(MANY, 2 * this.#lines.size)
  }

  close(): void {
    for (const line of this.#lines.values()) line.close()
  }
}

/** Whose line an anonymous request stands in: the address's, or, of IPv6, its network's. */
export function addressKey(address: string): string {
  return `@${networkOf(address)}`
}
