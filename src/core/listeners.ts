/** Functions that are called when something happens. */
export class Listeners<Args extends readonly unknown[]> {
  readonly #listeners = new Set<(...args: Args) => void>()

  /** @returns a function that ends the calls */
  add(listener: (...args: Args) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Calls every listener, in the order in which they were added. An error of one is thrown, and ends the round. */
  tell(...args: Args): void {
    for (const listener of this.#listeners) listener(...args)
  }
}
