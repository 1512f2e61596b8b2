/**
 * The conditions of selectors that contain no further selectors, such as `$gt` and `$in`, as predicates of an existing
 * value. Source: protocol.md 10.2, CouchDB's mango_selector.
 */
import { CouchError } from '../core/errors.ts'
import { type Compare, compareRaw } from './collation.ts'
import { type Budget, compileRegex, LOOKUP, type Spend, stepsThrough, stepsToCompare } from './regex.ts'

export type Predicate = (value: unknown) => boolean

/** Compiles a condition with its argument. @throws bad_arg for an argument of the wrong type */
type Condition = (arg: unknown, compare: Compare, budget: Budget) => Predicate

/** Serializing a value costs this many times as much as visiting it. */
const SERIALIZATION_FACTOR = 3

/** An error quotes at most this many characters of an argument. */
const MAX_QUOTED = 200

/** The condition that replaces a negated one, for conditions that have an opposite. */
export const OPPOSITES: Readonly<Record<string, string>> = {
  $lt: '$gte',
  $lte: '$gt',
  $eq: '$ne',
  $ne: '$eq',
  $gte: '$lt',
  $gt: '$lte',
  $in: '$nin',
  $nin: '$in',
}

const CONDITIONS: Readonly<Record<string, Condition>> = {
  $lt: comparing((order) => order < 0),
  $lte: comparing((order) => order <= 0),
  $eq: comparing((order) => order === 0),
  $ne: comparing((order) => order !== 0),
  $gte: comparing((order) => order >= 0),
  $gt: comparing((order) => order > 0),
  $in: (arg, compare, { spend }) => isAmong(listOf('$in', arg), compare, spend),
  $nin: (arg, compare, { spend }) => not(isAmong(listOf('$nin', arg), compare, spend)),
  $type: (arg) => {
    const expected = textOf('$type', arg)
    return (value) => typeName(value) === expected
  },
  $size: (arg) => {
    if (!Number.isInteger(arg) || (arg as number) < 0) throw badArgument('$size', arg)
    return (value) => Array.isArray(value) && value.length === arg
  },
  $mod: (arg) => {
    const [divisor, remainder] = divisionOf(arg)
    return (value) => Number.isInteger(value) && (value as number) % divisor === remainder
  },
  $regex: (arg, _compare, budget) => {
    const matches = compileRegex(textOf('$regex', arg), budget)
    return (value) => typeof value === 'string' && matches(value)
  },
  $beginsWith: (arg) => {
    const beginning = textOf('$beginsWith', arg)
    return (value) => typeof value === 'string' && value.startsWith(beginning)
  },
  $all: (arg, _compare, { spend }) => hasAll(listOf('$all', arg), spend),
}

/**
 * Compiles a condition.
 * @param isNegated uses the opposite condition if there is one, and otherwise inverts the result
 * @param budget of the selector
 * @throws invalid_operator, not_supported; bad_arg for an argument of the wrong type
 */
export function compileCondition(
  operator: string,
  arg: unknown,
  compare: Compare,
  isNegated: boolean,
  budget: Budget,
): Predicate {
  const make = Object.hasOwn(CONDITIONS, operator) ? CONDITIONS[operator] : undefined
  if (make === undefined) throw unknownOperator(operator)
  // Its error names the operator of the client, not the opposite one.
  const matches = make(arg, compare, budget)
  if (!isNegated) return matches
  const opposite = OPPOSITES[operator]
  return opposite === undefined ? not(matches) : (CONDITIONS[opposite] as Condition)(arg, compare, budget)
}

function comparing(isExpected: (order: number) => boolean): Condition {
  return (arg, compare, { spend }) =>
    (value) => {
      spend(stepsToCompare(value, arg))
      return isExpected(compare(value, arg))
    }
}

/** CouchDB knows and refuses these, except `$text`, which needs an index that settee does not have. */
const UNSUPPORTED = new Set(['$text', '$where', '$geoWithin', '$geoIntersects', '$near', '$nearSphere'])

function unknownOperator(operator: string): CouchError {
  const name = operator.slice(0, MAX_QUOTED)
  return UNSUPPORTED.has(operator)
    ? new CouchError('not_supported', `Unsupported operator: ${name}`)
    : new CouchError('invalid_operator', `Invalid operator: ${name}`)
}

