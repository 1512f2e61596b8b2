/** Counts and skips the live documents of a range of ids, in short turns and without reading the documents. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { IdRange } from '../engine.ts'
import type { DatabaseAccess } from './database-access.ts'
import type { Tables } from './document-writes.ts'

/** Documents looked at in one turn, which takes about 1 ms. */
const MOST = 10_000
/** The fewest, so that a skip of a few documents passes many deleted ones in few turns. */
const FEWEST = 100

/** @throws unavailable when the store is closed */
export async function countRange(access: DatabaseAccess, tables: Tables, range: IdRange): Promise<number> {
  let total = 0
  for (let rest: IdRange | null = range; rest !== null; ) {
    const from: IdRange = rest
    const { count, next } = access.read(() => countStretch(tables, from, MOST))
    total += count
    rest = next
    if (rest !== null) await nextTurn()
  }
  return total
}

/** @returns the rest of the range after this many live documents; null at its end @throws as {@link countRange} */
export async function skipRange(
  access: DatabaseAccess,
  tables: Tables,
  range: IdRange,
  documents: number,
): Promise<IdRange | null> {
  let rest: IdRange | null = range
  for (let left = documents; left > 0 && rest !== null; ) {
    const from: IdRange = rest
    const { count, next } = access.read(() => {
      const stretch = countStretch(tables, from, Math.min(Math.max(left, FEWEST), MOST))
      if (stretch.count <= left) return stretch
      return { count: left, next: after(from, tables.documents.liveIdAt(from, left)) }
    })
    left -= count
    rest = next
    if (left > 0) await nextTurn()
  }
  return rest
}

/** Counts the live ones among the first `limit` documents of a range. @returns `next`: the rest of the range */
function countStretch(
  tables: Tables,
  range: IdRange,
  limit: number,
): { count: number; next: IdRange | null } {
  const { count, last } = tables.documents.countStretch(range, limit)
  return { count, next: after(range, last) }
}

function after(range: IdRange, id: string | null): IdRange | null {
  return id === null ? null : { ...range, start: { id, inclusive: false } }
}
