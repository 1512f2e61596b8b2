/**
 * Who is served next on a database thread: each database has a queue, and the queues take turns, so that a flood
 * of requests to one database delays another's by one piece of work only.
 */
import { Breath } from '../core/breath.ts'

export class Turns<Work> {
  readonly #begin: (work: Work) => void
  readonly #isLong: (work: Work) => boolean
  /** Insertion order is the order of service: a database served goes to the end. */
  readonly #queues = new Map<string, Work[]>()
  #isScheduled = false

  /**
   * @param begin starts a piece of work; it must not throw
   * @param isLong whether a piece may take so long that what was done before must not wait for it
   */
  constructor(begin: (work: Work) => void, isLong: (work: Work) => boolean = () => false) {
    this.#begin = begin
    this.#isLong = isLong
  }

  /** Takes a piece of work, which waits for its database's turn. */
  add(database: string, work: Work): void {
    const queue = this.#queues.get(database)
    if (queue === undefined) this.#queues.set(database, [work])
    else queue.push(work)
  }

  /** How many pieces of work wait. */
  get size(): number {
    let size = 0
    for (const queue of this.#queues.values()) size += queue.length
    return size
  }

  /** Takes away all that waits for a database. */
  take(database: string): Work[] {
    const waiting = this.#queues.get(database) ?? []
    this.#queues.delete(database)
    return waiting
  }

  /**
   * Begins what waits, a piece a database in turn, as long as one turn of the event loop may last: a long piece ends
   * it, and what else waits begins when it has gone as far as it can.
   */
  run(): void {
    if (this.#isScheduled) return
    const breath = new Breath()
    for (let work = this.#next(); work !== undefined; work = this.#next()) {
      this.#begin(work)
      if (!breath.isDue && !this.#isLong(work)) continue
      this.#later()
      return
    }
  }

  /** Begins all that waits, however long it takes. */
  runAll(): void {
    for (let work = this.#next(); work !== undefined; work = this.#next()) this.#begin(work)
  }

  #next(): Work | undefined {
    for (const [database, queue] of this.#queues) {
      this.#queues.delete(database)
      const work = queue.shift()
      if (queue.length > 0) this.#queues.set(database, queue)
      return work
    }
    return undefined
  }

  #later(): void {
    if (this.#queues.size === 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.run()
    })
  }
}
