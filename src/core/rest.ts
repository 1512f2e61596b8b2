/**
 * Gives a thread's memory back while nobody asks anything of it: V8 lets the heap grow with each request, and collects
 * only when more is wanted (docs/decisions/0038).
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Twice so long without work, at the most, is rest, in ms. */
const LOOK_MS = 5000
/** A heap that has grown by less since the last collection is left alone, in bytes. */
const LEAST_GROWTH = 3 * 1024 * 1024
/** A larger heap is left to V8: to collect it at once would hold the thread too long. In bytes. */
const MOST_USED = 40 * 1024 * 1024

export class Rest {
  readonly #lookMs: number
  readonly #collect: () => void
  readonly #mostUsed: number
  #hasWorked = false
  /** Bytes of the heap after the last collection. */
  #size = 0
  #timer: NodeJS.Timeout | undefined

  /** @param lookMs, collect, mostUsed for tests */
  constructor(lookMs: number = LOOK_MS, collect: () => void = collectAll, mostUsed: number = MOST_USED) {
    this.#lookMs = lookMs
    this.#collect = collect
    this.#mostUsed = mostUsed
  }

  /** The thread works. */
  wake(): void {
    this.#hasWorked = true
    this.#timer ??= setInterval(() => this.#look(), this.#lookMs).unref()
  }

  #look(): void {
    if (this.#hasWorked) {
      this.#hasWorked = false
      return
    }
    this.#stop()
    const { total_heap_size: size, used_heap_size: used } = getHeapStatistics()
    if (size < this.#size + LEAST_GROWTH || used > this.#mostUsed) return
    this.#collect()
    this.#size = getHeapStatistics().total_heap_size
  }

  #stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}

/**
 * Collects all garbage of the calling thread, compiled code that was not used lately included, and gives free pages back.
 * V8's own function for that is in contexts that are made while a flag is set; the context goes with the garbage of the
 * next time.
 */
export function collectAll(): void {
  setFlagsFromString('--expose-gc')
  const gc: unknown = runInNewContext('globalThis.gc')
  if (typeof gc === 'function') gc({ type: 'major', flavor: 'last-resort' })
}

/** Of this thread: each has modules of its own. */
const rest = new Rest()

/** This thread is at work; when it was not for a while, it gives memory back. */
export function worked(): void {
  rest.wake()
}
