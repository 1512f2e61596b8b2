/** Prepared statements: lazily, and with a plan that stays. */
export type Value = string | number | bigint | Uint8Array | null
type Row = Record<string, unknown>

/** The caller states the types of the columns. */
export interface Statement<R extends object = Row> {
  get(...values: Value[]): R | undefined
  all(...values: Value[]): R[]
  /** Rows, read on demand. Nothing can be written until the iteration has ended. */
  iterate(...values: Value[]): Iterable<R>
  run(...values: Value[]): { changes: number; lastInsertRowid: number | bigint }
}

/** Most statements of an open database are never used, and each prepared one takes about 4 kB. */
export class LazyStatement<R extends object> implements Statement<R> {
  readonly #prepare: () => Statement<R>
  readonly #before: (() => void) | undefined
  #prepared: Statement<R> | undefined

  /** @param before called before each use; if it throws, the statement does not run */
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

  /** Prepares the statement again at its next use, since the file was reopened. */
  reset(): void {
    this.#prepared = undefined
  }

  #use(): Statement<R> {
    this.#before?.()
    this.#prepared ??= this.#prepare()
    return this.#prepared
  }
}

/**
 * The same statement with a plan that SQLite 3.54 keeps. SQLite marks a bare parameter behind `=` or `LIMIT` as one
 * that may change the plan, and the driver clears the parameters after each use, which expires the plan of a statement
 * with such a mark (`sqlite3_clear_bindings`): reading a document by id took 20 us instead of 7. An operand of `+` has
 * no mark.
 */
export function withStablePlan(sql: string): string {
  return sql.replace(/(= |LIMIT )\?/g, '$1+?')
}
