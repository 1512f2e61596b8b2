/**
 * CouchDB's normal form of selectors (protocol.md 10.2 and 10.3): each object has one member, each field has an
 * operator, and only conditions are negated. `_explain` shows this form, and the range of ids that can match is derived
 * from it. Pure.
 */
import { isJsonObject } from '../core/json.ts'
import { higher, lower } from '../documents/all-docs-query.ts'
import type { IdRange } from '../storage/engine.ts'
import { OPPOSITES } from './conditions.ts'
import { compileSelector } from './selector.ts'

export type NormalSelector = Readonly<Record<string, unknown>>

type Bound = NonNullable<IdRange['start']>

/** The bounds of the ids of all documents that can match, in ascending order. */
interface IdBounds {
  readonly low: Bound | undefined
  readonly high: Bound | undefined
}

/** Operators whose arguments are selectors. Negations within the element operators are not moved. */
const JUNCTIONS: ReadonlySet<string> = new Set(['$and', '$or', '$nor'])
const ELEMENT_OPERATORS: ReadonlySet<string> = new Set(['$elemMatch', '$allMatch', '$keyMapMatch'])
/** The conditions that an index can answer. `$exists` does not narrow the search, but an index has the values. */
export const INDEXABLE: ReadonlySet<string> = new Set([
  '$lt',
  '$lte',
  '$eq',
  '$gte',
  '$gt',
  '$beginsWith',
  '$exists',
])

/**
 * Compiles a selector for its errors only, and converts it.
 * @throws the errors of `compileSelector`
 */
export function checkedSelector(selector: unknown): NormalSelector {
  compileSelector(selector)
  return normalSelector(selector as NormalSelector)
}

/**
 * Converts a selector to CouchDB's normal form.
 * @param selector one that `compileSelector` has accepted, so its depth and size are limited
 */
export function normalSelector(selector: Readonly<Record<string, unknown>>): NormalSelector {
  return Object.keys(selector).length === 0
    ? {}
    : pushNegations(withFields(withOperators(selector), ''), false)
}

/** Turns several members into `$and`, and a value without an operator into `$eq`. */
function withOperators(selector: unknown): NormalSelector {
  const members = isJsonObject(selector) ? Object.entries(selector) : []
  const [first] = members
  if (first === undefined) return { $eq: selector }
  if (members.length > 1) return { $and: members.map(([name, value]) => withOperators({ [name]: value })) }
  const [name, value] = first
  if (JUNCTIONS.has(name)) return { [name]: (value as readonly unknown[]).map(withOperators) }
  if (name === '$not' || ELEMENT_OPERATORS.has(name)) return { [name]: withOperators(value) }
  return name.startsWith('$') ? { [name]: value } : { [name]: withOperators(value) }
}

/** Gives nested fields their full names and puts each directly above its operator; '' for the value itself. */
function withFields(selector: NormalSelector, field: string): NormalSelector {
  const [name, value] = onlyMember(selector)
  if (JUNCTIONS.has(name))
    return { [name]: (value as NormalSelector[]).map((each) => withFields(each, field)) }
  if (name === '$not') return { $not: withFields(value as NormalSelector, field) }
  if (ELEMENT_OPERATORS.has(name)) return { [field]: { [name]: withFields(value as NormalSelector, '') } }
  if (name.startsWith('$')) return { [field]: { [name]: value } }
  return withFields(value as NormalSelector, field === '' ? name : `${field}.${name}`)
}

function pushNegations(selector: NormalSelector, isNegated: boolean): NormalSelector {
  const [name, value] = onlyMember(selector)
  switch (name) {
    case '$not':
      return pushNegations(value as NormalSelector, !isNegated)
    case '$nor':
      return pushNegations({ $or: value }, !isNegated)
    case '$and':
    case '$or': {
      const isAnd = (name === '$and') !== isNegated
      return {
        [isAnd ? '$and' : '$or']: (value as NormalSelector[]).map((each) => pushNegations(each, isNegated)),
      }
    }
  }
  if (!isNegated) return selector
  if (name.startsWith('$')) return negatedCondition(name, value)
  return { [name]: negatedCondition(...onlyMember(value as NormalSelector)) }
}

function negatedCondition(operator: string, arg: unknown): NormalSelector {
  if (operator === '$exists') return { $exists: arg !== true }
  const opposite = OPPOSITES[operator]
  return opposite === undefined ? { $not: { [operator]: arg } } : { [opposite]: arg }
}

