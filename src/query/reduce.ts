/** CouchDB's own reduce functions, protocol.md 9.3. Pure: rows in, the JSON text of a value out. */
import { isJsonObject } from '../core/json.ts'
import { builtinReduce } from '../documents/design-docs.ts'
import { type Compare, compareJson } from './collation.ts'
import type { ViewRow } from './view-rows.ts'

/** Reduces one group of rows, which are added in the order of their keys. */
interface Reducer {
  add(row: ViewRow): void
  /** The JSON text of the result. */
  result(): string
}

/**
 * Creates a reducer for one group of rows.
 * @param text the view's reduce function, as the design document has it
 * @param order the order of the view's keys
 * @throws invalid_design_doc if an older version has stored a name that is not valid
 */
export function builtinReducer(text: string, order: Compare): Reducer {
  const { name, rank } = builtinReduce(text)
  switch (name) {
    case '_count':
      return rowCounter()
    case '_sum':
      return summer()
    case '_stats':
      return statistics()
    case '_first':
      return edgeValue(false)
    case '_last':
      return edgeValue(true)
    case '_top':
      return ranker(rank, (a, b) => compareJson(b, a))
    case '_bottom':
      return ranker(rank, compareJson)
    default:
      return keyCounter(order)
  }
}

function rowCounter(): Reducer {
  let count = 0
  return {
    add: () => {
      count += 1
    },
    result: () => String(count),
  }
}

/**
 * The rows are sorted, so each key that differs from the previous one is new. The count is exact and needs no memory.
 */
function keyCounter(order: Compare): Reducer {
  let count = 0
  let last: ViewRow | undefined
  return {
    add: (row) => {
      if (last === undefined || order(last.key, row.key) !== 0) count += 1
      last = row
    },
    result: () => String(count),
  }
}

function edgeValue(isLast: boolean): Reducer {
  let kept: string | undefined
  return {
    add: ({ valueText }) => {
      if (isLast || kept === undefined) kept = valueText
    },
    result: () => kept ?? 'null',
  }
}

/** Keeps the first `count` different values of an order. */
function ranker(count: number, order: Compare): Reducer {
  const best: unknown[] = []
  return {
    add: ({ valueText }) => {
      const value: unknown = JSON.parse(valueText)
      const at = best.findIndex((other) => order(value, other) <= 0)
      if (at !== -1 && order(value, best[at]) === 0) return
      best.splice(at === -1 ? best.length : at, 0, value)
      if (best.length > count) best.pop()
    },
    result: () => JSON.stringify(best),
  }
}

/** A value that cannot be reduced. Like CouchDB, settee sends an object with the error in place of the result. */
class ReduceFault extends Error {
  readonly value: unknown

  constructor(message: string, value: unknown) {
    super(message)
    this.value = value
  }

  toJson(): string {
    return JSON.stringify({ error: 'builtin_reduce_error', reason: this.message, caused_by: this.value })
  }
}

/** A reducer that folds values and stops at the first value that it cannot fold. */
function folder(fold: (value: unknown) => void, result: () => unknown): Reducer {
  let fault: ReduceFault | undefined
  return {
    add: ({ valueText }) => {
      if (fault !== undefined) return
      try {
        fold(JSON.parse(valueText))
      } catch (error) {
        if (!(error instanceof ReduceFault)) throw error
        fault = error
      }
    },
    result: () => fault?.toJson() ?? JSON.stringify(result()),
  }
}

const SUM_REASON =
  'The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects cannot be mixed ' +
  'with other data structures. Objects can be arbitrarily nested, provided that the values for all fields are ' +
  'themselves numbers, arrays of numbers, or objects.'

function summer(): Reducer {
  let total: unknown = 0
  return folder(
    (value) => {
      total = sum(total, value)
    },
    () => total,
  )
}

type Members = Record<string, unknown>

/** Adds numbers, lists element by element, and objects member by member. A number added to a list is a list of one. */
function sum(a: unknown, b: unknown): unknown {
  if (typeof a === 'number' && typeof b === 'number') return a + b
  if (b === null || (typeof b !== 'object' && typeof b !== 'number')) return fail(SUM_REASON, b)
  if (isJsonObject(b))
    return a === 0 || isJsonObject(a) ? sumMembers(a === 0 ? {} : a, b) : fail(SUM_REASON, b)
  if (isJsonObject(a)) return fail(SUM_REASON, b)
  return sumLists(listOf(a), listOf(b))
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [value]
}

function sumLists(a: readonly unknown[], b: readonly unknown[]): unknown[] {
  const length = Math.max(a.length, b.length)
  return Array.from({ length }, (_, at) => numberOf(a, at) + numberOf(b, at))
}

/** An element of a list; 0 after its end. */
function numberOf(list: readonly unknown[], at: number): number {
  const value = at < list.length ? list[at] : 0
  return typeof value === 'number' ? value : fail(SUM_REASON, value)
}

function sumMembers(a: unknown, b: Members): Members {
  const total = new Map(Object.entries(a as Members))
  for (const [name, value] of Object.entries(b)) total.set(name, sum(total.get(name) ?? 0, value))
  return Object.fromEntries(total)
}

function fail(reason: string, value: unknown): never {
  throw new ReduceFault(reason, value)
}

interface Statistics {
  sum: number
  count: number
  min: number
  max: number
  sumsqr: number
}

function statistics(): Reducer {
  let total: Statistics | Statistics[] | undefined
  return folder(
    (value) => {
      total = Array.isArray(value) ? mergeLists(total, value) : merge(total, value)
    },
    () => total ?? null,
  )
}

function mergeLists(total: Statistics | Statistics[] | undefined, values: readonly unknown[]): Statistics[] {
  const totals = total === undefined ? undefined : listOf(total)
  if (totals !== undefined && totals.length !== values.length) notNumbers(values)
  return values.map((value, at) => merge(totals?.[at] as Statistics | undefined, value))
}

function merge(total: Statistics | Statistics[] | undefined, value: unknown): Statistics {
  if (typeof value !== 'number' || Array.isArray(total)) return notNumbers(value)
  if (total === undefined) return { sum: value, count: 1, min: value, max: value, sumsqr: value * value }
  return {
    sum: total.sum + value,
    count: total.count + 1,
    min: Math.min(total.min, value),
    max: Math.max(total.max, value),
    sumsqr: total.sumsqr + value * value,
  }
}

function notNumbers(value: unknown): never {
  const text = JSON.stringify(value)
  return fail(
    `The _stats function requires that map values be numbers or arrays of numbers, not '${text}'`,
    value,
  )
}
