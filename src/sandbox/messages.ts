/**
 * The messages of the sandbox, and its interface for documents/, query/ and changes/. The messages bypass
 * threads/rpc.ts, which would add 20 % to the cost of each piece of work (docs/decisions/0041).
 */
import type { MessagePort } from 'node:worker_threads'
import type { PackedError } from '../core/errors.ts'
import type { Slot } from './slot-table.ts'

/** The data with which a sandbox thread starts. */
export interface SandboxThreadOptions {
  readonly slotTable: SharedArrayBuffer
  readonly slot: Slot
}

/** From the main thread to a sandbox thread: a database thread's port. */
export interface Introduction {
  readonly client: number
  readonly port: MessagePort
}

/** From a database thread to the sandbox thread that it has claimed. */
export interface RunRequest {
  readonly job: number
  readonly piece: Piece
  /** The design document, if the thread has answered that it does not know the function. */
  readonly source: string | null
  /** Where the sandbox thread waits for the {@link ExchangeReply}; null for work without one. */
  readonly signal: SharedArrayBuffer | null
}

/** From the sandbox thread, during a list: its output so far. The thread waits for the {@link ExchangeReply}. */
export interface ExchangeRequest {
  readonly job: number
  readonly output: string
}

/** The answer to an {@link ExchangeRequest}. */
export interface ExchangeReply {
  /** JSON text; null: the list is not needed any more. */
  readonly answer: string | null
}

/** The answer, after which the sandbox thread is free again. */
export interface RunReply {
  readonly job: number
  readonly outcome: Outcome
}

/** The data with which a database thread starts. */
export interface SandboxAccess {
  readonly slotTable: SharedArrayBuffer
  /** The database thread's number among those that run functions, from 1. */
  readonly client: number
}

/** From the main thread to a database thread. */
export type SandboxNotice =
  | { readonly type: 'thread'; readonly slot: Slot; readonly port: MessagePort }
  /** A thread has ended because a call could not be stopped in time, because it died, or because it was not needed. */
  | { readonly type: 'lost'; readonly slot: Slot; readonly reason: 'timeout' | 'died' | 'ended' }
  /** No thread could be started. */
  | { readonly type: 'failed'; readonly cause: string }

export type CallKind =
  | 'compile'
  | 'filter'
  | 'map'
  | 'mapViews'
  | 'reduce'
  | 'validate'
  | 'show'
  | 'list'
  | 'update'
  | 'rewrite'

/** A function without the text of its design document. */
type FunctionName = Omit<UserFunction, 'source'>

/** The first character of a result when the function threw. */
export const THREW = '!'

/** The JSON text of an argument, or a list of such texts; most calls have one argument. */
export type Call = string | readonly string[]

/** Calls of one function. */
export interface Work {
  readonly kind: CallKind
  readonly fn: UserFunction
  /** JSON text of an additional argument of all calls. */
  readonly shared: string
  /** JSON texts of each call's arguments. */
  readonly calls: readonly Call[]
  /** Answers the output of a list function with JSON text. If it rejects, the function is stopped. */
  exchange?(output: string): Promise<string>
}

/** The part of work that is sent to a thread in one message. */
export interface Piece extends Omit<Work, 'fn' | 'exchange'> {
  readonly fn: FunctionName
}

/** The outcome of a piece. */
export type Outcome =
  /** The results of the first calls, at least one; the others have not started. */
  | { readonly type: 'done'; readonly results: readonly string[] }
  /** The thread does not know the function and needs its design document. Nothing has started. */
  | { readonly type: 'unknown' }
  | { readonly type: 'failed'; readonly error: PackedError }

/**
 * A {@link Sandbox} that turns its calls into work.
 * @param run resolves with a result for each call
 */
export function sandboxOver(run: (work: Work) => Promise<readonly string[]>): Sandbox {
  return {
    compile: async (fn) => {
      await run({ kind: 'compile', fn, shared: 'null', calls: [[]] })
    },
    filter: async (fn, docs, req) => {
      const results = await run({ kind: 'filter', fn, shared: req, calls: docs })
      return results.map((result) => result === 'true')
    },
    map: async (fn, docs) => [...(await run({ kind: 'map', fn, shared: 'null', calls: docs }))],
    mapViews: async (maps, docs) => [
      ...(await run({ kind: 'mapViews', fn: maps, shared: 'null', calls: docs })),
    ],
    reduce: async (fn, calls) => {
      const texts = calls.map(({ keys, values, rereduce }) => [keys, values, String(rereduce)])
      return [...(await run({ kind: 'reduce', fn, shared: 'null', calls: texts }))]
    },
    validate: async (fn, calls) => {
      const texts = calls.map(({ newDoc, oldDoc, userCtx, security }) => [newDoc, oldDoc, userCtx, security])
      const results = await run({ kind: 'validate', fn, shared: 'null', calls: texts })
      return results.map((result) => JSON.parse(result) as Verdict)
    },
    render: async (kind, fn, args) => only(await run({ kind, fn, shared: 'null', calls: [args] })),
    list: async (fn, args, exchange) =>
      only(await run({ kind: 'list', fn, shared: 'null', calls: [args], exchange })),
  }
}

