/**
 * Who is served next on a database thread: each database has a queue, and the queues take turns, so that a flood
 * of requests to one database delays another's by one piece of work only.
 */
import { Breath } from '../core/breath.ts'

export class Turns {
  /** Insertion order is the order of service: a database served goes to the end. */
  readonly #queues = new Map<string, (() => void)[]>()
  #scheduled = false

  /** Takes a piece of work; it is begun in this turn of the event loop or a later one. */
  add(database: string, work: () => void): void {
    const queue = this.#queues.get(database)
    if (queue === undefined) this.#queues.set(database, [work])
    else queue.push(work)
  }

  /** Takes away all that waits for a database. */
  take(database: string): (() => void)[] {
    const waiting = this.#queues.get(database) ?? []
    this.#queues.delete(database)
    return waiting
  }

  /** Begins what waits, a piece a database in turn, as long as one turn of the event loop may last. */
  run(): void {
    const breath = new Breath()
    while (this.#queues.size > 0) {
      for (const [database, queue] of this.#queues) {
        const work = queue.shift()
        if (queue.length === 0) this.#queues.delete(database)
        work?.()
        if (breath.isDue) {
          this.#later()
          return
        }
      }
    }
  }

  #later(): void {
    if (this.#scheduled || this.#queues.size === 0) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.run()
    })
  }
}
