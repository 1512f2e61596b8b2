/** Pages of rows, read from a range of ids in steps. */
import { CouchError } from '../../core/errors.ts'
import { isHeldLong } from '../../core/event-loop.ts'
import type { IdRange, Paging } from '../engine.ts'

/** Rows fetched at once while a page is filled. */
const FETCH = 100
/** The same with bodies: the last rows may be more than the page takes. */
const FETCH_BODIES = 25

/** Damaged rows in succession, after which the file counts as damaged. */
const MOST_DAMAGED = 1000

/** Whether documents that were read one by one have reached the bound {@link Paging.chars}. */
export class PageBound {
  readonly #chars: number | undefined
  #left: number
  #since: number | undefined

  constructor(chars: number | undefined) {
    this.#chars = chars
    this.#left = chars ?? 0
  }

  /** Begins to measure the time: at the first row, since the query before it may have waited for the disk. */
  begin(): void {
    if (this.#chars !== undefined) this.#since ??= performance.now()
  }

  /** Whether the page ends after a row, of which so many characters were read. */
  isReached(chars: number): boolean {
    if (this.#since === undefined) return false
    this.#left -= chars
    return this.#left <= 0 || isHeldLong(this.#since)
  }
}

/**
 * Whether a row belongs to a list, behind the last one. A statement finds rows by the keys of an index, of which a damaged one
 * also leads it past others; what the row itself proves may be something else.
 */
export type IsInPlace<Source> = (row: Source, last: Source | null) => boolean

/** The rows of a range of ids. */
export function inIdRange({ start, end, descending }: IdRange): IsInPlace<{ readonly id: string }> {
  const compared = (id: string, other: string) =>
    Buffer.compare(Buffer.from(id), Buffer.from(other)) * (descending ? -1 : 1)
  // Strings are compared in 10 ns. Their order differs from that of their bytes beyond U+FFFF alone.
  const isBehind = (id: string, other: string) =>
    (descending ? id < other : id > other) || compared(id, other) > 0
  const isFrom = (id: string, other: string, inclusive: boolean) =>
    inclusive ? id === other || isBehind(id, other) || compared(id, other) === 0 : isBehind(id, other)
  return ({ id }, last) => {
    if (end !== undefined && !isFrom(end.id, id, end.inclusive)) return false
    if (last !== null) return isBehind(id, last.id)
    return start === undefined || isFrom(id, start.id, start.inclusive)
  }
}

/** The rows of the feed with `above < seq < below`. */
export function inFeedRange(
  above: number,
  below: number,
  descending: boolean,
): IsInPlace<{ readonly seq: number }> {
  return ({ seq }, last) =>
    seq > above && seq < below && (last === null || (descending ? seq < last.seq : seq > last.seq))
}

/**
 * Fills a page by fetching a bounded number of rows at a time.
 * @param fetch returns the rows after `last`, or the first rows if null; fewer than `limit` at the end. Damaged ones, and
 *   those that are not in their place, are left out
 * @param charsOf the characters of a row's bodies that `read` has read
 * @returns the rows, whether more remain, and how many damaged rows stood before and between them, or at the end
 * @throws damaged_file for very many damaged rows in succession
 */
export function fillPage<Source extends { readonly isDamaged?: boolean }, R>(
  { limit, chars, readSet }: Paging,
  fetch: (last: Source | null, limit: number) => Iterable<Source>,
  isInPlace: IsInPlace<Source>,
  read: (row: Source) => R,
  charsOf: (row: Source) => number,
): { rows: R[]; more: boolean; damaged: number } {
  const rows: R[] = []
  let skipped = 0
  let left = chars ?? Number.POSITIVE_INFINITY
  let since: number | undefined
  let isFull = false
  const most = readSet?.body ? FETCH_BODIES : FETCH
  let damaged = 0
  for (let last: Source | null = null; ; ) {
    const wanted = Math.min(most, limit - rows.length + 1) + damaged
    let fetched = 0
    damaged = 0
    for (const row of fetch(last, wanted)) {
      fetched += 1
      if (isFull || rows.length >= limit) return { rows, more: true, damaged: skipped }
      since ??= performance.now()
      if (row.isDamaged || !isInPlace(row, last)) {
        // Its position may be wrong, so the next fetch begins after the last good row.
        damaged += 1
        continue
      }
      last = row
      skipped += damaged
      damaged = 0
      rows.push(read(row))
      left -= charsOf(row)
      isFull = left <= 0 || (chars !== undefined && isHeldLong(since))
    }
    if (fetched < wanted) return { rows, more: false, damaged: skipped + damaged }
    if (damaged > MOST_DAMAGED) throw new CouchError('damaged_file')
  }
}

/** A range of ids as a condition on a column and its values. */
export function idRange(range: IdRange, column: string): { where: string; values: string[] } {
  const conditions: string[] = []
  const values: string[] = []
  const add = (bound: IdRange['start'], above: boolean) => {
    if (bound === undefined) return
    conditions.push(`${column} ${above ? '>' : '<'}${bound.inclusive ? '=' : ''} ?`)
    values.push(bound.id)
  }
  add(range.start, !range.descending)
  add(range.end, range.descending === true)
  return { where: conditions.length === 0 ? 'true' : conditions.join(' AND '), values }
}
