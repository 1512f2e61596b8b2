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
