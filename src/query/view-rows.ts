/** Sorting, merging and searching the rows of a view. Pure, except that long work yields to the event loop. */
import { compareUtf8 } from '../core/bytes.ts'
import { Yielder } from '../core/event-loop.ts'
import type { Compare } from './collation.ts'
import type { KeyEdge, ViewQuery } from './view-query.ts'

/** One pair that a map function has emitted for a document. */
export interface ViewRow {
  readonly id: string
  /** The sequence number of the document when it was mapped. */
  readonly seq: number
  readonly key: unknown
  /** JSON texts, as they are sent. */
  readonly keyText: string
  readonly valueText: string
}

/** A stretch of a list, from `from` up to but not including `to`. */
export interface Stretch {
  readonly from: number
  readonly to: number
}

/** How many items are sorted in one step, or merged between two checks of the clock. */
const STEP = 256

/** Returns a number below 0 if `a` comes first, above 0 if `b` comes first, and 0 to keep their order. */
type Comparison<T> = (a: T, b: T) => number

/** Orders rows by key, then by document id. Rows of one document with equal keys keep their order. */
export function rowOrder(order: Compare): Comparison<ViewRow> {
  return (a, b) => order(a.key, b.key) || compareUtf8(a.id, b.id)
}

/** Stable sort in steps, so a long list does not block the thread. May reorder `items`. */
export async function sortInSteps<T>(items: T[], compare: Comparison<T>): Promise<readonly T[]> {
  if (items.length <= STEP) return items.sort(compare)
  const runs = new Runs(compare)
  for (let at = 0; at < items.length; at += STEP) await runs.add(items.slice(at, at + STEP).sort(compare))
  return runs.all()
}

/** Merges two sorted lists, in steps. Of equal items, those of `a` come first. */
export async function mergeSorted<T>(
  a: readonly T[],
  b: readonly T[],
  compare: Comparison<T>,
  yielder = new Yielder(),
): Promise<readonly T[]> {
  if (a.length === 0) return b
  if (b.length === 0) return a
  const merged: T[] = []
  let left = 0
  let right = 0
  while (left < a.length && right < b.length) {
    if (merged.length % STEP === 0) await yielder.yieldIfDue()
    const first = a[left] as T
    const second = b[right] as T
    if (compare(first, second) <= 0) {
      merged.push(first)
      left += 1
    } else {
      merged.push(second)
      right += 1
    }
  }
  for (; left < a.length; left++) merged.push(a[left] as T)
  for (; right < b.length; right++) merged.push(b[right] as T)
  return merged
}

/** Collects sorted lists and merges them so that each item is moved O(log n) times. */
export class Runs<T> {
  readonly #compare: Comparison<T>
  readonly #runs: (readonly T[])[] = []
  readonly #yielder = new Yielder()

  constructor(compare: Comparison<T>) {
    this.#compare = compare
  }

  /** @param run sorted */
  async add(run: readonly T[]): Promise<void> {
    this.#runs.push(run)
    await this.#yielder.yieldIfDue()
    while (this.#runs.length > 1 && this.#shouldMerge()) await this.#mergeLast()
  }

  #shouldMerge(): boolean {
    const [before, last] = this.#runs.slice(-2) as [readonly T[], readonly T[]]
    return before.length <= 2 * last.length
  }

  async #mergeLast(): Promise<void> {
    const last = this.#runs.pop() as readonly T[]
    const before = this.#runs.pop() as readonly T[]
    this.#runs.push(await mergeSorted(before, last, this.#compare, this.#yielder))
  }

  /** Merges all lists into one. */
  async all(): Promise<readonly T[]> {
    while (this.#runs.length > 1) await this.#mergeLast()
    return this.#runs.pop() ?? []
  }
}

/**
 * The stretch of rows between the start and the end of a query. `from` is the lower index, even for descending queries.
 */
export function stretchOf(
  rows: readonly ViewRow[],
  { start, end, inclusiveEnd, descending }: Pick<ViewQuery, 'start' | 'end' | 'inclusiveEnd' | 'descending'>,
  order: Compare,
): Stretch {
  const low = descending ? end : start
  const high = descending ? start : end
  // An exclusive end excludes all rows equal to it. In a descending query the end is the lower edge.
  const from = low === undefined ? 0 : indexAfter(rows, low, order, descending && !inclusiveEnd)
  const to = high === undefined ? rows.length : indexAfter(rows, high, order, descending || inclusiveEnd)
  return { from, to: Math.max(from, to) }
}

/** The index after the last row below the edge; with `beyondEqual`, also after the rows equal to it. */
function indexAfter(rows: readonly ViewRow[], edge: KeyEdge, order: Compare, beyondEqual: boolean): number {
  let low = 0
  let high = rows.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const compared = compareToEdge(rows[middle] as ViewRow, edge, order)
    if (compared < 0 || (beyondEqual && compared === 0)) low = middle + 1
    else high = middle
  }
  return low
}

function compareToEdge(row: ViewRow, { key, docId }: KeyEdge, order: Compare): number {
  const compared = order(row.key, key)
  return compared !== 0 || docId === undefined ? compared : compareUtf8(row.id, docId)
}
