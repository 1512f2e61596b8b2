/** A line for each tenant and each address that asks for something. */
import type { Clock } from '../changes/clock.ts'
import { networkOf } from '../core/network.ts'
import { Line, type Room } from './line.ts'

/** Requests that wait in all lines together: some 50 MB with their connections. */
const MAX_WAITING = 4096
/** Lines above which those that nobody stands in are looked for. */
const MANY = 10_000

export class Lines {
  readonly #clock: Clock
  readonly #room: Room = { waiting: 0, max: MAX_WAITING }
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
