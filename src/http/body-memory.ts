/** The least that one caller may take, in bytes, if all may take so much: two bodies that are just not put into a file. */
const LEAST_SHARE = 16 * 1024 * 1024

/** One caller's part of the memory of bodies. */
export interface BodyRoom {
  /** Takes `bytes` of the budget, if there is room. @returns whether there was */
  reserve(bytes: number): boolean
  release(bytes: number): void
}

/**
 * The memory that request bodies may take in this process, all together (architecture.md, "How a save travels",
 * `settee/body_memory`); those of one caller may take a quarter of it. What does not fit goes to a file. Nothing waits for
 * memory, since a slow upload could hold it for hours.
 */
export class BodyMemory {
  readonly #size: () => number
  readonly #byCaller = new Map<string, number>()
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

  /** @param caller the account, or the address of a caller without one */
  of(caller: string): BodyRoom {
    return {
      reserve: (bytes) => this.#reserve(caller, bytes),
      release: (bytes) => this.#release(caller, bytes),
    }
  }

  #reserve(caller: string, bytes: number): boolean {
    const size = this.#size()
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (this.#used + bytes > size || own > Math.max(LEAST_SHARE, size / 4)) return false
    this.#used += bytes
    this.#byCaller.set(caller, own)
    return true
  }

  #release(caller: string, bytes: number): void {
    this.#used -= bytes
    const own = (this.#byCaller.get(caller) ?? 0) - bytes
    if (own > 0) this.#byCaller.set(caller, own)
    else this.#byCaller.delete(caller)
  }
}
