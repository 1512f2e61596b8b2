/** Functions that are called when something happens. */
export class Listeners<Args extends readonly unknown[]> {
  readonly #listeners = new Set<(...args: Args) => void>()

  /** @returns a function that ends the calls */
  add(listener: (...args: Args) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  tell(...args: Args): void {
    for (const listener of this.#listeners) listener(...args)
  }
}
