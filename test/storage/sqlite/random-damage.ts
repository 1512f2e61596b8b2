/** Random numbers for damage, and the bits of a file that mean something. */

/** A number below `below`, the same in each run with a seed (mulberry32). */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

/** A copy of a file with one changed bit. */
export function flipped(file: Buffer, bit: number): Buffer {
  const damaged = Buffer.from(file)
  damaged[bit >> 3] = (damaged[bit >> 3] as number) ^ (1 << (bit & 7))
  return damaged
}

/** The first byte of an interior page of a table and of an index (https://sqlite.org/fileformat2.html#b_tree_pages). */
const INTERIOR = [5, 2]

/**
 * The bits of a page of a tree that mean something: its header, the places of its cells, and these.
 * @returns all of them, and those that lead a search: without the cells of a leaf
 */
export function usedBits(file: Buffer, page: number): { all: number[]; leading: number[] } {
  const size = file.readUInt16BE(16)
  const at = (page - 1) * size
  const isInterior = INTERIOR.includes(file[at] as number)
  const headerEnd = (isInterior ? 12 : 8) + 2 * file.readUInt16BE(at + 3)
  const cells = file.readUInt16BE(at + 5)
  const bits = (bytes: number[]) =>
    bytes.flatMap((byte) => [...Array(8).keys()].map((bit) => (at + byte) * 8 + bit))
  const bytes = [...Array(size).keys()].filter((byte) => byte < headerEnd || byte >= cells)
  return { all: bits(bytes), leading: bits(isInterior ? bytes : bytes.filter((byte) => byte < headerEnd)) }
}
