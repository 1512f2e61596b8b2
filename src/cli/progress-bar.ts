/** The progress of a command: a bar on a terminal, otherwise a plain line every 30 s. */
import type { Writable } from 'node:stream'
import { Presets, SingleBar } from 'cli-progress'
import { oneLine } from '../core/errors.ts'

const WIDTH = 30
/** Shorter commands print no lines, for example into a mail. */
const LINE_INTERVAL_MS = 30_000

export interface ProgressBar {
  /** @param percent 0 to 100; null: the total is unknown @param text the current step */
  show(percent: number | null, text: string): void
  /** Removes the bar. Idempotent. */
  end(): void
}

/** Standard error, because standard output may go to a file. */
type Screen = Writable & { readonly isTTY?: boolean; readonly columns?: number }

/** @param now the time, in ms */
export function progressBar(screen: Screen, now: () => number = () => performance.now()): ProgressBar {
  return screen.isTTY === true ? new Bar(screen) : new Lines(screen, now)
}

/** Does not change the terminal's modes, so an interrupted command leaves the terminal intact. */
class Bar implements ProgressBar {
  readonly #screen: Screen
  #bar: SingleBar | undefined

  constructor(screen: Screen) {
    this.#screen = screen
  }

  show(percent: number | null, text: string): void {
    const value = Math.floor(clamped(percent ?? 0))
    const payload = { text: oneLine(text) }
    if (this.#bar !== undefined) {
      this.#bar.update(value, payload)
      return
    }
    const format = percent === null ? '{text}' : '[{bar}] {percentage} % {text}'
    const style = { format, barsize: WIDTH, barCompleteChar: '#', barIncompleteChar: '-' }
    // With `linewrap`, the library does not change the terminal's wrapping, and truncates lines to its width.
    const behaviour = { clearOnComplete: true, linewrap: true, stream: this.#screen }
    this.#bar = new SingleBar({ ...style, ...behaviour }, Presets.legacy)
    this.#bar.start(100, value, payload)
  }

  end(): void {
    this.#bar?.stop()
    this.#bar = undefined
  }
}

class Lines implements ProgressBar {
  readonly #screen: Screen
  readonly #now: () => number
  #lastAt: number

  constructor(screen: Screen, now: () => number) {
    this.#screen = screen
    this.#now = now
    this.#lastAt = now()
  }

  show(percent: number | null, text: string): void {
    const now = this.#now()
    if (now - this.#lastAt < LINE_INTERVAL_MS) return
    this.#lastAt = now
    const part = percent === null ? '' : `${Math.floor(clamped(percent))} % `
    this.#screen.write(`${part}${oneLine(text)}\n`)
  }

  end(): void {
    // Printed lines stay.
  }
}

function clamped(percent: number): number {
  return Math.min(Math.max(percent, 0), 100)
}
