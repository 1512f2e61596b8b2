/** Caches of bounded size: options for lru-cache, and a small cache for database threads. */

/**
 * Options of an `LRUCache` with at most so many entries. With its own option `max` it allocates the space for all of
 * them at once: 0.4 MB for 10,000.
 */
export function atMost(entries: number): {
  readonly maxSize: number
  readonly sizeCalculation: () => number
} {
  return { maxSize: entries, sizeCalculation: one }
}

const one = (): number => 1

/**
 * Values by the text that they are computed from. The least recently used go first. It is used on database threads,
 * where lru-cache would cost 0.4 MB of heap per thread.
 */
export class BoundedCache<T> {
  /** Least recently used first. */
  readonly #values = new Map<string, T>()
  readonly #max: number
  readonly #sizeOf: (text: string, value: T) => number
  #size = 0

  /**
   * @param max the size of all entries together
   * @param sizeOf the size of an entry, which never changes; by default the length of its text
   */
  constructor(max: number, sizeOf: (text: string, value: T) => number = (text) => text.length) {
    this.#max = max
    this.#sizeOf = sizeOf
  }

  /**
   * @param compute called when the text has no value yet
   * @throws what `compute` throws; nothing is cached then
   */
  get(text: string, compute: () => T): T {
    const cached = this.#values.get(text)
    const value = cached ?? compute()
    if (cached === undefined) this.#size += this.#sizeOf(text, value)
    else this.#values.delete(text)
    this.#values.set(text, value)
    this.#evict()
    return value
  }

  #evict(): void {
    for (const [text, value] of this.#values) {
      if (this.#size <= this.#max) return
      this.#values.delete(text)
      this.#size -= this.#sizeOf(text, value)
    }
  }
}
