/** The view indexes that a thread holds: what they weigh together is bounded, and the least recently used goes first. */
import type { ViewIndex } from './view-index.ts'

interface Held {
  readonly owner: object
  readonly index: ViewIndex
}

export class ViewMemory {
  readonly #maxBytes: () => number
  /** Least recently used first. */
  readonly #held = new Map<string, Held>()

  /** @param maxBytes what all indexes may weigh together, and so what one may; asked anew each time */
  constructor(maxBytes: () => number) {
    this.#maxBytes = maxBytes
  }

  get maxBytes(): number {
    return this.#maxBytes()
  }

  /**
   * An index, made if it is not there.
   * @param owner whose it is: the open database
   * @param key says whose it is and which
   */
  use(owner: object, key: string, make: () => ViewIndex): ViewIndex {
    const held = this.#held.get(key)
    const index = held?.owner === owner ? held.index : make()
    this.#held.delete(key)
    this.#held.set(key, { owner, index })
    return index
  }

  /** Lets go of indexes, the least recently used first, until the rest fits. To be called when one has grown. */
  trim(): void {
    let bytes = 0
    for (const { index } of this.#held.values()) bytes += index.bytes
    for (const [key, { index }] of this.#held) {
      if (bytes <= this.maxBytes) return
      bytes -= index.bytes
      this.#held.delete(key)
    }
  }

  /** What a database's indexes weigh. */
  bytesOf(owner: object): number {
    let bytes = 0
    for (const held of this.#held.values()) if (held.owner === owner) bytes += held.index.bytes
    return bytes
  }

  /** Lets go of a database's indexes: it is closed. */
  forget(owner: object): void {
    for (const [key, held] of this.#held) if (held.owner === owner) this.#held.delete(key)
  }
}