function only(results: readonly string[]): string {
  return results[0] as string
}

/** Characters of a call's arguments. */
export function lengthOf(call: Call): number {
  return typeof call === 'string' ? call.length : call.reduce((sum, text) => sum + text.length, 0)
}

export function nameOf({ database, ddoc, rev, path }: FunctionName): FunctionName {
  return { database, ddoc, rev, path }
}

/** A unique text for each function. */
export function keyOf({ database, ddoc, rev, path }: FunctionName): string {
  return JSON.stringify([database, ddoc, rev, path])
}

/** A function of a design document. */
export interface UserFunction {
  /** The incarnation of its database. Databases share nothing. */
  readonly database: number
  /** `_design/name`. */
  readonly ddoc: string
  /** The design document's revision; each revision has its own functions. */
  readonly rev: string
  /** The path of members to its text, such as `['filters', 'sync']`. */
  readonly path: readonly string[]
  /** The design document's JSON text, for `require`; read when the function is first run. */
  readonly source: string
}

/** The arguments of a validate function as JSON texts; `oldDoc` may be `null`. */
export interface ValidateCall {
  readonly newDoc: string
  readonly oldDoc: string
  readonly userCtx: string
  readonly security: string
}

/**
 * null if the document may be written. `reason` is the thrown value, any JSON value. `error` is `forbidden`,
 * `unauthorized`, a name that the function chose (`["error", name, reason]`), or `unknown_error`.
 */
export type Verdict = null | { readonly error: string; readonly reason: unknown }

/**
 * Runs functions that users have written into design documents, isolated from the server. Documents are JSON texts,
 * many per call. Every method rejects with a CouchError if the function is absent (not_found `missing json key:
 * <name>`), does not compile (compilation_error), exceeds its time (function_timeout) or memory, or returns too much in
 * total (function_memory), if too many calls wait or it has waited too long (unavailable), or if its database was
 * deleted (no_database).
 */
export interface Sandbox {
  /** Compiles a function without running it. */
  compile(fn: UserFunction): Promise<void>
  /** Whether each document passes. @throws function_error if the function throws for one of them */
  filter(fn: UserFunction, docs: readonly string[], req: string): Promise<boolean[]>
  /** For each document, the JSON text of the list of emitted `[key, value]`; `[]` if the function throws. */
  map(fn: UserFunction, docs: readonly string[]): Promise<string[]>
  /**
   * Runs the map functions of all views of a design document.
   * @param maps with the path `['views']`
   * @returns for each document a JSON list, with an element for each view in the order of the members of `views`: the list
   *   of emitted `[key, value]`, or the message if the function throws
   */
  mapViews(maps: UserFunction, docs: readonly string[]): Promise<string[]>
  /**
   * The JSON text of each result; null if the function throws.
   * @param calls JSON texts of `keys` (`[[key, id], ...]` or null) and `values`
   */
  reduce(
    fn: UserFunction,
    calls: readonly { readonly keys: string; readonly values: string; readonly rereduce: boolean }[],
  ): Promise<string[]>
  /** One verdict per call. */
  validate(fn: UserFunction, calls: readonly ValidateCall[]): Promise<Verdict[]>
  /**
   * Runs a function that answers a request.
   * @param args JSON texts of its arguments
   * @returns a result in the form of render-environment.ts
   */
  render(kind: 'show' | 'update' | 'rewrite', fn: UserFunction, args: readonly string[]): Promise<string>
  /**
   * Runs a list function, which occupies a sandbox thread until it ends.
   * @param exchange takes output of the function, and resolves with rows as JSON text; if it rejects, the function is
   *   stopped
   * @returns a result in the form of render-environment.ts
   */
  list(
    fn: UserFunction,
    args: readonly string[],
    exchange: (output: string) => Promise<string>,
  ): Promise<string>
}
