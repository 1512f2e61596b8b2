import { CouchError } from './errors.ts'

/** Runs so many pieces of work at once, lets so many wait in order, and refuses the rest. */
export class WorkQueue {
  readonly #queue: (() => void)[] = []
  readonly #atOnce: number
  readonly #mayWait: number
  #busy = 0

  constructor(atOnce: number, mayWait: number) {
    this.#atOnce = atOnce
    this.#mayWait = mayWait
  }

  /**
   * @returns what the work returns, once it has had its turn
   * @throws unavailable when too many wait already; and as the work
   */
  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.#busy < this.#atOnce) this.#busy += 1
    else await this.#wait()
    try {
      return await work()
    } finally {
      // The turn is handed on, so that nobody who comes in between can take it.
      const next = this.#queue.shift()
      if (next) next()
      else this.#busy -= 1
    }
  }

  #wait(): Promise<void> {
    if (this.#queue.length >= this.#mayWait) throw new CouchError('unavailable')
    return new Promise((resolve) => this.#queue.push(resolve))
  }
}
