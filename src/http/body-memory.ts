/**
 * The memory that request bodies may take in this process, all together (design.md 4, `settee/body_memory`).
 * What does not fit goes to a file; nothing waits for memory, since a slow upload could hold it for hours.
 */
export class BodyMemory {
  readonly #size: () => number
  #used = 0

  /** @param size the budget in bytes, asked for each time, since the configuration may change */
  constructor(size: () => number) {
    this.#size = size
  }

  /** The budget in bytes. */
  get size(): number {
    return this.#size()
  }

  /** Bytes taken now. */
  get used(): number {
    return this.#used
  }

  /** Takes `bytes` of the budget, if there is room. @returns whether there was */
  reserve(bytes: number): boolean {
    if (this.#used + bytes > this.#size()) return false
    this.#used += bytes
    return true
  }

  release(bytes: number): void {
    this.#used -= bytes
  }
}
