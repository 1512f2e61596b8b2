/**
 * Checks design documents as they are written, protocol.md 9.1: their members, and that the functions of their views
 * compile. Filters and validate functions compile at their first use, as in CouchDB.
 */

import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'

type Members = Readonly<Record<string, unknown>>

/**
 * The allowed types by path, in the order in which couch_mrview checks them; `*` is each member. `autoupdate` is
 * missing: CouchDB accepts any value, and a document with one must not stop a replication to settee.
 */
const FIELDS: readonly (readonly [path: string, kinds: string])[] = [
  ['filters', 'object'],
  ['filters.*', 'string or object'],
  ['language', 'string'],
  ['lists', 'object'],
  ['lists.*', 'string or object'],
  ['options', 'object'],
  ['options.include_design', 'boolean'],
  ['options.local_seq', 'boolean'],
  ['options.partitioned', 'boolean'],
  ['rewrites', 'array or string'],
  ['shows', 'object'],
  ['shows.*', 'string or object'],
  ['updates', 'object'],
  ['updates.*', 'string or object'],
  ['validate_doc_update', 'string'],
  ['views', 'object'],
  ['views.*', 'object'],
]

/** CouchDB reads only the beginning, since some tools leave a line break after the name. */
const BUILTIN_REDUCE = /^_(?:approx_count_distinct|count|first|last|stats|sum)/
const RANKED_REDUCE = /^(_top|_bottom)_(.*)$/s
/** How Erlang reads an integer. */
const INTEGER = /^[-+]?\d+$/
const MAX_RANK = 100

/** The modules that views share (CommonJS); not a view. */
const LIBRARY = 'lib'

/** A function of a view, with the path to it. */
export interface ViewFunction {
  readonly view: string
  readonly member: 'map' | 'reduce'
  readonly text: string
}

/**
 * Checks a new design document. Pure.
 * @param body its JSON text
 * @param partitioned whether its database is
 * @returns the functions that must compile before it may be stored
 * @throws invalid_design_doc
 */
export function checkDesignDoc(body: string, partitioned: boolean): ViewFunction[] {
  const doc = JSON.parse(body) as Members
  checkShape(doc)
  if (!partitioned && isJsonObject(doc.options) && doc.options.partitioned === true) {
    const reason = 'partitioned option cannot be true in a non-partitioned database.'
    throw new CouchError('invalid_design_doc', reason)
  }
  const functions = viewFunctions(doc)
  // What no query server here would run is not looked at.
  if (languageOf(doc) !== 'javascript') return []
  for (const { member, text } of functions)
    if (member === 'reduce' && text.startsWith('_')) builtinReduce(text)
  return functions.filter(({ member, text }) => member === 'map' || !text.startsWith('_'))
}

/**
 * Compiles functions of a design document.
 * @param fn names the database, the document and its new revision
 * @throws view_compilation, with CouchDB's text, for the first function that does not compile; not_found for an empty
 * one; function_timeout, function_memory, unavailable
 */
export async function compileViews(
  sandbox: Sandbox,
  fn: Omit<UserFunction, 'path'>,
  functions: readonly ViewFunction[],
): Promise<void> {
  for (const { view, member } of functions) {
    try {
      await sandbox.compile({ ...fn, path: ['views', view, member] })
    } catch (error) {
      if (!(error instanceof CouchError && error.code === 'compilation_error')) throw error
      const detail = String(error.reason)
      const reason = `Compilation of the ${member} function in the '${view}' view failed: ${detail}`
      throw new CouchError('view_compilation', reason)
    }
  }
}

/** @throws unknown_query_language for a language other than JavaScript, the only one that runs here */
export function requireJavascript(language: unknown): void {
  if (language !== 'javascript') throw new CouchError('unknown_query_language', String(language))
}

/** The language of a design document's functions. */
export function languageOf(doc: Members): unknown {
  return doc.language === undefined ? 'javascript' : doc.language
}

function checkShape(doc: Members): void {
  for (const [path, kinds] of FIELDS) checkField(doc, path.split('.'), kinds, [])
  checkField(doc, ['views', '*', 'map'], languageOf(doc) === 'query' ? 'object' : 'string', [])
  checkField(doc, ['views', '*', 'reduce'], 'string', [])
  for (const [view, members] of views(doc)) {
    if (members.map === undefined) {
      throw new CouchError('invalid_design_doc', `View \`${view}\` must contain map function`)
    }
  }
}

/** The parents of the field have been checked to be objects where they must be. */
function checkField(
  parent: Members,
  [step, ...rest]: readonly string[],
  kinds: string,
  above: readonly string[],
): void {
  const names = step === '*' ? Object.keys(parent) : [step as string]
  for (const name of names) {
    const value = parent[name]
    if (value === undefined) continue
    const at = [...above, name]
    if (rest.length > 0) {
      const isLibrary = above[0] === 'views' && name === LIBRARY
      if (isJsonObject(value) && !isLibrary) checkField(value, rest, kinds, at)
    } else if (!kinds.split(' or ').some((kind) => isOfKind(value, kind))) {
      const reason = `\`${at.join('.')}\` field must have ${kinds} type`
      throw new CouchError('invalid_design_doc', reason)
    }
  }
}

function isOfKind(value: unknown, kind: string): boolean {
  if (kind === 'object') return isJsonObject(value)
  return kind === 'array' ? Array.isArray(value) : typeof value === kind
}

/** The views of a design document whose types have been checked. */
function views(doc: Members): [name: string, members: Members][] {
  const all = Object.entries((doc.views ?? {}) as Record<string, Members>)
  return all.filter(([name]) => name !== LIBRARY)
}

function viewFunctions(doc: Members): ViewFunction[] {
  return views(doc).flatMap(([view, members]) =>
    (['map', 'reduce'] as const).flatMap((member) => {
      const text = members[member]
      return typeof text === 'string' ? [{ view, member, text }] : []
    }),
  )
}

/** One of CouchDB's own reduce functions. */
export interface BuiltinReduce {
  /** For example `_sum` or `_top`. */
  readonly name: string
  /** How many values `_top` and `_bottom` keep; 0 for the others. */
  readonly rank: number
}

/**
 * Reads the name of a built-in reduce function (protocol.md 9.3).
 * @param text begins with `_`
 * @throws invalid_design_doc
 */
export function builtinReduce(text: string): BuiltinReduce {
  const [name] = BUILTIN_REDUCE.exec(text) ?? []
  if (name !== undefined) return { name, rank: 0 }
  const [, ranked, rank = ''] = RANKED_REDUCE.exec(text) ?? []
  if (ranked === undefined) {
    throw new CouchError('invalid_design_doc', `\`${text}\` is not a supported reduce function.`)
  }
  if (!INTEGER.test(rank)) throw new CouchError('invalid_design_doc', 'invalid rank reducer')
  const count = Number(rank)
  if (count >= 1 && count <= MAX_RANK) return { name: ranked, rank: count }
  throw new CouchError('invalid_design_doc', `rank value must be between 1 and ${MAX_RANK}`)
}
