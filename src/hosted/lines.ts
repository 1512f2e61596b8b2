/** A line for each tenant and each address that asks for something. */
import type { Clock } from '../changes/clock.ts'
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

/**
 * Whose line an anonymous request stands in. Of IPv6 a client has at least the last 64 bits to choose from, so that
 * only the first count (RFC 6177).
 */
export function addressKey(address: string): string {
  if (!address.includes(':')) return `@${address}`
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)
  if (mapped !== null) return `@${mapped[1]}`
  return `@${prefixOf(address.toLowerCase())}`
}

function prefixOf(address: string): string {
  const [head = '', tail] = address.split('::', 2)
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length)
  const groups = [...left, ...new Array<string>(zeros).fill('0'), ...right]
  return groups
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':')
}
