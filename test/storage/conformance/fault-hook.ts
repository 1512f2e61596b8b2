/** Counts an engine's operations, and makes one of them (or all from one on) fail. */
export class FaultHook {
  #failAt = Number.POSITIVE_INFINITY
  #failUntil = Number.POSITIVE_INFINITY
  #seen = 0
  #fired: string | null = null

  /** To be called before every operation. */
  readonly onOperation = (operation: string): void => {
    this.#seen += 1
    if (this.#seen < this.#failAt || this.#seen >= this.#failUntil) return
    this.#fired = `${this.#seen}: ${operation.slice(0, 60)}`
    throw new Error(`injected at operation ${this.#fired}`)
  }

  /** Begins to count; the operation with this number fails, and with `lasting` every one after it. */
  arm(failAt: number, lasting: boolean): void {
    this.#failAt = failAt
    this.#failUntil = lasting ? Number.POSITIVE_INFINITY : failAt + 1
    this.#seen = 0
    this.#fired = null
  }

  /** Lets everything pass again. @returns the operation that failed, null when none did */
  disarm(): string | null {
    this.#failAt = Number.POSITIVE_INFINITY
    return this.#fired
  }
}
