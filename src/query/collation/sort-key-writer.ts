/**
 * Writes sort keys of texts: bytes whose order is the order of the texts in ICU's root collation, as CouchDB uses it: three
 * levels, punctuation counts, texts are not normalized. Source: Unicode Technical Standard 10, sections 7.3 and 9.
 */

import {
  COMMON,
  CONTINUES,
  CONTRACTION,
  type CollationTable,
  collationTable,
  EXPANSION,
  entryOf,
  HANGUL,
  KIND,
  SPECIAL,
} from './collation-table.ts'
import { findContraction, type TakenMarks } from './contractions.ts'
import { largerBytes, WeightLevel } from './weight-level.ts'

/** Ends a text, and everything else that has an end. Lower than all other bytes of a key. */
export const END = 0x00
const NEXT_LEVEL = 0x01
/** Secondary weights besides the common one are at least 46, and tertiary weights are put above C5. */
const SECONDARY_HIGH = 0x45
const TERTIARY_HIGH = 0xc5
const TERTIARY_SHIFT = 0xc0
/** Characters that Unicode does not assign: this byte, and three with the code point. */
const UNASSIGNED_LEAD = 0xe0
const HANGUL_BASE = 0xac00
const FIRST_SIZE = 1024
/** Larger memory is given back. */
const KEPT_SIZE = 128 * 1024
/** The most bytes that are written between two looks at the room that is left. */
const SLACK = 16
const NONE_TAKEN: TakenMarks = new Set()

export class SortKeyWriter {
  bytes = new Uint8Array(FIRST_SIZE)
  length = 0
  readonly #table: CollationTable = collationTable()
  readonly #ascii: Uint32Array
  readonly #secondary: WeightLevel
  readonly #tertiary: WeightLevel
  readonly #limit: number

  /** @param limit of bytes: `key_too_long` is thrown before memory for more than four times as many is taken */
  constructor(limit: number) {
    this.#limit = limit
    this.#ascii = asciiEntries(this.#table)
    this.#secondary = new WeightLevel(SECONDARY_HIGH, limit)
    this.#tertiary = new WeightLevel(TERTIARY_HIGH, limit)
  }

  clear(): void {
    if (this.bytes.length > KEPT_SIZE) this.bytes = new Uint8Array(FIRST_SIZE)
    this.length = 0
  }

  byte(byte: number): void {
    if (this.length === this.bytes.length) this.#grow()
    this.bytes[this.length] = byte
    this.length += 1
  }

  /** The sort key of a text. None is the beginning of another one's. */
  text(text: string, from = 0): void {
    this.primaries(text, from, text.length)
    const second = this.#secondary
    const third = this.#tertiary
    if (second.length > 0 || third.length > 0) this.#level(second)
    if (third.length > 0) this.#level(third)
    this.byte(END)
  }

