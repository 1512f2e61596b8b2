/** Who is using a blob right now: uploads that staged it and downloads that pinned it. Kept in memory alone. */

export interface Hold {
  /** Lets go; only the first call counts. @returns whether nobody holds the blob now */
  release(): boolean
}

export class Holds {
  readonly #counts = new Map<number, number>()

  /** Whether anybody holds a blob: it must not be removed then. Ask inside the transaction that removes it. */
  isHeld(blob: number): boolean {
    return this.#counts.has(blob)
  }

  /** Holds a blob until it is released. */
  take(blob: number): Hold {
    this.#counts.set(blob, (this.#counts.get(blob) ?? 0) + 1)
    let isOpen = true
    return {
      release: () => {
        if (isOpen) this.#drop(blob)
        isOpen = false
        return !this.isHeld(blob)
      },
    }
  }

  #drop(blob: number): void {
    const count = this.#counts.get(blob) ?? 0
    if (count > 1) this.#counts.set(blob, count - 1)
    else this.#counts.delete(blob)
  }
}
