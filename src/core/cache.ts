/** How large a cache of the library lru-cache may grow. */

/**
 * Options of an LRUCache that holds so many entries at the most. With its own `max` it makes room for all of them when it
 * is made: 0.4 MB for 10,000.
 */
export function atMost(entries: number): {
  readonly maxSize: number
  readonly sizeCalculation: () => number
} {
  return { maxSize: entries, sizeCalculation: one }
}

const one = (): number => 1

/** Values that are costly to make, by the texts they are made of; the least recently used go first. */
export class BoundedCache<T> {
  readonly #values = new Map<string, T>()
  readonly #max: number
  #size = 0

  /** @param max characters of all texts together */
  constructor(max: number) {
    this.#max = max
  }

  /** @param make called where the value is not kept; what it throws is not kept either */
  get(text: string, make: () => T): T {
    const known = this.#values.get(text)
    const value = known ?? make()
    if (known !== undefined) this.#values.delete(text)
    else this.#size += text.length
    this.#values.set(text, value)
    this.#trim()
    return value
  }

  #trim(): void {
    for (const [text] of this.#values) {
      if (this.#size <= this.#max) return
      this.#values.delete(text)
      this.#size -= text.length
    }
  }
}
