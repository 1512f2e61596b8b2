/** Statements, prepared when they are first used. */
import type { IdRange, Paging } from '../engine.ts'

export type Value = string | number | bigint | Uint8Array | null
export type Row = Record<string, unknown>

/** What a statement's columns hold is stated where it is asked for. */
export interface Statement<R extends object = Row> {
  get(...values: Value[]): R | undefined
  all(...values: Value[]): R[]
  /** Rows as they are taken. Until the last is, or the iteration is ended, nothing can be written. */
  iterate(...values: Value[]): Iterable<R>
  run(...values: Value[]): { changes: number; lastInsertRowid: number | bigint }
}

/** Of the statements that an open database knows most are never used, and each one holds about 4 kB. */
export class LazyStatement<R extends object> implements Statement<R> {
  readonly #prepare: () => Statement<R>
  readonly #before: (() => void) | undefined
  #prepared: Statement<R> | undefined

  /** @param before called before each use; a throw takes its place */
  constructor(prepare: () => Statement<R>, before: (() => void) | undefined) {
    this.#prepare = prepare
    this.#before = before
  }

  get(...values: Value[]): R | undefined {
    return this.#use().get(...values)
  }

  all(...values: Value[]): R[] {
    return this.#use().all(...values)
  }

  iterate(...values: Value[]): Iterable<R> {
    return this.#use().iterate(...values)
  }

  run(...values: Value[]): { changes: number; lastInsertRowid: number | bigint } {
    return this.#use().run(...values)
  }

  /** The file was opened anew: it is to be prepared again. */
  forget(): void {
    this.#prepared = undefined
  }

  #use(): Statement<R> {
    this.#before?.()
    this.#prepared ??= this.#prepare()
    return this.#prepared
  }
}

/**
 * The same statement with a plan that SQLite 3.54 keeps. SQLite marks a bare parameter behind `=` or `LIMIT` as one that
 * may change the plan, and the driver clears the parameters after each use, which expires the plan of a statement with
 * such a mark (`sqlite3_clear_bindings`): reading a document by id took 20 us instead of 7. An operand of `+` has no mark.
 */
export function withStablePlan(sql: string): string {
  return sql.replace(/(= |LIMIT )\?/g, '$1+?')
}

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
