import type { Paging } from '../engine.ts'

/** Rows fetched at once while a page is filled. */
const FETCH = 100

/**
 * Fills a page by fetches of a bounded number of rows, each from behind the row before it.
 * @param fetch rows behind `last`, null for the first; fewer than `limit` when there are no more
 * @returns the rows as read, and whether others remain
 */
export function fillPage<Source, R>(
  { limit, enough }: Paging,
  fetch: (last: Source | null, limit: number) => Iterable<Source>,
  read: (row: Source) => R,
): { rows: R[]; more: boolean } {
  const rows: R[] = []
  for (let last: Source | null = null; ; ) {
    const wanted = Math.min(FETCH, limit - rows.length + 1)
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
