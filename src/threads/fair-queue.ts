/**
 * Who is served next on a database thread: each database has a queue, and the queues take turns, so that a flood
 * of requests to one database delays another's by one piece of work only. In a queue what waits goes before what can
 * wait, such as a page of a scan, but for one of these now and then.
 */
import { Yielder } from '../core/yielder.ts'

/** How many pieces of a database go before one that can wait. */
const MOST_BEFORE = 8

interface Queue<Work> {
  readonly first: Work[]
  /** What can wait. */
  readonly rest: Work[]
  /** How many went before it since one of it was served. */
  passed: number
}

interface Kinds<Work> {
  /** Whether a piece may take so long that what was done before must not wait for it. */
  isLong(work: Work): boolean
  /** Whether a piece lets others of its database go first, though they came later. */
  canWait(work: Work): boolean
}

export class FairQueue<Work> {
  readonly #begin: (work: Work) => void
  readonly #kinds: Kinds<Work>
  /** Insertion order is the order of service: a database served goes to the end. */
  readonly #queues = new Map<string, Queue<Work>>()
  readonly #yielder = new Yielder()
  /** Whether this turn of the event loop has begun a piece, and whether it begins no more. */
  #hasBegun = false
  #isOver = false

  /** @param begin starts a piece of work; it must not throw */
  constructor(
    begin: (work: Work) => void,
    kinds: Kinds<Work> = { isLong: () => false, canWait: () => false },
  ) {
    this.#begin = begin
    this.#kinds = kinds
  }

  /** Takes a piece of work, which waits for its database's turn. */
  add(database: string, work: Work): void {
    let queue = this.#queues.get(database)
    if (queue === undefined) {
      queue = { first: [], rest: [], passed: 0 }
      this.#queues.set(database, queue)
    }
    ;(this.#kinds.canWait(work) ? queue.rest : queue.first).push(work)
  }

  /** How many pieces of work wait. */
  get size(): number {
    let size = 0
    for (const queue of this.#queues.values()) size += lengthOf(queue)
    return size
  }

  /** Takes away all that waits for a database. */
  take(database: string): Work[] {
    const waiting = this.#queues.get(database)
    this.#queues.delete(database)
    return waiting === undefined ? [] : [...waiting.first, ...waiting.rest]
  }

  /**
   * Begins what waits, a piece a database in turn, as long as one turn of the event loop may last: a long piece ends
   * it, and what else waits begins when it has gone as far as it can. That counts from call to call: in one turn Node
   * hands on up to 1,000 messages of a port, and among them those that come meanwhile.
   */
  run(): void {
    if (this.#isOver || this.#queues.size === 0) return
    this.#beginTurn()
    for (let work = this.#next(); work !== undefined; work = this.#next()) {
      this.#begin(work)
      if (!this.#yielder.isDue && !this.#kinds.isLong(work)) continue
      this.#isOver = true
      return
    }
  }

  #beginTurn(): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#yielder.restart()
    setImmediate(() => {
      this.#hasBegun = false
      this.#isOver = false
      this.run()
    })
  }

  /** Begins all that waits, however long it takes. */
  runAll(): void {
    for (let work = this.#next(); work !== undefined; work = this.#next()) this.#begin(work)
  }

  #next(): Work | undefined {
    for (const [database, queue] of this.#queues) {
      this.#queues.delete(database)
      const work = takeNext(queue)
      if (lengthOf(queue) > 0) this.#queues.set(database, queue)
      return work
    }
    return undefined
  }
}

function lengthOf({ first, rest }: Queue<unknown>): number {
  return first.length + rest.length
}

function takeNext<Work>(queue: Queue<Work>): Work | undefined {
  const { first, rest } = queue
  const isPatient = rest.length === 0 || queue.passed < MOST_BEFORE
  if (first.length > 0 && isPatient) {
    queue.passed += rest.length === 0 ? 0 : 1
    return first.shift()
  }
  queue.passed = 0
  return rest.shift()
}
