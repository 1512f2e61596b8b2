import type { Clock } from './clock.ts'

/**
 * Beats after each stretch of silence. One timer, which is not set anew by what is written: when it runs out, it
 * runs on for as long as the last writing made the silence shorter.
 */
export class Heart {
  readonly #clock: Clock
  readonly #interval: number
  readonly #beat: () => void
  #heard: number
  #cancel: () => void

  /** @param interval milliseconds of silence; Infinity for a heart that never beats */
  constructor(clock: Clock, interval: number, beat: () => void) {
    this.#clock = clock
    this.#interval = interval
    this.#beat = beat
    this.#heard = clock.now()
    this.#cancel = this.#arm(interval)
  }

  /** Something was written. */
  heard(): void {
    this.#heard = this.#clock.now()
  }

  stop(): void {
    this.#cancel()
  }

  #arm(ms: number): () => void {
    return ms === Infinity ? () => {} : this.#clock.after(ms, this.#tick)
  }

  readonly #tick = (): void => {
    const left = this.#interval - (this.#clock.now() - this.#heard)
    if (left > 0) {
      this.#cancel = this.#arm(left)
      return
    }
    this.#cancel = this.#arm(this.#interval)
    this.#beat()
  }
}
