/** How far a command is: a bar on a terminal; a plain line now and then where the output goes elsewhere. */
import type { Writable } from 'node:stream'
import { Presets, SingleBar } from 'cli-progress'
import { oneLine } from '../core/errors.ts'

const WIDTH = 30
/** What is shorter needs no line in a file or a mail. */
const LINE_EVERY_MS = 30_000

export interface ProgressBar {
  /** @param percent of 100; null: how much there is in all is not known @param text what is at work */
  show(percent: number | null, text: string): void
  /** Takes the bar away. Idempotent. */
  end(): void
}

/** Where it is shown: not the standard output, which may go to a file. */
type Screen = Writable & { readonly isTTY?: boolean; readonly columns?: number }

/** @param now the time, in ms */
export function progressBar(screen: Screen, now: () => number = () => performance.now()): ProgressBar {
  return screen.isTTY === true ? new Bar(screen) : new Lines(screen, now)
}

/** The terminal stays as it is: a command that is broken off leaves nothing behind in it. */
class Bar implements ProgressBar {
  readonly #screen: Screen
  #bar: SingleBar | undefined

  constructor(screen: Screen) {
    this.#screen = screen
  }

  show(percent: number | null, text: string): void {
    const value = Math.floor(bounded(percent ?? 0))
    const payload = { text: oneLine(text) }
    if (this.#bar !== undefined) {
      this.#bar.update(value, payload)
      return
    }
    const format = percent === null ? '{text}' : '[{bar}] {percentage} % {text}'
    const look = { format, barsize: WIDTH, barCompleteChar: '#', barIncompleteChar: '-' }
    // The library cuts lines to the terminal's width where it leaves wrapping as it is.
    const ways = { clearOnComplete: true, linewrap: true, stream: this.#screen }
    this.#bar = new SingleBar({ ...look, ...ways }, Presets.legacy)
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
    if (now - this.#lastAt < LINE_EVERY_MS) return
    this.#lastAt = now
    const part = percent === null ? '' : `${Math.floor(bounded(percent))} % `
    this.#screen.write(`${part}${oneLine(text)}\n`)
  }

  end(): void {
    // There is no line to take away.
  }
}

function bounded(percent: number): number {
  return Math.min(Math.max(percent, 0), 100)
}
