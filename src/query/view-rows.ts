/** The rows of a view in their order, and stretches of them. Pure, but for taking breath. */
import { Breath } from '../core/breath.ts'
import { compareUtf8 } from '../core/bytes.ts'
import type { Compare } from './collation.ts'
import type { KeyEdge, ViewQuery } from './view-query.ts'

/** What a map function has emitted for a document. */
export interface ViewRow {
  readonly id: string
  /** The document's place in the feed when it was mapped. */
  readonly seq: number
  readonly key: unknown
  /** JSON texts, as they are answered. */
  readonly keyText: string
  readonly valueText: string
}

/** A stretch of a list: from `from` up to, not including, `to`. */
export interface Stretch {
  readonly from: number
  readonly to: number
}

/** Rows compared between two looks at the clock. */
const STEP = 256

/** By key, then by the document's id; what one document emits for equal keys stays as it was emitted. */
function compareRows(order: Compare, a: ViewRow, b: ViewRow): number {
  return order(a.key, b.key) || compareUtf8(a.id, b.id)
}

/** Sorts the few rows of one page of documents; stable. */
export function sortRows(rows: ViewRow[], order: Compare): ViewRow[] {
  return rows.sort((a, b) => compareRows(order, a, b))
}

/** Two sorted lists as one, in steps, so that long ones hold up nobody. */
export async function mergeRows(
  a: readonly ViewRow[],
  b: readonly ViewRow[],
  order: Compare,
): Promise<readonly ViewRow[]> {
  if (a.length === 0) return b
  if (b.length === 0) return a
  const merged: ViewRow[] = []
  const breath = new Breath()
  let left = 0
  let right = 0
  while (left < a.length && right < b.length) {
    if (merged.length % STEP === 0) await breath.take()
    const first = a[left] as ViewRow
    const second = b[right] as ViewRow
    if (compareRows(order, first, second) <= 0) {
      merged.push(first)
      left += 1
    } else {
      merged.push(second)
      right += 1
    }
  }
  for (; left < a.length; left++) merged.push(a[left] as ViewRow)
  for (; right < b.length; right++) merged.push(b[right] as ViewRow)
  return merged
}

/** Sorted lists gathered one after another; merged so that each row is moved O(log n) times. */
export class Runs {
  readonly #order: Compare
  readonly #runs: (readonly ViewRow[])[] = []

  constructor(order: Compare) {
    this.#order = order
  }

  /** @param run sorted */
  async add(run: readonly ViewRow[]): Promise<void> {
    this.#runs.push(run)
    while (this.#runs.length > 1 && this.#shouldMerge()) await this.#mergeLast()
  }

  #shouldMerge(): boolean {
    const [before, last] = this.#runs.slice(-2) as [readonly ViewRow[], readonly ViewRow[]]
    return before.length <= 2 * last.length
  }

  async #mergeLast(): Promise<void> {
    const last = this.#runs.pop() as readonly ViewRow[]
    const before = this.#runs.pop() as readonly ViewRow[]
    this.#runs.push(await mergeRows(before, last, this.#order))
  }

  /** All of them as one list. */
  async all(): Promise<readonly ViewRow[]> {
    while (this.#runs.length > 1) await this.#mergeLast()
    return this.#runs.pop() ?? []
  }
}

/** The rows that a query's start and end leave, in ascending places whichever way the query reads. */
export function stretchOf(
  rows: readonly ViewRow[],
  { start, end, inclusiveEnd, descending }: Pick<ViewQuery, 'start' | 'end' | 'inclusiveEnd' | 'descending'>,
  order: Compare,
): Stretch {
  const low = descending ? end : start
  const high = descending ? start : end
  // An end that is excluded takes the rows equal to it along, at whichever side it stands.
  const from = low === undefined ? 0 : place(rows, low, order, descending && !inclusiveEnd)
  const to = high === undefined ? rows.length : place(rows, high, order, descending || inclusiveEnd)
  return { from, to: Math.max(from, to) }
}

/** The first place behind every row below the edge, or, with `beyondEqual`, behind those equal to it too. */
function place(rows: readonly ViewRow[], edge: KeyEdge, order: Compare, beyondEqual: boolean): number {
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
