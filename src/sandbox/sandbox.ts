/**
 * Functions that users have written into design documents, run where they can harm nobody: the interface that
 * documents/, query/ and changes/ work with. Documents travel as JSON text, many at a time.
 */

/** A function of a design document. */
export interface UserFunction {
  /** The incarnation of its database: nothing is shared between databases. */
  readonly database: number
  /** `_design/name`. */
  readonly ddoc: string
  /** The design document's revision: another one is another function. */
  readonly rev: string
  /** The members that lead to its text, like `['filters', 'sync']`. */
  readonly path: readonly string[]
  /** The design document's JSON text, for `require`; read when the function is first run. */
  readonly source: string
}

/** What a validate function is called with, each as JSON text; `oldDoc` may be `null`. */
export interface ValidateCall {
  readonly newDoc: string
  readonly oldDoc: string
  readonly userCtx: string
  readonly security: string
}

/** null: it may be written. `reason` is what the function threw, any JSON value. */
export type Verdict = null | {
  readonly error: 'forbidden' | 'unauthorized' | 'unknown_error'
  readonly reason: unknown
}

/**
 * Every method rejects with a CouchError when the function is absent (not_found `missing json key: <name>`), does
 * not compile (compilation_error), runs longer than it may (function_timeout), takes more memory than it may or makes
 * far more than that of many documents (function_memory), cannot be run because too many are waiting or it has waited
 * too long (unavailable), or its database is gone (no_database).
 */
export interface Sandbox {
  /** Compiles a function and runs nothing. */
  compile(fn: UserFunction): Promise<void>
  /** Whether each document passes. @throws function_error when it throws for one of them */
  filter(fn: UserFunction, docs: readonly string[], req: string): Promise<boolean[]>
  /** For each document the JSON text of the list of `[key, value]` that it emits; `[]` when it throws. */
  map(fn: UserFunction, docs: readonly string[]): Promise<string[]>
  /**
   * The JSON text of each result; null when it throws.
   * @param calls JSON texts of `keys` (`[[key, id], ...]` or null) and `values`
   */
  reduce(
    fn: UserFunction,
    calls: readonly { readonly keys: string; readonly values: string; readonly rereduce: boolean }[],
  ): Promise<string[]>
  /** A verdict a call. */
  validate(fn: UserFunction, calls: readonly ValidateCall[]): Promise<Verdict[]>
}
