/**
 * Who is served next on a database thread: each database has a queue, and the queues take turns, so that a flood
 * of requests to one database delays another's by one piece of work only.
 */
import { Breath } from '../core/breath.ts'

export class Turns<Work> {
  readonly #begin: (work: Work) => void
  /** Insertion order is the order of service: a database served goes to the end. */
  readonly #queues = new Map<string, Work[]>()
  #isScheduled = false

  /** @param begin starts a piece of work; it must not throw */
  constructor(begin: (work: Work) => void) {
    this.#begin = begin
  }

  /** Takes a piece of work, which waits for its database's turn. */
  add(database: string, work: Work): void {
    const queue = this.#queues.get(database)
    if (queue === undefined) this.#queues.set(database, [work])
    else queue.push(work)
  }

  /** Takes away all that waits for a database. */
  take(database: string): Work[] {
    const waiting = this.#queues.get(database) ?? []
    this.#queues.delete(database)
    return waiting
  }

  /** Begins what waits, a piece a database in turn, as long as one turn of the event loop may last. */
  run(): void {
    const breath = new Breath()
    while (this.#serveNext()) {
      if (!breath.isDue) continue
      this.#later()
      return
    }
  }

  /** Begins all that waits, however long it takes. */
  runAll(): void {
    while (this.#serveNext());
  }

  #serveNext(): boolean {
    for (const [database, queue] of this.#queues) {
      this.#queues.delete(database)
      const work = queue.shift()
      if (queue.length > 0) this.#queues.set(database, queue)
      if (work !== undefined) this.#begin(work)
      return true
    }
    return false
  }

  #later(): void {
    if (this.#isScheduled || this.#queues.size === 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.run()
    })
  }
}
