/** Pages of rows, read from a range of ids in steps. */
import type { IdRange, Paging } from '../engine.ts'

/** Rows fetched at once while a page is filled. */
const FETCH = 100
/** The same with bodies: the last rows may be more than the page takes. */
const FETCH_BODIES = 25

/**
 * Fills a page by fetching a bounded number of rows at a time.
 * @param fetch returns the rows after `last`, or the first rows if null; fewer than `limit` at the end
 * @returns the rows, and whether more remain
 */
export function fillPage<Source, R>(
  { limit, enough, touches }: Paging,
  fetch: (last: Source | null, limit: number) => Iterable<Source>,
  read: (row: Source) => R,
): { rows: R[]; more: boolean } {
  const rows: R[] = []
  const most = touches?.body ? FETCH_BODIES : FETCH
  for (let last: Source | null = null; ; ) {
    const wanted = Math.min(most, limit - rows.length + 1)
    let fetched = 0
    for (const row of fetch(last, wanted)) {
      fetched += 1
      if (rows.length >= limit || (rows.length > 0 && enough?.())) return { rows, more: true }
      rows.push(read(row))
      last = row
    }
    if (fetched < wanted) return { rows, more: false }
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