export function badArgument(operator: string, arg: unknown): CouchError {
  const quoted = (JSON.stringify(arg) ?? '').slice(0, MAX_QUOTED)
  return new CouchError('bad_arg', `Bad argument for operator ${operator}: ${quoted}`)
}

export function listOf(operator: string, arg: unknown): readonly unknown[] {
  if (!Array.isArray(arg)) throw badArgument(operator, arg)
  return arg
}

function textOf(operator: string, arg: unknown): string {
  if (typeof arg !== 'string') throw badArgument(operator, arg)
  return arg
}

function divisionOf(arg: unknown): [divisor: number, remainder: number] {
  const isDivision = Array.isArray(arg) && arg.length === 2 && arg.every(Number.isInteger) && arg[0] !== 0
  if (!isDivision) throw badArgument('$mod', arg)
  return arg as [number, number]
}

export function not(matches: Predicate): Predicate {
  return (value) => !matches(value)
}

/** In ICU's collation, too, two different strings of this kind are never equal. */
const ASCII = /^[ -~]*$/

/** Whether a value can be found among others of its kind by identity alone, as in a Set. */
function isSimple(value: unknown): boolean {
  return typeof value === 'string' ? ASCII.test(value) : typeof value !== 'object' || value === null
}

/** Sorting the remaining values of a list may take this many steps. */
const MAX_SORT = 4_000_000

/** The values of a list that are not simple, sorted. @throws invalid_selector if sorting would take too long */
function sortedValues(list: readonly unknown[], compare: Compare): unknown[] {
  const values = list.filter((value) => !isSimple(value))
  const steps = values.reduce<number>((sum, value) => sum + stepsThrough(value), 0)
  if (steps * Math.log2(values.length + 1) > MAX_SORT) {
    throw new CouchError(
      'invalid_selector',
      'Selector error: it is too much work because one of its lists is too large',
    )
  }
  return values.sort(compare)
}

/** Tests the value itself or, if it is an array, each of its elements. */
function isAmong(list: readonly unknown[], compare: Compare, spend: Spend): Predicate {
  const simple = new Set(list.filter(isSimple))
  const others = sortedValues(list, compare)
  let strings: readonly unknown[] | undefined
  /** The simple strings, sorted: the collation may hold another string equal to one of them. */
  const sortedStrings = () => {
    if (strings !== undefined) return strings
    const unsorted = [...simple].filter((value) => typeof value === 'string')
    spend(unsorted.length * Math.log2(unsorted.length + 1) * LOOKUP)
    strings = unsorted.sort(compare)
    return strings
  }
  const isListed = (value: unknown): boolean => {
    spend(LOOKUP)
    if (simple.has(value) || isIn(others, value, compare, spend)) return true
    const mayDiffer = typeof value === 'string' && compare !== compareRaw && !isSimple(value)
    return mayDiffer && isIn(sortedStrings(), value, compare, spend)
  }
  const isElementListed = (value: unknown): boolean => {
    spend(LOOKUP)
    return isListed(value)
  }
  return (value) => (Array.isArray(value) ? value.some(isElementListed) : isListed(value))
}

function isIn(sorted: readonly unknown[], value: unknown, compare: Compare, spend: Spend): boolean {
  let low = 0
  let high = sorted.length - 1
  while (low <= high) {
    const middle = (low + high) >> 1
    spend(stepsToCompare(value, sorted[middle]))
    const order = compare(value, sorted[middle])
    if (order === 0) return true
    if (order < 0) high = middle - 1
    else low = middle + 1
  }
  return false
}

/**
 * The values must be identical, not merely equal in the collation. As in CouchDB, `$all` with a single array also
 * matches that array itself.
 */
function hasAll(list: readonly unknown[], spend: Spend): Predicate {
  const expected = list.map((value) => JSON.stringify(value))
  const only = list.length === 1 && Array.isArray(list[0]) ? expected[0] : undefined
  return (value) => {
    if (!Array.isArray(value) || expected.length === 0) return false
    spend(SERIALIZATION_FACTOR * stepsThrough(value))
    const elements = new Set(value.map((element) => JSON.stringify(element)))
    return (
      expected.every((text) => elements.has(text)) || (only !== undefined && JSON.stringify(value) === only)
    )
  }
}

function typeName(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}
