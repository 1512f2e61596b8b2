/**
 * The newest lines of the log, in memory, for `GET /_settee/log`. They are the lines that the log itself gets, so they hold
 * no more than it does. A line is added in the turn that logs it, and costs two assignments; all other work is the
 * reader's. Readers that fall behind miss lines, since nothing is queued for them.
 */
import { randomBytes } from 'node:crypto'
import { isHeldLong } from '../core/event-loop.ts'

/** Bounds of what is held, in lines and in characters. */
const MAX_LINES = 5000
const MAX_CHARACTERS = 4_194_304
/** A longer line, such as the stack of an error in an error, is replaced by one that gives its length. */
const MAX_LINE = 65_536
/** Characters of the lines of one page. */
const MAX_PAGE = 131_072

/** The levels of lines, least severe first. */
const LEVELS = ['debug', 'info', 'notice', 'warn', 'error', 'fatal'] as const
type Level = (typeof LEVELS)[number]

/** @param text a level of a line, or `warning` as CouchDB says @returns null for any other text */
export function readLevel(text: string): Level | null {
  const name = text.toLowerCase()
  return LEVELS.find((level) => level === (name === 'warning' ? 'warn' : name)) ?? null
}

/** Which lines a reader wants. */
export interface LineFilter {
  /** The least severe level. */
  readonly level: Level
  /** What a line must contain, in any case; empty: anything. */
  readonly text: string
}

/** A line that fits. */
export interface FoundLine {
  readonly number: number
  /** JSON. */
  readonly text: string
}

/** Lines in their order. */
export interface LinePage {
  readonly lines: readonly FoundLine[]
  /** The number of the line after the last one that was looked at. */
  readonly next: number
  /** Lines that were no longer there to be looked at. */
  readonly missed: number
}

/** A text of 8 hexadecimal digits that no other process has: numbers begin again with each start. */
type Epoch = string

export class LogTail {
  readonly #epoch: Epoch = randomBytes(4).toString('hex')
  /** Line n is at n modulo {@link MAX_LINES}. */
  readonly #lines: string[] = []
  readonly #listeners = new Set<() => void>()
  /** The numbers of the oldest line that is held, and of the next one; the first line has 1. */
  #first = 1
  #next = 1
  #characters = 0

  /** @param line one line of JSON, with or without its line end */
  add(line: string): void {
    const kept = line.length > MAX_LINE ? leftOut(line) : line
    const slot = this.#next % MAX_LINES
    if (this.#next - this.#first === MAX_LINES) this.#forget()
    this.#lines[slot] = kept
    this.#next += 1
    this.#characters += kept.length
    while (this.#characters > MAX_CHARACTERS) this.#forget()
    if (this.#listeners.size > 0) for (const listener of this.#listeners) listener()
  }

  #forget(): void {
    const slot = this.#first % MAX_LINES
    this.#characters -= (this.#lines[slot] as string).length
    this.#lines[slot] = ''
    this.#first += 1
  }

  /** The number of the next line. */
  get next(): number {
    return this.#next
  }

  /** @param number of a line, or of the line before the first one @returns what a client passes as `since` */
  token(number: number): string {
    return `${number}-${this.#epoch}`
  }

  /**
   * @param token from {@link token}
   * @returns the number of the line after it; 1, the oldest, for a token of an earlier start; null if it is no token
   */
  after(token: string): number | null {
    const [, number = '', epoch] = /^(\d{1,15})-([0-9a-f]{8})$/.exec(token) ?? []
    if (epoch === undefined) return null
    return epoch === this.#epoch ? Math.min(Number(number) + 1, this.#next) : 1
  }

  /**
   * Looks at lines from a number on, for as long as one piece of work may hold the thread.
   * @param limit lines at most
   */
  page(from: number, filter: LineFilter, limit: number): LinePage {
    const began = performance.now()
    const fits = predicate(filter)
    const start = Math.max(from, this.#first)
    const lines: FoundLine[] = []
    let characters = 0
    let number = start
    for (; number < this.#next && lines.length < limit && characters < MAX_PAGE; number++) {
      const text = this.#lines[number % MAX_LINES] as string
      if (fits(text)) {
        lines.push({ number, text: text.trimEnd() })
        characters += text.length
      }
      if (number % 64 === 0 && isHeldLong(began)) {
        number += 1
        break
      }
    }
    return { lines, next: number, missed: start - from }
  }

  /**
   * Finds where the newest fitting lines begin, for as long as one piece of work may hold the thread.
   * @param before the number below which to look
   * @param limit lines at most
   * @returns the number of the oldest line that was looked at, how many of them fit, and whether there are no older ones
   */
  newest(
    before: number,
    filter: LineFilter,
    limit: number,
  ): { readonly from: number; readonly found: number; readonly isAll: boolean } {
    const began = performance.now()
    const fits = predicate(filter)
    let found = 0
    let from = Math.min(before, this.#next)
    while (from > this.#first && found < limit) {
      from -= 1
      if (fits(this.#lines[from % MAX_LINES] as string)) found += 1
      if (from % 64 === 0 && isHeldLong(began)) break
    }
    return { from, found, isAll: from <= this.#first }
  }

  /**
   * @param listener called in the turn of each new line; it must do next to nothing, and not log
   * @returns ends the calls
   */
  onLine(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}

const LEVEL = /^\{"level":"(\w+)"/

function predicate({ level, text }: LineFilter): (line: string) => boolean {
  const least = LEVELS.indexOf(level)
  const wanted = text.toLowerCase()
  return (line) => {
    const known = LEVELS.indexOf(LEVEL.exec(line)?.[1] as Level)
    return (known === -1 || known >= least) && (wanted === '' || line.toLowerCase().includes(wanted))
  }
}

function leftOut(line: string): string {
  const [, level = 'info'] = LEVEL.exec(line) ?? []
  const [, time = ''] = /"time":"([^"]{1,40})"/.exec(line.slice(0, 200)) ?? []
  const msg = `a line of ${line.length} characters, which is only in the log itself`
  return JSON.stringify({ level, time, msg })
}
