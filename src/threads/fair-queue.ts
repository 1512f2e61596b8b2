/**
 * The order of work on a database thread. Each database has a queue, and the queues take turns, so that a flood of
 * requests to one database delays another by one piece of work. Within a queue, work that can wait, such as a page of a
 * scan, comes last, except for one piece now and then.
 */
import { Yielder } from '../core/event-loop.ts'

/** After this many urgent pieces of a database, one piece that can wait is started. */
const MAX_URGENT_IN_A_ROW = 8

interface Queue<Work> {
  readonly urgent: Work[]
  /** Work that can wait. */
  readonly patient: Work[]
  /** How many urgent pieces were started since the last patient one. */
  urgentInARow: number
}

interface Kinds<Work> {
  /** Whether a piece may take so long that finished answers must not wait for it. */
  isLong(work: Work): boolean
  /** Whether later pieces of the same database go first. */
  canWait(work: Work): boolean
}

export class FairQueue<Work> {
  readonly #begin: (work: Work) => void
  readonly #kinds: Kinds<Work>
  /** In the order of service: a database that was served goes to the end. */
  readonly #queues = new Map<string, Queue<Work>>()
  readonly #yielder = new Yielder()
  /** Whether this turn of the event loop has started a piece, and whether it starts no more. */
  #hasBegun = false
  #isTurnOver = false

  /** @param begin starts a piece of work; must not throw */
  constructor(
    begin: (work: Work) => void,
    kinds: Kinds<Work> = { isLong: () => false, canWait: () => false },
  ) {
    this.#begin = begin
    this.#kinds = kinds
  }

  /** Adds a piece of work to the queue of a database. */
  add(database: string, work: Work): void {
    let queue = this.#queues.get(database)
    if (queue === undefined) {
      queue = { urgent: [], patient: [], urgentInARow: 0 }
      this.#queues.set(database, queue)
    }
    ;(this.#kinds.canWait(work) ? queue.patient : queue.urgent).push(work)
  }

  /** How many pieces of work wait. */
  get size(): number {
    let size = 0
    for (const queue of this.#queues.values()) size += lengthOf(queue)
    return size
  }

  /** Removes and returns the queue of a database. */
  take(database: string): Work[] {
    const waiting = this.#queues.get(database)
    this.#queues.delete(database)
    return waiting === undefined ? [] : [...waiting.urgent, ...waiting.patient]
  }

  /**
   * Starts waiting pieces, one per database in turn, for as long as one turn of the event loop may last; a long piece
   * ends it. The time counts across calls: in one turn Node delivers up to 1,000 messages of a port, including those
   * that arrive in the meantime.
   */
  run(): void {
    if (this.#isTurnOver || this.#queues.size === 0) return
    this.#beginTurn()
    for (let work = this.#next(); work !== undefined; work = this.#next()) {
      this.#begin(work)
      if (!this.#yielder.isDue && !this.#kinds.isLong(work)) continue
      this.#isTurnOver = true
      return
    }
  }

  #beginTurn(): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#yielder.restart()
    setImmediate(() => {
      this.#hasBegun = false
      this.#isTurnOver = false
      this.run()
    })
  }

  /** Starts everything that waits, however long it takes. */
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

function lengthOf({ urgent, patient }: Queue<unknown>): number {
  return urgent.length + patient.length
}

function takeNext<Work>(queue: Queue<Work>): Work | undefined {
  const { urgent, patient } = queue
  const isUrgentFirst = patient.length === 0 || queue.urgentInARow < MAX_URGENT_IN_A_ROW
  if (urgent.length > 0 && isUrgentFirst) {
    queue.urgentInARow += patient.length === 0 ? 0 : 1
    return urgent.shift()
  }
  queue.urgentInARow = 0
  return patient.shift()
}
