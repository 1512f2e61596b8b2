/** The parameters of a view, protocol.md 9.3: from the address, and from a body that has members of the same names. */
import { CouchError } from '../core/errors.ts'
import { parseJson } from '../documents/body.ts'

/** How rows are grouped for a reduce function: all together, by equal keys, or by so many first elements. */
export type Grouping = 'none' | 'exact' | number

/** One end of a range of keys. */
export interface KeyEdge {
  readonly key: unknown
  /** Decides among equal keys. */
  readonly docId: string | undefined
}

export interface ViewQuery {
  readonly keys: readonly unknown[] | undefined
  readonly start: KeyEdge | undefined
  readonly end: KeyEdge | undefined
  readonly inclusiveEnd: boolean
  readonly descending: boolean
  /** Infinity: none. */
  readonly limit: number
  readonly skip: number
  /** undefined: whatever the view has. */
  readonly reduce: boolean | undefined
  readonly grouping: Grouping
  readonly includeDocs: boolean
  readonly conflicts: boolean
  readonly attachments: boolean
  readonly attEncodingInfo: boolean
  /** Whether the index is brought up to date before the answer, after it, or not at all. */
  readonly update: 'before' | 'after' | 'never'
  readonly sorted: boolean
  readonly updateSeq: boolean
}

/** Names that mean the same. */
const ALIASES: Readonly<Record<string, string>> = {
  start_key: 'startkey',
  end_key: 'endkey',
  start_key_doc_id: 'startkey_docid',
  end_key_doc_id: 'endkey_docid',
}

type Given = ReadonlyMap<string, unknown>

/**
 * Reads a query.
 * @param pairs parameters of the address as text, which override the body's
 * @param body members of a body, if there was one
 * @throws query_parse_error with CouchDB's texts; bad_request for a body's `keys` that are no list; invalid_json, too_deep
 */
export function readViewQuery(
  pairs: readonly (readonly [name: string, text: string])[],
  body: Readonly<Record<string, unknown>> | null,
): ViewQuery {
  const given = new Map<string, unknown>()
  for (const [name, value] of Object.entries(body ?? {})) given.set(ALIASES[name] ?? name, value)
  refuseKeys(given.get('keys'), 'bad_request', '`keys` member must be an array.')
  for (const [name, text] of pairs) {
    const known = ALIASES[name] ?? name
    given.set(known, JSON_VALUED.has(known) ? parseJson(text) : text)
  }
  refuseKeys(given.get('keys'), 'query_parse_error', '`keys` must be an array of strings.')
  return viewQuery(given)
}

/** Parameters whose text is JSON. */
const JSON_VALUED = new Set(['key', 'keys', 'startkey', 'endkey'])

function refuseKeys(keys: unknown, code: 'bad_request' | 'query_parse_error', reason: string): void {
  if (keys === undefined || keys === null || Array.isArray(keys)) return
  throw new CouchError(code, reason)
}

function viewQuery(given: Given): ViewQuery {
  return {
    ...rangeOf(given),
    inclusiveEnd: bool(given, 'inclusive_end') ?? true,
    descending: bool(given, 'descending') ?? false,
    limit: count(given, 'limit', '`limit` must be a positive integer.') ?? Infinity,
    skip: count(given, 'skip', '`skip` must be >= 0') ?? 0,
    reduce: bool(given, 'reduce'),
    grouping: groupingOf(given),
    includeDocs: bool(given, 'include_docs') ?? false,
    conflicts: bool(given, 'conflicts') ?? false,
    attachments: bool(given, 'attachments') ?? false,
    attEncodingInfo: bool(given, 'att_encoding_info') ?? false,
    update: updateOf(given),
    sorted: bool(given, 'sorted') ?? true,
    updateSeq: bool(given, 'update_seq') ?? false,
  }
}

