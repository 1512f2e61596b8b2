/** Random numbers that are the same for the same seed. */
export interface Random {
  /** From 0 to below 1. */
  next(): number
  /** A whole number from 0 to below `end`. */
  below(end: number): number
}

/** @param seed a whole number; mulberry32 */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  return { next, below: (end) => Math.floor(next() * end) }
}
