/** A clock that a test advances. */
import { setImmediate as turn } from 'node:timers/promises'
import type { WallClock } from '../../src/core/schedule.ts'

export class FakeWallClock implements WallClock {
  /** In ms since 1970. */
  time: number
  readonly #calls = new Set<{ readonly at: number; readonly call: () => void }>()

  constructor(time: number) {
    this.time = time
  }

  now(): number {
    return this.time
  }

  after(ms: number, call: () => void): () => void {
    const entry = { at: this.time + ms, call }
    this.#calls.add(entry)
    return () => this.#calls.delete(entry)
  }

  get waiting(): number {
    return this.#calls.size
  }

  /**
   * Makes calls that wait, and gives what follows them its turns of the loop.
   * @param before those whose time has come by then, in ms since 1970
   */
  async call(before: number, turns: number): Promise<void> {
    for (const entry of [...this.#calls]) {
      if (entry.at > before) continue
      this.#calls.delete(entry)
      entry.call()
    }
    for (let n = 0; n < turns; n++) await turn()
  }
}