function rangeOf(given: Given): Pick<ViewQuery, 'keys' | 'start' | 'end'> {
  const key = given.get('key')
  const keys = (given.get('keys') ?? undefined) as readonly unknown[] | undefined
  const edges = {
    start: edge(given.has('key') ? key : given.get('startkey'), docId(given, 'startkey_docid')),
    end: edge(given.has('key') ? key : given.get('endkey'), docId(given, 'endkey_docid')),
  }
  if (keys === undefined) return { keys, ...edges }
  if (edges.start !== undefined || edges.end !== undefined) {
    throw parseError('`keys` is incompatible with `key`, `start_key` and `end_key`')
  }
  const [only] = keys
  if (keys.length !== 1) return { keys, start: undefined, end: undefined }
  return { keys: undefined, start: edge(only, undefined), end: edge(only, undefined) }
}

function edge(key: unknown, id: string | undefined): KeyEdge | undefined {
  return key === undefined ? undefined : { key, docId: id }
}

function docId(given: Given, name: 'startkey_docid' | 'endkey_docid'): string | undefined {
  const value = given.get(name)
  if (value === undefined || typeof value === 'string') return value
  throw parseError(`\`${name.replace('key', '_key')}\` must be a string.`)
}

function groupingOf(given: Given): Grouping {
  const group = bool(given, 'group')
  const level = count(given, 'group_level', '`group_level` must be >= 0')
  if (group === false && (level ?? 0) > 0) {
    throw parseError("Can't specify group=false and group_level>0 at the same time")
  }
  if (level !== undefined && level > 0) return level
  return group ? 'exact' : 'none'
}

/** `stale` is the older word for the same. */
function updateOf(given: Given): ViewQuery['update'] {
  const stale = given.get('stale')
  if (stale !== undefined) {
    if (stale === 'ok') return 'never'
    if (stale === 'update_after') return 'after'
    throw parseError('Invalid value for `stale`.')
  }
  bool(given, 'stable', 'Invalid value for `stable`.')
  if (given.get('update') === 'lazy') return 'after'
  return bool(given, 'update', 'Invalid value for `update`.') === false ? 'never' : 'before'
}

function bool(given: Given, name: string, reason?: string): boolean | undefined {
  const value = given.get(name)
  if (value === undefined || typeof value === 'boolean') return value
  const text = typeof value === 'string' ? value.toLowerCase() : ''
  if (text === 'true' || text === 'false') return text === 'true'
  throw parseError(reason ?? `Invalid boolean parameter: ${shown(value)}`)
}

function count(given: Given, name: string, tooSmall: string): number | undefined {
  const value = given.get(name)
  if (value === undefined) return undefined
  const number = typeof value === 'string' && /^[-+]?\d+$/.test(value) ? Number(value) : value
  if (!Number.isSafeInteger(number)) throw parseError(`Invalid value for integer: ${shown(value)}`)
  if ((number as number) < 0) throw parseError(tooSmall)
  return number as number
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? '').slice(0, 100)
}

/**
 * Holds a query against the view it is for.
 * @param hasReduce whether the view has a reduce function
 * @returns whether the answer is reduced
 * @throws query_parse_error with CouchDB's texts
 */
export function reduces(query: ViewQuery, hasReduce: boolean): boolean {
  const { grouping, reduce = hasReduce } = query
  if (!hasReduce && reduce) throw parseError('Reduce is invalid for map-only views.')
  if (!reduce && grouping !== 'none') throw parseError('Invalid use of grouping on a map view.')
  if (reduce && query.includeDocs) throw parseError('`include_docs` is invalid for reduce')
  if (reduce && query.conflicts) throw parseError('`conflicts` is invalid for reduce views.')
  if (reduce && query.keys !== undefined && grouping !== 'exact') {
    throw parseError('Multi-key fetches for reduce views must use `group=true`')
  }
  return reduce
}

/** The refusal of a range whose start lies behind its end. */
export function emptyRange(descending: boolean): CouchError {
  return parseError(
    'No rows can match your key range, reverse your start_key and end_key or set ' +
      `descending=${descending ? 'false' : 'true'}`,
  )
}

function parseError(reason: string): CouchError {
  return new CouchError('query_parse_error', reason)
}
