/**
 * CouchDB's own reduce functions, protocol.md 9.3. A reduction of some rows can be added to another one, so an index keeps
 * those of its buckets. Pure.
 */
import { isJsonObject } from '../core/json.ts'
import { builtinReduce } from '../documents/design-docs.ts'
import { type Compare, compareJson } from './collation.ts'

/** A row as reduce functions see it. */
export interface ReducedRow {
  readonly keyText: string
  readonly valueText: string
}

/** Reduces rows, and reductions of rows, in the order of their keys. */
export interface Reducer {
  /** Whether the result depends on the keys; otherwise `keyText` may be empty. */
  readonly usesKeys?: boolean
  add(row: ReducedRow): void
  /** Adds all rows of another reducer of this kind. @param state its {@link state} */
  addState(state: string): void
  /** A text that stands for the rows so far. */
  state(): string
  /** The JSON text of the result. */
  result(): string
}

/**
 * Creates a reducer.
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
  const result = () => String(count)
  return {
    add: () => {
      count += 1
    },
    addState: (state) => {
      count += Number(state)
    },
    state: result,
    result,
  }
}

/** The JSON of the state of {@link keyCounter}; the texts are JSON as well. */
type KeyCount = readonly [count: number, first: string, last: string]

/**
 * The rows are sorted, so each key that differs from the previous one is new. The count is exact and needs no memory.
 */
function keyCounter(order: Compare): Reducer {
  let count = 0
  let first: string | undefined
  let last: string | undefined
  const isLast = (key: string) =>
    last !== undefined && (last === key || order(JSON.parse(last), JSON.parse(key)) === 0)
  return {
    usesKeys: true,
    add: ({ keyText }) => {
      if (!isLast(keyText)) count += 1
      first ??= keyText
      last = keyText
    },
    addState: (state) => {
      const [others, theirFirst, theirLast] = JSON.parse(state) as KeyCount
      count += isLast(theirFirst) ? others - 1 : others
      first ??= theirFirst
      last = theirLast
    },
    state: () => JSON.stringify([count, first ?? 'null', last ?? 'null'] satisfies KeyCount),
    result: () => String(count),
  }
}

function edgeValue(isLast: boolean): Reducer {
  let kept: string | undefined
  const keep = (value: string) => {
    if (isLast || kept === undefined) kept = value
  }
  const result = () => kept ?? 'null'
  return { add: ({ valueText }) => keep(valueText), addState: keep, state: result, result }
}

/** Keeps the first `count` different values of an order. */
function ranker(count: number, order: Compare): Reducer {
  const best: unknown[] = []
  const insert = (value: unknown) => {
    const at = best.findIndex((other) => order(value, other) <= 0)
    if (at !== -1 && order(value, best[at]) === 0) return
    best.splice(at === -1 ? best.length : at, 0, value)
    if (best.length > count) best.pop()
  }
  const result = () => JSON.stringify(best)
  return {
    add: ({ valueText }) => insert(JSON.parse(valueText)),
    addState: (state) => {
      for (const value of JSON.parse(state) as unknown[]) insert(value)
    },
    state: result,
    result,
  }
}

/** A value that cannot be reduced. Like CouchDB, settee sends an object with the error in place of the result. */
class ReduceFault extends Error {
  readonly value: unknown

  constructor(message: string, value: unknown) {
    super(message)
    this.value = value
  }
}

/** The state of a {@link folder}: what it has folded, or the result that says why it could not. */
type Folded<S> = { readonly total: S } | { readonly fault: object }

/**
 * A reducer that folds values and stops at the first value that it cannot fold.
 * @param first the total of no values
 * @param fold adds a value to a total @param merge adds two totals
 */
function folder<S>(first: S, fold: (total: S, value: unknown) => S, merge: (a: S, b: S) => S): Reducer {
  let folded: Folded<S> = { total: first }
  const advance = (next: (total: S) => Folded<S>) => {
    if ('fault' in folded) return
    try {
      folded = next(folded.total)
    } catch (error) {
      if (!(error instanceof ReduceFault)) throw error
      const { message: reason, value } = error
      folded = { fault: { error: 'builtin_reduce_error', reason, caused_by: value } }
    }
  }
  return {
    add: ({ valueText }) => advance((total) => ({ total: fold(total, JSON.parse(valueText)) })),
    addState: (state) =>
      advance((total) => {
        const added = JSON.parse(state) as Folded<S>
        return 'fault' in added ? added : { total: merge(total, added.total) }
      }),
    state: () => JSON.stringify(folded),
    result: () => JSON.stringify('fault' in folded ? folded.fault : folded.total),
  }
}

const SUM_REASON =
  'The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects cannot be mixed ' +
  'with other data structures. Objects can be arbitrarily nested, provided that the values for all fields are ' +
  'themselves numbers, arrays of numbers, or objects.'

function summer(): Reducer {
  return folder<unknown>(0, sum, sum)
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
  readonly sum: number
  readonly count: number
  readonly min: number
  readonly max: number
  readonly sumsqr: number
}

/** null before the first value; a list if the values are lists. */
type Totals = Statistics | Statistics[] | null

function statistics(): Reducer {
  return folder<Totals>(null, (totals, value) => mergeTotals(totals, totalsOf(value)), mergeTotals)
}

function totalsOf(value: unknown): Statistics | Statistics[] {
  return Array.isArray(value) ? value.map(statisticsOf) : statisticsOf(value)
}

function statisticsOf(value: unknown): Statistics {
  if (isStatistics(value)) {
    const { sum, count, min, max, sumsqr } = value
    return { sum, count, min, max, sumsqr }
  }
  if (typeof value !== 'number') return notNumbers(value)
  return { sum: value, count: 1, min: value, max: value, sumsqr: value * value }
}

const STATISTICS: readonly (keyof Statistics)[] = ['sum', 'count', 'min', 'max', 'sumsqr']

/** Whether a document has stored the statistics of many values, which CouchDB adds to the others. */
function isStatistics(value: unknown): value is Statistics {
  return isJsonObject(value) && STATISTICS.every((name) => typeof value[name] === 'number')
}

/** Values that cannot be merged are not numbers, or lists of different lengths. */
function mergeTotals(a: Totals, b: Totals): Totals {
  if (a === null || b === null) return a ?? b
  if (!Array.isArray(a) && !Array.isArray(b)) return mergeStatistics(a, b)
  if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return notNumbers(valueIn(b))
  return a.map((each, at) => mergeStatistics(each, b[at] as Statistics))
}

function mergeStatistics(a: Statistics, b: Statistics): Statistics {
  return {
    sum: a.sum + b.sum,
    count: a.count + b.count,
    min: Math.min(a.min, b.min),
    max: Math.max(a.max, b.max),
    sumsqr: a.sumsqr + b.sumsqr,
  }
}

/** The value that an error quotes: that of a single row, else the sums. */
function valueIn(totals: Statistics | Statistics[]): unknown {
  return Array.isArray(totals) ? totals.map(({ sum }) => sum) : totals.sum
}

function notNumbers(value: unknown): never {
  const text = JSON.stringify(value)
  return fail(
    `The _stats function requires that map values be numbers or arrays of numbers, not '${text}'`,
    value,
  )
}