  /** Only the primary weights of a part of a text, which begins and ends where {@link isBoundary}. */
  primaries(text: string, from: number, to: number): void {
    this.#secondary.clear()
    this.#tertiary.clear()
    let taken = NONE_TAKEN
    for (let at = from; at < to; ) {
      at = this.#asciiRun(text, at, to)
      if (at === to) break
      const point = text.codePointAt(at)!
      const size = point > 0xffff ? 2 : 1
      const isTaken = taken.size > 0 && taken.has(at)
      at += size
      if (isTaken) continue
      const entry = entryOf(this.#table, point)
      if ((entry & KIND) === CONTRACTION) {
        if (taken === NONE_TAKEN) taken = new Set()
        const found = findContraction(this.#table, entry >>> 8, text, at, taken)
        this.#entry(found.entry, point)
        at = found.end
      } else {
        this.#entry(entry, point)
      }
    }
  }

  /** Whether nothing before this place changes how the text from there on is sorted, and nothing behind it what is before. */
  isBoundary(text: string, at: number): boolean {
    const unit = text.charCodeAt(at)
    if (!(unit >= 0x80)) return true
    if (unit >= 0xdc00 && unit < 0xe000) return false
    return (entryOf(this.#table, text.codePointAt(at)!) & CONTINUES) === 0
  }

  /** The entry of an ASCII character; 0 for an ignored one and all others. */
  asciiEntry(unit: number): number {
    const entry = unit < 0x80 ? this.#ascii[unit]! : 0
    return (entry & SPECIAL) === 0 ? entry : 0
  }

  /** Writes up to the first character that is not ASCII, or can be sorted together with it. */
  #asciiRun(text: string, from: number, to: number): number {
    let { bytes, length } = this
    let count = 0
    let at = from
    for (; at < to; at++) {
      const unit = text.charCodeAt(at)
      if (unit >= 0x80 || (at + 1 < to && text.charCodeAt(at + 1) >= 0x80)) break
      const entry = this.#ascii[unit]!
      if ((entry & SPECIAL) !== 0) continue
      if (length + SLACK > bytes.length) {
        this.length = length
        bytes = this.#grow()
      }
      bytes[length++] = entry >>> 24
      const second = (entry >>> 16) & 0xff
      if (second !== 0) {
        bytes[length++] = second
        const third = (entry >>> 8) & 0xff
        if (third !== 0) bytes[length++] = third
      }
      count += 1
      const tertiary = entry & 0x3f
      if (tertiary === COMMON) this.#tertiary.run += 1
      else this.#tertiary.add(tertiary + TERTIARY_SHIFT, 0)
    }
    this.#secondary.run += count
    this.length = length
    return at
  }

  #entry(entry: number, point: number): void {
    if ((entry & SPECIAL) === 0) {
      if ((entry & ~CONTINUES) === 0) this.#unassigned(point)
      else this.#element(entry, COMMON << 8)
      return
    }
    const kind = entry & KIND
    if (kind === EXPANSION) {
      const first = entry >>> 14
      const last = first + ((entry >>> 8) & 0x3f)
      for (let i = first; i < last; i++) this.#element(this.#table.elements[i]!, this.#table.secondaries[i]!)
    } else if (kind === HANGUL) {
      this.#hangul(point - HANGUL_BASE)
    }
  }

  #element(element: number, secondary: number): void {
    const first = element >>> 24
    if (first !== 0) {
      const bytes = this.length + SLACK > this.bytes.length ? this.#grow() : this.bytes
      bytes[this.length++] = first
      const second = (element >>> 16) & 0xff
      if (second !== 0) {
        bytes[this.length++] = second
        const third = (element >>> 8) & 0xff
        if (third !== 0) bytes[this.length++] = third
      }
    }
    if (secondary === COMMON << 8) this.#secondary.run += 1
    else this.#secondary.add(secondary >>> 8, secondary & 0xff)
    const tertiary = element & 0x3f
    if (tertiary === COMMON) this.#tertiary.run += 1
    else this.#tertiary.add(tertiary + TERTIARY_SHIFT, 0)
  }

  #unassigned(point: number): void {
    const bytes = this.length + SLACK > this.bytes.length ? this.#grow() : this.bytes
    bytes[this.length++] = UNASSIGNED_LEAD
    bytes[this.length++] = 2 + (point >>> 14)
    bytes[this.length++] = 2 + ((point >>> 7) & 0x7f)
    bytes[this.length++] = 2 + (point & 0x7f)
    this.#secondary.run += 1
    this.#tertiary.run += 1
  }

  /** A syllable is an initial consonant, a vowel, and one of 27 final consonants or none. */
  #hangul(syllable: number): void {
    const letters = [0x1100 + Math.floor(syllable / 588), 0x1161 + Math.floor((syllable % 588) / 28)]
    if (syllable % 28 !== 0) letters.push(0x11a7 + (syllable % 28))
    for (const letter of letters) this.#entry(entryOf(this.#table, letter), letter)
  }

  #level({ bytes, length }: WeightLevel): void {
    this.byte(NEXT_LEVEL)
    while (this.length + length > this.bytes.length) this.#grow()
    for (let i = 0; i < length; i++) this.bytes[this.length + i] = bytes[i]!
    this.length += length
  }

  #grow(): Uint8Array<ArrayBuffer> {
    this.bytes = largerBytes(this.bytes, this.#limit)
    return this.bytes
  }
}

/** Contractions never begin with ASCII before ASCII, so they are entries of single characters. */
function asciiEntries(table: CollationTable): Uint32Array {
  return Uint32Array.from({ length: 0x80 }, (_, point) => {
    const entry = entryOf(table, point)
    return (entry & KIND) === CONTRACTION ? table.contractions[entry >>> 8]! : entry
  })
}
