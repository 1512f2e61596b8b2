/**
 * The two orders in which CouchDB sorts JSON values. View keys and selectors use ICU's root collation; the raw order
 * compares bytes. Sources: protocol.md 9.4; CouchDB's couch_ejson_compare, Erlang's order of terms. Pure.
 */
import { compareUtf8 } from '../core/bytes.ts'

/**
 * Returns a number below 0 if `a` comes first, above 0 if `b` comes first, and 0 if the two are equal in this order.
 */
export type Compare = (a: unknown, b: unknown) => number

/**
 * CLDR has no special rules for English, so this is the root collation. Node resolves `und` to the machine's language,
 * but English sorts the same on every machine, even with a small ICU.
 */
const collator = new Intl.Collator('en', {
  usage: 'sort',
  sensitivity: 'variant',
  ignorePunctuation: false,
  numeric: false,
  caseFirst: 'false',
})

/**
 * Compares two strings by ICU's root collation. Like CouchDB, it breaks no ties: strings are equal if they differ only
 * in ignored characters, such as control characters, or in how an accent is encoded.
 */
export function compareStrings(a: string, b: string): number {
  return a === b ? 0 : collator.compare(a, b)
}

/**
 * Compares two JSON values as CouchDB compares view keys: null < false < true < numbers < strings < arrays < objects.
 * Arrays are compared element by element, and objects member by member in their stored order. If one is a prefix of
 * the other, the shorter comes first.
 */
export const compareJson: Compare = orderOf(
  { null: 0, false: 1, true: 2, number: 3, string: 4, array: 5, object: 6 },
  compareStrings,
)

/**
 * Compares two JSON values as CouchDB compares ids in selectors, and keys of views with the option `collation: "raw"`:
 * numbers < false < null < true < objects < arrays < strings. Strings are compared by their UTF-8 bytes.
 */
export const compareRaw: Compare = orderOf(
  { number: 0, false: 1, null: 2, true: 3, object: 4, array: 5, string: 6 },
  compareUtf8,
)

type JsonType = 'null' | 'false' | 'true' | 'number' | 'string' | 'array' | 'object'

function typeOf(value: unknown): JsonType {
  if (value === null) return 'null'
  if (typeof value === 'string' || typeof value === 'number') return typeof value as 'string' | 'number'
  if (typeof value === 'boolean') return value ? 'true' : 'false'
  return Array.isArray(value) ? 'array' : 'object'
}

function orderOf(
  ranks: Readonly<Record<JsonType, number>>,
  strings: (a: string, b: string) => number,
): Compare {
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
