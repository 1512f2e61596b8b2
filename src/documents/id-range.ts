/** Ranges of ids for `_all_docs` and its kin: what a query asks for, within the ids of its kind. Pure. */

import { compareUtf8 } from '../core/bytes.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import type { IdRange } from '../storage/engine.ts'
import type { AllDocsKind, AllDocsQuery } from './database.ts'

export const KIND_PREFIX: Readonly<Record<AllDocsKind, string>> = {
  all: '',
  design: DESIGN_PREFIX,
  local: LOCAL_PREFIX,
}

type Bound = NonNullable<IdRange['start']>

/** The ids a query asks for, in its direction; null when there can be none. */
export function queryRange(kind: AllDocsKind, query: AllDocsQuery): IdRange | null {
  const descending = query.descending ?? false
  const startKey = query.key ?? query.startKey
  const endKey = query.key ?? query.endKey
  const start = startKey === undefined ? undefined : { id: startKey, inclusive: true }
  const end =
    endKey === undefined
      ? undefined
      : { id: endKey, inclusive: query.key !== undefined || query.inclusiveEnd !== false }
  const [low, high] = descending ? [end, start] : [start, end]
  return directed(higher(low, kindLow(kind)), lower(high, kindHigh(kind)), descending)
}

/** The documents of the kind that stand before the first that a query asks for; null when there are none. */
export function rangeBefore(kind: AllDocsKind, query: AllDocsQuery): IdRange | null {
  const first = query.key ?? query.startKey
  if (first === undefined) return null
  const end = { id: first, inclusive: false }
  return query.descending
    ? directed(higher(end, kindLow(kind)), kindHigh(kind), false)
    : directed(kindLow(kind), lower(end, kindHigh(kind)), false)
}

/** Every id of a kind. */
export function kindRange(kind: AllDocsKind): IdRange {
  return directed(kindLow(kind), kindHigh(kind), false) ?? {}
}

function kindLow(kind: AllDocsKind): Bound | undefined {
  return kind === 'all' ? undefined : { id: KIND_PREFIX[kind], inclusive: true }
}

/** `0` is the character after `/`. */
function kindHigh(kind: AllDocsKind): Bound | undefined {
  return kind === 'all' ? undefined : { id: KIND_PREFIX[kind].replace('/', '0'), inclusive: false }
}

/** The bound of a range's beginning that lets less pass. */
export function higher(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  return stricter(a, b, 1)
}

/** The bound of a range's end that lets less pass. */
export function lower(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  return stricter(a, b, -1)
}

/** The bound that lets less pass: of two at one id, the one that excludes it. */
function stricter(a: Bound | undefined, b: Bound | undefined, direction: number): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b
  const order = compareUtf8(a.id, b.id) * direction
  if (order === 0) return a.inclusive ? b : a
  return order > 0 ? a : b
}

/** A range with these bounds; null when nothing lies between them. */
export function directed(
  low: Bound | undefined,
  high: Bound | undefined,
  descending: boolean,
): IdRange | null {
  if (low !== undefined && high !== undefined && compareUtf8(low.id, high.id) > 0) return null
  const [start, end] = descending ? [high, low] : [low, high]
  return { ...(start && { start }), ...(end && { end }), descending }
}
