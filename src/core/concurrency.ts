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

interface Waiting {
  begin(): void
  refuse(error: CouchError): void
}

/**
 * Runs so many pieces of costly work at once, and lets so many wait. Who asks for much waits behind himself alone:
 * askers take turns, and when the queue is full the asker with the most in it loses its newest.
 */
export class FairTurns {
  /** By asker, in the order of their turns; none is empty. */
  readonly #queues = new Map<string, Waiting[]>()
  readonly #atOnce: number
  readonly #mayWait: number
  #busy = 0
  #waiting = 0

  /** @param mayWait pieces of all askers together */
  constructor(atOnce: number, mayWait: number) {
    this.#atOnce = atOnce
    this.#mayWait = mayWait
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting
  }

  /**
   * Runs the work when its turn has come.
   * @param asker on whose account it goes
   * @throws unavailable when too much waits already; as `work`
   */
  async take<T>(asker: string, work: () => Promise<T>): Promise<T> {
    if (this.#busy < this.#atOnce) this.#busy += 1
    else await this.#wait(asker)
    try {
      return await work()
    } finally {
      this.#handOn()
    }
  }

  #wait(asker: string): Promise<void> {
    if (this.#waiting >= this.#mayWait) this.#makeRoom(asker)
    return new Promise((begin, refuse) => {
      const queue = this.#queues.get(asker)
      if (queue === undefined) this.#queues.set(asker, [{ begin, refuse }])
      else queue.push({ begin, refuse })
      this.#waiting += 1
    })
  }

  #makeRoom(asker: string): void {
    const own = this.#queues.get(asker)?.length ?? 0
    const [most, queue] = [...this.#queues].reduce((a, b) => (b[1].length > a[1].length ? b : a), ['', []])
    if (queue.length <= own + 1) throw new CouchError('unavailable')
    this.#remove(most, queue, queue.pop()).refuse(new CouchError('unavailable'))
  }

  /** The turn is handed on, so that nobody who comes in between can take it. */
  #handOn(): void {
    const [first] = this.#queues
    if (first === undefined) {
      this.#busy -= 1
      return
    }
    const [asker, queue] = first
    const next = this.#remove(asker, queue, queue.shift())
    this.#queues.delete(asker)
    if (queue.length > 0) this.#queues.set(asker, queue)
    next.begin()
  }

  #remove(asker: string, queue: readonly Waiting[], taken: Waiting | undefined): Waiting {
    if (taken === undefined) throw new Error('an empty queue was kept')
    this.#waiting -= 1
    if (queue.length === 0) this.#queues.delete(asker)
    return taken
  }
}

/** Work that must not overlap: of the same key one piece after the other, in the order of arrival. */
export class Chains {
  readonly #last = new Map<string, Promise<unknown>>()

  /** @returns what the work comes to; a piece that fails holds up none behind it */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const done = before.then(work, work)
    this.#last.set(key, done)
    try {
      return await done
    } finally {
      if (this.#last.get(key) === done) this.#last.delete(key)
    }
  }

  /** Resolves when all that was begun so far has ended, well or not. */
  async ended(key: string): Promise<void> {
    await this.#last.get(key)?.catch(() => undefined)
  }
}

/** What is done to one name at a time. */
export class OneAtATime {
  /** The last piece of work by name, of names with work under way or waiting. */
  readonly #last = new Map<string, Promise<void>>()

  /** Whether work for a name is under way, or waits. */
  isBusy(name: string): boolean {
    return this.#last.has(name)
  }

  /** Does work when all that came before it for this name is over, whatever came of that. @throws what `work` throws */
  async run(name: string, work: () => Promise<void>): Promise<void> {
    const before = this.#last.get(name) ?? Promise.resolve()
    const done = before.then(work, work)
    this.#last.set(name, done)
    try {
      await done
    } finally {
      if (this.#last.get(name) === done) this.#last.delete(name)
    }
  }
}
