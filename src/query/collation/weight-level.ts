/** A level of a sort key: the secondary or the tertiary weights of a text. Pure. */
import { CouchError } from '../../core/errors.ts'

const FIRST_SIZE = 256
/** Larger memory is given back. */
const KEPT_SIZE = 64 * 1024
/** Bytes 0 to 4 separate, and end, parts of a sort key. */
const LOWEST = 0x05

/**
 * Collects weights. Most are the common one, so a run of those is one byte: the shorter the run, the higher the byte,
 * since every other weight is higher than the common one. A run at the end is left out. ICU does the same.
 */
export class WeightLevel {
  bytes = new Uint8Array(FIRST_SIZE)
  length = 0
  /** Common weights that are not written yet. */
  run = 0
  readonly #high: number
  readonly #limit: number

  /**
   * @param high a byte below all weights but the common one
   * @param limit of bytes, as in {@link largerBytes}
   */
  constructor(high: number, limit: number) {
    this.#high = high
    this.#limit = limit
  }

  clear(): void {
    if (this.bytes.length > KEPT_SIZE) this.bytes = new Uint8Array(FIRST_SIZE)
    this.length = 0
    this.run = 0
  }

  /** @param second 0 if the weight is one byte */
  add(first: number, second: number): void {
    const most = this.#high - LOWEST
    for (; this.run >= most; this.run -= most) this.#push(LOWEST)
    if (this.run > 0) this.#push(this.#high - this.run)
    this.run = 0
    this.#push(first)
    if (second !== 0) this.#push(second)
  }

  #push(byte: number): void {
    if (this.length === this.bytes.length) this.bytes = largerBytes(this.bytes, this.#limit)
    this.bytes[this.length] = byte
    this.length += 1
  }
}

/**
 * Copies bytes to memory twice as large.
 *
 * @throws CouchError `key_too_long` if the memory that is full is larger than the limit
 */
export function largerBytes(bytes: Uint8Array<ArrayBuffer>, limit: number): Uint8Array<ArrayBuffer> {
  if (bytes.length > limit) throw new CouchError('key_too_long')
  const larger = new Uint8Array(bytes.length * 2)
  larger.set(bytes)
  return larger
}
