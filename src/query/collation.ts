/**
 * The two orders in which CouchDB sorts JSON values. View keys and selectors use ICU's root collation; the raw order
 * compares bytes. Keys of indexes have the same orders, sort-keys.ts. Sources: protocol.md 9.4; CouchDB's
 * couch_ejson_compare, Erlang's order of terms.
 */
import { compareUtf8 } from '../core/bytes.ts'
import { SortKeyWriter } from './collation/sort-key-writer.ts'
import { type KeyOrder, MAX_KEY_BYTES, TYPE_RANKS, typeOf } from './sort-keys.ts'

/**
 * Returns a number below 0 if `a` comes first, above 0 if `b` comes first, and 0 if the two are equal in this order.
 */
export type Compare = (a: unknown, b: unknown) => number

/**
 * Compares two strings by ICU's root collation, as their sort keys are ordered. Like CouchDB, it breaks no ties: strings
 * are equal if they differ only in ignored characters, such as control characters, or in whether an accent is a character
 * of its own.
 *
 * Unlike CouchDB, it compares what follows the first 65,536 UTF-16 units by code point: 8 MB would take 0.5 s. No longer
 * string is a key of an index, so both orders agree.
 */
export function compareStrings(a: string, b: string): number {
  if (a === b) return 0
  if (a.length <= MAX_KEY_BYTES && b.length <= MAX_KEY_BYTES) return collate(a, b)
  const order = collate(a.slice(0, MAX_KEY_BYTES), b.slice(0, MAX_KEY_BYTES))
  return order || compareUtf8(a.slice(MAX_KEY_BYTES), b.slice(MAX_KEY_BYTES))
}

function collate(a: string, b: string): number {
  writers ??= [new SortKeyWriter(Number.POSITIVE_INFINITY), new SortKeyWriter(Number.POSITIVE_INFINITY)]
  const [left, right] = writers
  let from = 0
  while (from < a.length && from < b.length && a.charCodeAt(from) === b.charCodeAt(from)) from += 1
  const simple = compareAscii(left, a, b, from)
  if (simple !== undefined) return simple
  while (from > 0 && !(left.isBoundary(a, from) && left.isBoundary(b, from))) from -= 1
  const order = comparePrimaries(left, right, a, b, from)
  if (order !== 0) return order
  left.clear()
  right.clear()
  left.text(a, from)
  right.text(b, from)
  return compareBytes(left, right)
}

/** Made at first use, since they need the table of collation elements. */
let writers: readonly [SortKeyWriter, SortKeyWriter] | undefined

/**
 * Compares without sort keys while both strings are ASCII, as most are.
 *
 * @returns undefined if other characters come before a difference of letters
 */
function compareAscii(writer: SortKeyWriter, a: string, b: string, from: number): number | undefined {
  let variants = 0
  for (let at = from; ; at++) {
    const first = writer.asciiEntry(a.charCodeAt(at))
    const second = writer.asciiEntry(b.charCodeAt(at))
    if (at === a.length || at === b.length) {
      if (a.length === b.length) return variants
      return first === 0 && second === 0 ? undefined : a.length - b.length
    }
    if (first === 0 || second === 0) return undefined
    // The lower byte is the tertiary weight.
    const letters = (first >>> 8) - (second >>> 8)
    if (letters !== 0) return letters
    if (variants === 0) variants = first - second
  }
}

/** Texts that are longer are first compared in parts, since most differ near the beginning. */
const PART = 256

/** @returns 0 also if the texts are short */
function comparePrimaries(
  left: SortKeyWriter,
  right: SortKeyWriter,
  a: string,
  b: string,
  from: number,
): number {
  for (let size = PART; from + size < Math.max(a.length, b.length); size *= 4) {
    left.clear()
    right.clear()
    left.primaries(a, from, boundaryFrom(left, a, from + size))
    right.primaries(b, from, boundaryFrom(left, b, from + size))
    const shorter = Math.min(left.length, right.length)
    for (let i = 0; i < shorter; i++) {
      if (left.bytes[i] !== right.bytes[i]) return left.bytes[i]! - right.bytes[i]!
    }
  }
  return 0
}

function boundaryFrom(writer: SortKeyWriter, text: string, at: number): number {
  let end = Math.min(at, text.length)
  while (end < text.length && !writer.isBoundary(text, end)) end += 1
  return end
}

function compareBytes(a: SortKeyWriter, b: SortKeyWriter): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    if (a.bytes[i] !== b.bytes[i]) return a.bytes[i]! - b.bytes[i]!
  }
  return a.length - b.length
}

/**
 * Compares two JSON values as CouchDB compares view keys: null < false < true < numbers < strings < arrays < objects.
 * Arrays are compared element by element, and objects member by member in their stored order. If one is a prefix of
 * the other, the shorter comes first.
 */
export const compareJson: Compare = orderOf('json', compareStrings)

/**
 * Compares two JSON values as CouchDB compares ids in selectors, and keys of views with the option `collation: "raw"`:
 * numbers < false < null < true < objects < arrays < strings. Strings are compared by their UTF-8 bytes.
 */
export const compareRaw: Compare = orderOf('raw', compareUtf8)

function orderOf(order: KeyOrder, strings: (a: string, b: string) => number): Compare {
  const ranks = TYPE_RANKS[order]
  const compare: Compare = (a, b) => {
    if (typeof a === 'string' && typeof b === 'string') return strings(a, b)
    // Not a subtraction: JSON.parse reads 1e400 as Infinity, and the difference of two infinities is NaN.
    if (typeof a === 'number' && typeof b === 'number') return a < b ? -1 : a > b ? 1 : 0
    const type = typeOf(a)
    const difference = ranks[type] - ranks[typeOf(b)]
    if (difference !== 0) return difference
    if (type === 'array') return compareLists(a as unknown[], b as unknown[])
    return type === 'object' ? compareMembers(a as object, b as object) : 0
  }
  const compareLists = (a: readonly unknown[], b: readonly unknown[]): number => {
    for (let i = 0; i < a.length && i < b.length; i++) {
      const order = compare(a[i], b[i])
      if (order !== 0) return order
    }
    return a.length - b.length
  }
  const compareMembers = (a: object, b: object): number => {
    const left = Object.entries(a)
    const right = Object.entries(b)
    for (const [i, [name, value]] of left.entries()) {
      const other = right[i]
      if (other === undefined) return 1
      const order = strings(name, other[0]) || compare(value, other[1])
      if (order !== 0) return order
    }
    return left.length - right.length
  }
  return compare
}
