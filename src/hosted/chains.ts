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
