/** Randomly damaged texts for property tests. */
import fc from 'fast-check'

export interface Damage {
  /** Any position, modulo the length. */
  readonly at: number
  readonly drop: number
  readonly add: string
}

const ODD = ['', '"', '\\', '{', '}', '[', ']', ',', ':', '0', ' ', '\u0001']

/** @param also texts to insert in addition to tokens of JSON */
export function damages(...also: readonly string[]): fc.Arbitrary<Damage[]> {
  const one = fc.record({ at: fc.nat(), drop: fc.nat({ max: 2 }), add: fc.constantFrom(...ODD, ...also) })
  return fc.array(one, { minLength: 1, maxLength: 3 })
}

export function damaged(text: string, list: readonly Damage[]): string {
  return list.reduce((s, { at, drop, add }) => {
    const place = at % (s.length + 1)
    return s.slice(0, place) + add + s.slice(place + drop)
  }, text)
}
