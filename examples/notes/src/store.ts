/** A value with subscribers. */
export interface Watched<Value> {
  readonly value: Value
  /** @returns a function that ends the subscription */
  subscribe(listener: (value: Value) => void): () => void
}

/** A {@link Watched} whose owner can change the value. */
export class Store<Value> implements Watched<Value> {
  #value: Value
  readonly #listeners = new Set<(value: Value) => void>()

  constructor(value: Value) {
    this.#value = value
  }

  get value(): Value {
    return this.#value
  }

  set(value: Value): void {
    if (Object.is(value, this.#value)) return
    this.#value = value
    for (const listener of [...this.#listeners]) listener(value)
  }

  /** Replaces some of a value's members. */
  update(members: Partial<Value>): void {
    this.set({ ...this.#value, ...members })
  }

  subscribe(listener: (value: Value) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}
