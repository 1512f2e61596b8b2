/** Statements, prepared when they are first used. */

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
