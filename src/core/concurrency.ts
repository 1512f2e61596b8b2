/** How much work runs at once, and in which order the rest waits. See docs/decisions/0040. */
import { CouchError } from './errors.ts'

/** Runs one task per key at a time, in order of arrival; tasks of different keys overlap. */
export class KeyedMutex {
  /** The last task of each key that has tasks. */
  readonly #last = new Map<string, Promise<unknown>>()

  /**
   * Runs a task when all earlier tasks of its key have ended, whether they succeeded or not.
   * @returns the task's result
   * @throws what the task throws
   */
  async run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const result = before.then(task, task)
    this.#last.set(key, result)
    try {
      return await result
    } finally {
      if (this.#last.get(key) === result) this.#last.delete(key)
    }
  }

  /** Resolves when the tasks that a key has now have ended. Never rejects. */
  async whenIdle(key: string): Promise<void> {
    await this.#last.get(key)?.catch(() => undefined)
  }
}

interface Waiter {
  start(): void
  refuse(error: CouchError): void
}

/**
 * Runs a limited number of tasks at once and lets a limited number wait. Callers take turns, so a caller with many
 * tasks delays only itself. When the queue is full, the caller with the most waiting tasks loses its newest one.
 */
export class Limiter {
  /** Waiting tasks by caller, in the order of the callers' turns; no queue is empty. */
  readonly #queues = new Map<string, Waiter[]>()
  readonly #maxRunning: number
  readonly #maxWaiting: number
  #running = 0
  #waiting = 0

  /**
   * @param maxRunning tasks that run at once
   * @param maxWaiting tasks of all callers together that wait; infinite where something else bounds them
   */
  constructor(maxRunning: number, maxWaiting: number) {
    this.#maxRunning = maxRunning
    this.#maxWaiting = maxWaiting
  }

  /** How many tasks wait. */
  get waiting(): number {
    return this.#waiting
  }

  /**
   * Runs a task when its turn has come.
   * @param caller whose queue the task joins; without one, all tasks share a queue in order of arrival
   * @returns the task's result
   * @throws unavailable when too many tasks wait; what the task throws
   */
  async run<T>(task: () => Promise<T>, caller = ''): Promise<T> {
    if (this.#running < this.#maxRunning) this.#running += 1
    else await this.#wait(caller)
    try {
      return await task()
    } finally {
      this.#passOn()
    }
  }

  #wait(caller: string): Promise<void> {
    if (this.#waiting >= this.#maxWaiting) this.#dropNewest(caller)
    return new Promise((start, refuse) => {
      const queue = this.#queues.get(caller)
      if (queue === undefined) this.#queues.set(caller, [{ start, refuse }])
      else queue.push({ start, refuse })
      this.#waiting += 1
    })
  }

  /** @throws unavailable when no other caller has more tasks waiting than this one would have */
  #dropNewest(caller: string): void {
    const own = this.#queues.get(caller)?.length ?? 0
    const [longest, queue] = [...this.#queues].reduce((a, b) => (b[1].length > a[1].length ? b : a), ['', []])
    if (queue.length <= own + 1) throw new CouchError('unavailable')
    const newest = queue.pop()
    if (queue.length === 0) this.#queues.delete(longest)
    this.#waiting -= 1
    newest?.refuse(new CouchError('unavailable'))
  }

  /** Hands the place of a task that has ended to the next one directly, so that no newcomer can take it. */
  #passOn(): void {
    const [next] = this.#queues
    if (next === undefined) {
      this.#running -= 1
      return
    }
    const [caller, queue] = next
    const first = queue.shift()
    this.#queues.delete(caller)
    if (queue.length > 0) this.#queues.set(caller, queue)
    this.#waiting -= 1
    first?.start()
  }
}
