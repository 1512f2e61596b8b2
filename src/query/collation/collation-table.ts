/**
 * The table of collation elements of ICU 72's root collation, which CouchDB 3.5 sorts by (protocol.md 9.4). It is made
 * of Unicode's data by scripts/collation-table.mjs; unicode-license.txt has their licence. One copy of 0.7 MB serves
 * all threads.
 */
import { readFileSync } from 'node:fs'
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'
import { brotliDecompressSync } from 'node:zlib'
import { programFile } from '../../core/program-files.ts'

/** Stands in indexes that hold sort keys: another version means other bytes for the same text. */
export const COLLATION_VERSION = 'icu-72.1-1'

/**
 * An entry tells how a character is sorted:
 *
 * - 0: by its code point, behind all others, since Unicode 15 does not assign it.
 * - Without {@link SPECIAL}: as one element with the common secondary weight. The upper three bytes are its primary weight,
 *   left-aligned; the lower six bits its tertiary weight.
 * - Else the lower seven bits are a kind below, and the other bytes its argument.
 */
export const SPECIAL = 0x40
export const KIND = 0x7f
/** The character is ignored. */
export const IGNORED = 0x40
/** Several elements, or one with a secondary weight of its own: the number of elements (6 bits), the first one (18 bits). */
export const EXPANSION = 0x41
/** Characters behind this one can change its elements: the place in {@link CollationTable.contractions}. */
export const CONTRACTION = 0x42
/** A syllable of Hangul, which is sorted as its letters. */
export const HANGUL = 0x43
/** The character can change the elements of one before it. */
export const CONTINUES = 0x80

/** The weight that most characters have on the second and the third level. */
export const COMMON = 0x05

/** Each code point has an entry: that of its place in its block. */
export interface CollationTable {
  readonly entries: Uint32Array
  /** The elements of expansions: primary weight and tertiary weight, as in an entry. */
  readonly elements: Uint32Array
  /**
   * Nodes: the entry of the text so far or 0, the number of branches, and for each branch in order its code point, its
   * entry or 0, and its node or 0.
   */
  readonly contractions: Uint32Array
  /** Characters whose decomposition begins with a combining mark, in order: the code point, and the mark's class (8 bits). */
  readonly marks: Uint32Array
  /** The block of entries that each 64 code points have. */
  readonly blocks: Uint16Array
  /** The secondary weights of {@link elements}, left-aligned. */
  readonly secondaries: Uint16Array
  /** The classes of the last marks of {@link marks}. */
  readonly markTails: Uint8Array
}

const SHARED = 'settee.collation'
const BLOCK_BITS = 6
const SECTIONS = 8
/** Han is sorted by radical and stroke: its primary weights are three bytes, counted up from this first byte. */
const HAN_LEAD = 0x7e
/** Bytes 0 and 1 do not occur in weights. */
const DIGITS = 254

let loaded: CollationTable | undefined

export function collationTable(): CollationTable {
  loaded ??= tableOf(sharedMemory() ?? load())
  return loaded
}

/** Loads the table for this thread, and for threads that it starts afterwards. */
export function shareCollationTable(): void {
  if (sharedMemory() !== undefined) return
  const memory = load()
  setEnvironmentData(SHARED, memory)
  loaded = tableOf(memory)
}

/** Finds the entry of a code point. */
export function entryOf(table: CollationTable, point: number): number {
  const block = table.blocks[point >>> BLOCK_BITS]!
  return table.entries[(block << BLOCK_BITS) | (point & ((1 << BLOCK_BITS) - 1))]!
}

function sharedMemory(): SharedArrayBuffer | undefined {
  const memory = getEnvironmentData(SHARED)
  return memory instanceof SharedArrayBuffer ? memory : undefined
}

function load(): SharedArrayBuffer {
  const bytes = brotliDecompressSync(readFileSync(programFile('query/collation/collation-table.bin')))
  const memory = new SharedArrayBuffer(bytes.length)
  new Uint8Array(memory).set(bytes)
  fillHan(tableOf(memory), hanRanges(memory))
  return memory
}

/** The first words are the lengths of the sections; the last of them, that of Han, is stored first. */
function hanRanges(memory: SharedArrayBuffer): Uint32Array {
  const lengths = new Uint32Array(memory, 0, SECTIONS)
  return new Uint32Array(memory, SECTIONS * 4, lengths[SECTIONS - 1])
}

function tableOf(memory: SharedArrayBuffer): CollationTable {
  const lengths = new Uint32Array(memory, 0, SECTIONS)
  const han = hanRanges(memory)
  let at = han.byteOffset + han.byteLength
  const words = (section: number) => {
    const array = new Uint32Array(memory, at, lengths[section])
    at += array.byteLength
    return array
  }
  const halves = (section: number) => {
    const array = new Uint16Array(memory, at, lengths[section])
    at += array.byteLength
    return array
  }
  return {
    entries: words(0),
    elements: words(1),
    contractions: words(2),
    marks: words(3),
    blocks: halves(4),
    secondaries: halves(5),
    markTails: new Uint8Array(memory, at, lengths[6]),
  }
}

/** Ranges of code points in their order: the first one, and their number (8 bits). */
function fillHan({ blocks, entries }: CollationTable, ranges: Uint32Array): void {
  let rank = 0
  for (const range of ranges) {
    const first = range >>> 8
    for (let point = first; point < first + (range & 0xff); point++) {
      const lead = HAN_LEAD + Math.floor(rank / DIGITS / DIGITS)
      const primary = (lead << 16) | (((Math.floor(rank / DIGITS) % DIGITS) + 2) << 8) | ((rank % DIGITS) + 2)
      entries[(blocks[point >>> BLOCK_BITS]! << BLOCK_BITS) | (point & 63)] = (primary << 8) | COMMON
      rank += 1
    }
  }
}
