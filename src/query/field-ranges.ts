/**
 * What the normal form of a selector says about its fields: in which range a value must lie, whether it must exist, and
 * whether it is constant. The choice of an index rests on these facts. Source: protocol.md 10.3, CouchDB's
 * mango_idx_view and mango_selector. Pure.
 */
import { compareJson } from './collation.ts'
import { comparisons, INDEXABLE, type NormalSelector } from './normal-selector.ts'

/** An end of a range of values; null where the range is open. An index reads values equal to an end as well. */
interface RangeEnd {
  readonly value: unknown
  readonly inclusive: boolean
}

/** The values that meet all comparisons of a field. */
export interface FieldRange {
  readonly field: string
  readonly low: RangeEnd | null
  readonly high: RangeEnd | null
  /** Whether no value meets them. */
  readonly isEmpty: boolean
}

/**
 * The ranges of all fields that the selector compares, by name and in the order of their names. As in CouchDB, a range
 * without values makes all others irrelevant, so it is the only one then.
 */
export function fieldRanges(selector: NormalSelector): ReadonlyMap<string, FieldRange> {
  const ranges = new Map<string, FieldRange>()
  for (const { field, operator, arg } of comparisons(selector)) {
    if (!INDEXABLE.has(operator)) continue
    const range = ranges.get(field) ?? { field, low: null, high: null, isEmpty: false }
    ranges.set(field, narrowed(range, operator, arg))
  }
  const sorted = [...ranges].sort(([a], [b]) => (a < b ? -1 : 1))
  const empty = sorted.find(([, { isEmpty }]) => isEmpty)
  return new Map(empty === undefined ? sorted : [empty])
}

/** The highest string of ICU's root collation. */
const HIGHEST = '\uffff'

function narrowed(range: FieldRange, operator: string, arg: unknown): FieldRange {
  const inclusive = { value: arg, inclusive: true }
  const exclusive = { value: arg, inclusive: false }
  switch (operator) {
    case '$lt':
      return between(range, null, exclusive)
    case '$lte':
      return between(range, null, inclusive)
    case '$gt':
      return between(range, exclusive, null)
    case '$gte':
      return between(range, inclusive, null)
    case '$eq':
      return between(range, inclusive, inclusive)
    case '$beginsWith':
      return between(range, inclusive, { value: `${arg as string}${HIGHEST}`, inclusive: true })
    default:
      return range
  }
}

function between(range: FieldRange, low: RangeEnd | null, high: RangeEnd | null): FieldRange {
  const { field } = range
  const [from, to] = [stricter(range.low, low, 1), stricter(range.high, high, -1)]
  const order = from === null || to === null ? -1 : compareJson(from.value, to.value)
  const isEmpty = order > 0 || (order === 0 && !(from?.inclusive && to?.inclusive))
  return { field, low: from, high: to, isEmpty: range.isEmpty || isEmpty }
}

function stricter(a: RangeEnd | null, b: RangeEnd | null, direction: number): RangeEnd | null {
  if (a === null || b === null) return a ?? b
  const order = compareJson(a.value, b.value) * direction
  if (order === 0) return a.inclusive ? b : a
  return order > 0 ? a : b
}

/** The fields that every matching document has; `all` if no document matches. */
export type RequiredFields = ReadonlySet<string> | 'all'

/** The fields that a document must have in order to match. */
export function requiredFields(selector: NormalSelector): RequiredFields {
  const [member] = Object.entries(selector)
  if (member === undefined) return new Set()
  const [name, value] = member
  if (name === '$and') return union((value as NormalSelector[]).map(requiredFields))
  if (name === '$or') return intersection((value as NormalSelector[]).map(requiredFields))
  const condition = value as NormalSelector
  return new Set(condition?.$exists === false ? [] : [name])
}

function union(sets: readonly RequiredFields[]): RequiredFields {
  return sets.includes('all') ? 'all' : new Set(sets.flatMap((fields) => [...fields]))
}

function intersection(sets: readonly RequiredFields[]): RequiredFields {
  const [first, ...others] = sets.filter((fields) => fields !== 'all')
  if (first === undefined) return 'all'
  return new Set([...first].filter((field) => others.every((fields) => fields.has(field))))
}

/** The fields that have the same value in every matching document. */
export function constantFields(selector: NormalSelector): ReadonlySet<string> {
  const equalities = [...comparisons(selector)].filter(({ operator }) => operator === '$eq')
  return new Set(equalities.map(({ field }) => field))
}
