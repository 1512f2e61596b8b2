/** The methods of a sandbox as work of one kind: calls with one JSON text each, and a text for each result. */
import { CouchError } from '../core/errors.ts'
import type { Sandbox, UserFunction, Verdict } from './sandbox.ts'

export type CallKind = 'compile' | 'filter' | 'map' | 'reduce' | 'validate'

/** A function without the text of its design document. */
export type FunctionName = Omit<UserFunction, 'source'>

/** JSON text of an argument, or a list of such texts: many calls have one only. */
export type Call = string | readonly string[]

/** Calls of one function. */
export interface Work {
  readonly kind: CallKind
  readonly fn: UserFunction
  /** JSON text of a further argument of all calls. */
  readonly shared: string
  /** JSON texts of each call's arguments. */
  readonly calls: readonly Call[]
}

/** What may be sent to a thread at once. */
export interface Piece extends Omit<Work, 'fn'> {
  readonly fn: FunctionName
}

/** What became of a piece. */
export type Outcome =
  /** The results of the first calls, of one at least; the others were not begun. */
  | { readonly type: 'done'; readonly results: readonly string[] }
  /** The function is not known there: its design document must come along. Nothing was begun. */
  | { readonly type: 'unknown' }
  | { readonly type: 'failed'; readonly code: FailureCode; readonly reason: string | undefined }

export type FailureCode =
  | 'not_found'
  | 'compilation_error'
  | 'function_error'
  | 'function_timeout'
  | 'function_memory'
  | 'internal_server_error'

/**
 * The interface of sandbox.ts over a way to get work done.
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
    reduce: async (fn, calls) => {
      const texts = calls.map(({ keys, values, rereduce }) => [keys, values, String(rereduce)])
      return [...(await run({ kind: 'reduce', fn, shared: 'null', calls: texts }))]
    },
    validate: async (fn, calls) => {
      const texts = calls.map(({ newDoc, oldDoc, userCtx, security }) => [newDoc, oldDoc, userCtx, security])
      const results = await run({ kind: 'validate', fn, shared: 'null', calls: texts })
      return results.map((result) => JSON.parse(result) as Verdict)
    },
  }
}

/** Characters of a call's arguments. */
export function lengthOf(call: Call): number {
  return typeof call === 'string' ? call.length : call.reduce((sum, text) => sum + text.length, 0)
}

export function nameOf({ database, ddoc, rev, path }: FunctionName): FunctionName {
  return { database, ddoc, rev, path }
}

/** A text of its own for each function. */
export function keyOf({ database, ddoc, rev, path }: FunctionName): string {
  return JSON.stringify([database, ddoc, rev, path])
}

/** What went wrong, as it crosses to another thread. */
export function failureOf(thrown: unknown): Extract<Outcome, { type: 'failed' }> {
  if (thrown instanceof CouchError) {
    return { type: 'failed', code: thrown.code as FailureCode, reason: String(thrown.reason) }
  }
  const told = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)
  return { type: 'failed', code: 'internal_server_error', reason: told }
}

/** The same as the error that the caller is to get: a fault of ours keeps its text for the log. */
export function errorOf({ code, reason }: Extract<Outcome, { type: 'failed' }>): CouchError {
  if (code === 'internal_server_error') return new CouchError(code, undefined, { cause: reason })
  return new CouchError(code, reason)
}
