/** Random values that many generators need. */
import fc from 'fast-check'
import { Random } from '../protocol/random.ts'

const SAMPLES = 600

/** Numbers as they stand in JSON or in a query, on the edges of what programs take. */
const EDGES: readonly string[] = [
  '0',
  '-0',
  '1',
  '-1',
  '1.5',
  '1e400',
  '-1e400',
  '9007199254740993',
  '2147483648',
  '4294967296',
  '99999999999999999999999999999999',
  '0.1e-7',
  '1E5',
]

export class Choices extends Random {
  readonly #asked: { readonly seed: number; readonly numRuns: number }
  /** Made when they are needed, since it takes long. */
  #values: readonly string[] | undefined
  #texts: readonly string[] | undefined

  constructor(seed: number) {
    super(seed)
    this.#asked = { seed, numRuns: SAMPLES }
  }

  /** One of the first, or, now and then, one of the second. */
  mostly<T>(usual: readonly T[], odd: readonly T[], oddity = 0.06): T {
    return this.pick(this.chance(oddity) ? odd : usual)
  }

  /** Each of the values with the probability. */
  some<T>(from: readonly T[], probability: number): T[] {
    return from.filter(() => this.chance(probability))
  }

  list<T>(most: number, make: (at: number) => T): T[] {
    return Array.from({ length: this.below(most + 1) }, (_, at) => make(at))
  }

  /** JSON text of any kind. */
  json(): string {
    return this.chance(0.2) ? this.pick(EDGES) : this.pick(this.#samples())
  }

  #samples(): readonly string[] {
    this.#values ??= fc.sample(fc.json({ maxDepth: 4, stringUnit: 'binary' }), this.#asked)
    return this.#values
  }

  /** A number as text. */
  edge(): string {
    return this.pick(EDGES)
  }

  /** Well-formed Unicode of any kind. */
  text(): string {
    this.#texts ??= fc.sample(fc.string({ unit: 'binary', maxLength: 40 }), this.#asked)
    return this.pick(this.#texts)
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length)
    for (let at = 0; at < length; at++) bytes[at] = this.below(256)
    return bytes
  }
}