function onlyMember(selector: NormalSelector): readonly [name: string, value: unknown] {
  return Object.entries(selector)[0] as [string, unknown]
}

/** A condition that every matching document must meet. */
export interface Comparison {
  readonly field: string
  readonly operator: string
  readonly arg: unknown
}

/** The conditions of all matching documents: those outside of `$or`. */
export function* comparisons(selector: NormalSelector): Generator<Comparison> {
  const [member] = Object.entries(selector)
  if (member === undefined) return
  const [name, value] = member
  if (name === '$and') for (const each of value as NormalSelector[]) yield* comparisons(each)
  else if (!name.startsWith('$')) {
    const [operator, arg] = onlyMember(value as NormalSelector)
    yield { field: name, operator, arg }
  }
}

/** The fields whose conditions an index can answer, without duplicates. */
export function indexableFields(selector: NormalSelector): readonly string[] {
  const found = [...comparisons(selector)].filter(({ operator }) => INDEXABLE.has(operator))
  return [...new Set(found.map(({ field }) => field))].sort()
}

/** All fields outside of array elements, without duplicates. */
export function fieldsOf(selector: NormalSelector): readonly string[] {
  const fields = new Set<string>()
  const visit = (part: NormalSelector): void => {
    const [member] = Object.entries(part)
    if (member === undefined) return
    const [name, value] = member
    if (name === '$and' || name === '$or') for (const each of value as NormalSelector[]) visit(each)
    else if (!name.startsWith('$')) fields.add(name)
  }
  visit(selector)
  return [...fields].sort()
}

/** The bounds of the ids of all documents that can match; null if none can. */
export function idBounds(selector: NormalSelector): IdBounds | null {
  let bounds: IdBounds = { low: undefined, high: undefined }
  for (const { field, operator, arg } of comparisons(selector)) {
    const narrower = field === '_id' ? boundsOf(operator, arg) : undefined
    if (narrower === null) return null
    if (narrower === undefined) continue
    bounds = { low: higher(bounds.low, narrower.low), high: lower(bounds.high, narrower.high) }
  }
  return bounds
}

/** @returns undefined if the comparison sets no bounds, null if no id can meet it */
function boundsOf(operator: string, arg: unknown): IdBounds | null | undefined {
  if (operator === '$in') return boundsOfList(arg as readonly unknown[])
  if (!INDEXABLE.has(operator) || operator === '$exists') return undefined
  // Ids are strings, which sort after all other values.
  if (typeof arg !== 'string') return operator === '$gt' || operator === '$gte' ? undefined : null
  if (!arg.isWellFormed()) return undefined
  const bound = { id: arg, inclusive: operator !== '$lt' && operator !== '$gt' }
  switch (operator) {
    case '$lt':
    case '$lte':
      return { low: undefined, high: bound }
    case '$gt':
    case '$gte':
      return { low: bound, high: undefined }
    case '$eq':
      return { low: bound, high: bound }
    default:
      return { low: bound, high: endOfPrefix(arg) }
  }
}

/** The bounds from the lowest to the highest of a list of ids. */
function boundsOfList(ids: readonly unknown[]): IdBounds | null | undefined {
  let bounds: IdBounds | null = null
  for (const id of ids) {
    if (typeof id !== 'string') continue
    if (!id.isWellFormed()) return undefined
    const bound = { id, inclusive: true }
    // To widen the range, `lower` and `higher` change places: as bounds they select the stricter one.
    bounds =
      bounds === null
        ? { low: bound, high: bound }
        : { low: lower(bounds.low, bound), high: higher(bounds.high, bound) }
  }
  return bounds
}

const LAST_POINT = 0x10ffff
/** The first code point after the surrogates, which are not characters. */
const AFTER_SURROGATES = 0xe000

/** The end of the range of all strings with a prefix; undefined if the range has no end. */
function endOfPrefix(prefix: string): Bound | undefined {
  const points = [...prefix].map((character) => character.codePointAt(0) as number)
  while (points.at(-1) === LAST_POINT) points.pop()
  const last = points.pop()
  if (last === undefined) return undefined
  const next = last === 0xd7ff ? AFTER_SURROGATES : last + 1
  return { id: String.fromCodePoint(...points, next), inclusive: false }
}
