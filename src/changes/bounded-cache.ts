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
