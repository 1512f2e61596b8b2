/**
 * Conditions of selectors that hold no selectors themselves, such as `$gt` and `$in`: what each lets through of a value
 * that is there. Source: protocol.md 10.2, CouchDB's mango_selector.
 */
import { CouchError } from '../core/errors.ts'
import type { Compare } from './collation.ts'
import { compileRegex } from './regex.ts'

export type Predicate = (value: unknown) => boolean

/** Makes a condition of its argument. @throws invalid_selector for an argument of the wrong kind */
type Condition = (arg: unknown, compare: Compare) => Predicate

/** Characters of an argument that an error repeats. */
const TOLD = 200

/** What takes the place of a condition that is negated, for those where there is such a one. */
const OPPOSITES: Readonly<Record<string, string>> = {
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
  $lt: (arg, compare) => (value) => compare(value, arg) < 0,
  $lte: (arg, compare) => (value) => compare(value, arg) <= 0,
  $eq: (arg, compare) => (value) => compare(value, arg) === 0,
  $ne: (arg, compare) => (value) => compare(value, arg) !== 0,
  $gte: (arg, compare) => (value) => compare(value, arg) >= 0,
  $gt: (arg, compare) => (value) => compare(value, arg) > 0,
  $in: (arg, compare) => isAmong(listOf('$in', arg), compare),
  $nin: (arg, compare) => not(isAmong(listOf('$nin', arg), compare)),
  $type: (arg) => {
    const wanted = textOf('$type', arg)
    return (value) => typeName(value) === wanted
  },
  $size: (arg) => {
    if (!Number.isInteger(arg) || (arg as number) < 0) throw badArgument('$size', arg)
    return (value) => Array.isArray(value) && value.length === arg
  },
  $mod: (arg) => {
    const [divisor, remainder] = divisionOf(arg)
    return (value) => Number.isInteger(value) && (value as number) % divisor === remainder
  },
  $regex: (arg) => {
    const matches = compileRegex(textOf('$regex', arg))
    return (value) => typeof value === 'string' && matches(value)
  },
  $beginsWith: (arg) => {
    const beginning = textOf('$beginsWith', arg)
    return (value) => typeof value === 'string' && value.startsWith(beginning)
  },
  $all: (arg) => hasAll(listOf('$all', arg)),
}

/**
 * Compiles a condition.
 * @param isNegated where there is an opposite, it is taken; any other condition is turned round as it is
 * @throws invalid_selector for an unknown operator, or an argument of the wrong kind
 */
export function compileCondition(
  operator: string,
  arg: unknown,
  compare: Compare,
  isNegated: boolean,
): Predicate {
  const make = Object.hasOwn(CONDITIONS, operator) ? CONDITIONS[operator] : undefined
  if (make === undefined) throw unknownOperator(operator)
  const opposite = isNegated ? OPPOSITES[operator] : undefined
  if (opposite !== undefined) return (CONDITIONS[opposite] as Condition)(arg, compare)
  return isNegated ? not(make(arg, compare)) : make(arg, compare)
}

/** Known to CouchDB, and refused by it, but for `$text`, which needs an index that settee does not have. */
const UNSUPPORTED = new Set(['$text', '$where', '$geoWithin', '$geoIntersects', '$near', '$nearSphere'])

function unknownOperator(operator: string): CouchError {
  const what = UNSUPPORTED.has(operator) ? 'Unsupported' : 'Invalid'
  return new CouchError('invalid_selector', `${what} operator: ${operator.slice(0, TOLD)}`)
}

export function badArgument(operator: string, arg: unknown): CouchError {
  const told = (JSON.stringify(arg) ?? '').slice(0, TOLD)
  return new CouchError('invalid_selector', `Bad argument for operator ${operator}: ${told}`)
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

/** The value itself or, where it is an array, any of its elements. */
function isAmong(list: readonly unknown[], compare: Compare): Predicate {
  const sorted = [...list].sort(compare)
  const isListed = (value: unknown): boolean => {
    let low = 0
    let high = sorted.length - 1
    while (low <= high) {
      const middle = (low + high) >> 1
      const order = compare(value, sorted[middle])
      if (order === 0) return true
      if (order < 0) high = middle - 1
      else low = middle + 1
    }
    return false
  }
  return (value) => (Array.isArray(value) ? value.some(isListed) : isListed(value))
}

/** Values are the same here, not merely equal in the order of keys; an array holds itself, as CouchDB has it. */
function hasAll(list: readonly unknown[]): Predicate {
  const wanted = list.map((value) => JSON.stringify(value))
  const only = list.length === 1 && Array.isArray(list[0]) ? wanted[0] : undefined
  return (value) => {
    if (!Array.isArray(value) || wanted.length === 0) return false
    const held = new Set(value.map((element) => JSON.stringify(element)))
    return wanted.every((text) => held.has(text)) || (only !== undefined && JSON.stringify(value) === only)
  }
}

function typeName(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}
