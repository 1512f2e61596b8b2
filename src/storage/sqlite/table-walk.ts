/** Walks tables in the order of their numbers, in bounded stretches, so that long work can pause and go on later. */
import type { Statement } from './statement.ts'

/** A connection, or a file that is open for reading. */
export interface Readable {
  prepare<R extends object>(sql: string): Pick<Statement<R>, 'get' | 'iterate' | 'all' | 'run'>
}

/** A table, and what is done with a stretch of it. */
export interface WalkedTable {
  readonly table: string
  /** The column of numbers in whose order the rows are visited. */
  readonly key: string
  /** Numbers of a stretch: it has so many rows at most, or the rows of so many owners. */
  readonly stretch: number
  /** Processes the rows whose numbers are above the first one, up to the second. */
  visit(above: number, end: number): void
}

/** How far the tables are done. */
export interface RowPosition {
  /** Which of the tables is next. */
  readonly table: number
  /** The number of its rows that is done last. */
  readonly above: number
}

export const FIRST_ROW: RowPosition = { table: 0, above: Number.MIN_SAFE_INTEGER }

/**
 * Visits one stretch at least.
 * @param until a time, in ms as of `performance.now`
 * @param onFault called with an error of reading a stretch, after which the next one is visited; by default it is thrown
 * @returns where the next step begins; null when all tables are done
 */
export function walkTables(
  database: Readable,
  tables: readonly WalkedTable[],
  { table: first, above: from }: RowPosition,
  until: number,
  onFault: (error: unknown) => void = rethrow,
): RowPosition | null {
  let above = from
  for (const [table, walked] of tables.entries()) {
    if (table < first) continue
    for (;;) {
      const next = tried(() => nextOf(database, walked, above), onFault) ?? null
      // In damaged pages, rows are in any order.
      if (next === null || next <= above) break
      above = next - 1 + walked.stretch
      tried(() => walked.visit(next - 1, above), onFault)
      if (performance.now() > until) return { table, above }
    }
    above = FIRST_ROW.above
  }
  return null
}

function tried<R>(work: () => R, onFault: (error: unknown) => void): R | undefined {
  try {
    return work()
  } catch (error) {
    onFault(error)
    return undefined
  }
}

function rethrow(error: unknown): never {
  throw error
}

/** The next number that a row has: a damaged one may be very far from the others. */
function nextOf(database: Readable, { table, key }: WalkedTable, above: number): number | null {
  const sql = `SELECT min(${key}) AS at FROM ${table} WHERE ${key} > ? AND ${key} < ${Number.MAX_SAFE_INTEGER}`
  return database.prepare<{ at: number | null }>(sql).get(above)?.at ?? null
}
