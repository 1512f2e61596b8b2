/** A digest of all leaves of a database that does not depend on their order, so that two databases can be compared. */
import { createHash } from 'node:crypto'

const BYTES = 16

export class LeafDigest {
  readonly #sum = Buffer.alloc(BYTES)

  /** Adds a document with its leaves, in any order. */
  add(id: string, leaves: readonly string[]): void {
    const hash = createHash('sha256')
      .update(JSON.stringify([id, ...[...leaves].sort()]))
      .digest()
    // A sum and not XOR: a document that is listed twice must not vanish.
    let carry = 0
    for (let at = 0; at < BYTES; at++) {
      carry += (this.#sum[at] as number) + (hash[at] as number)
      this.#sum[at] = carry & 0xff
      carry >>= 8
    }
  }

  /** 32 hexadecimal digits. */
  toString(): string {
    return this.#sum.toString('hex')
  }
}
