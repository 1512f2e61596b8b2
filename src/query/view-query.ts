/** The parameters of a view query, protocol.md 9.3. They are in the query string or in the members of a body. */
import { CouchError } from '../core/errors.ts'
import { checkPartition } from '../core/partitions.ts'
import { parseJson } from '../documents/body.ts'

/**
 * How rows are grouped for a reduce function: all together, by equal keys, or by this many first elements of the key.
 */
export type Grouping = 'none' | 'exact' | number

/** One end of a range of keys. */
export interface KeyEdge {
  readonly key: unknown
  /** Breaks ties between equal keys. */
  readonly docId: string | undefined
}

export interface ViewQuery {
  readonly partition: string | undefined
  readonly keys: readonly unknown[] | undefined
  readonly start: KeyEdge | undefined
  readonly end: KeyEdge | undefined
  /** Break ties among the rows of each key of `keys`, at its start and its end. */
  readonly docIds: { readonly start: string | undefined; readonly end: string | undefined }
  readonly inclusiveEnd: boolean
  readonly descending: boolean
  /** Infinity means no limit. */
  readonly limit: number
  readonly skip: number
  /** If undefined, the rows are reduced if the view has a reduce function. */
  readonly reduce: boolean | undefined
  readonly grouping: Grouping
  readonly includeDocs: boolean
  readonly conflicts: boolean
  readonly attachments: boolean
  readonly attEncodingInfo: boolean
  /** When the index is updated. */
  readonly update: 'before' | 'after' | 'never'
  readonly sorted: boolean
  readonly updateSeq: boolean
}

/** Synonyms of parameters. */
const ALIASES: Readonly<Record<string, string>> = {
  start_key: 'startkey',
  end_key: 'endkey',
  start_key_doc_id: 'startkey_docid',
  end_key_doc_id: 'endkey_docid',
}

type ParameterMap = ReadonlyMap<string, unknown>

/**
 * Reads a query.
 * @param pairs the parameters of the address as text, which override those of the body
 * @param body the members of the body; null without one
 * @throws query_parse_error with CouchDB's texts; illegal_partition; bad_request if `keys` of the body is not a list; invalid_json,
 *   too_deep
 */
export function readViewQuery(
  pairs: readonly (readonly [name: string, text: string])[],
  body: Readonly<Record<string, unknown>> | null,
): ViewQuery {
  const parameters = new Map<string, unknown>()
  for (const [name, value] of Object.entries(body ?? {})) parameters.set(ALIASES[name] ?? name, value)
  refuseKeys(parameters.get('keys'), 'bad_request', '`keys` member must be an array.')
  readPartition(parameters)
  for (const [name, text] of pairs) {
    const known = ALIASES[name] ?? name
    parameters.delete(known) // The order counts: see edgesOf.
    parameters.set(known, JSON_VALUED.has(known) ? parseJson(text) : text)
  }
  refuseKeys(parameters.get('keys'), 'query_parse_error', '`keys` must be an array of strings.')
  return viewQuery(parameters)
}

/** Parameters whose text is JSON. */
const JSON_VALUED = new Set(['key', 'keys', 'startkey', 'endkey'])

function refuseKeys(keys: unknown, code: 'bad_request' | 'query_parse_error', reason: string): void {
  if (keys === undefined || Array.isArray(keys)) return
  throw new CouchError(code, reason)
}

function viewQuery(parameters: ParameterMap): ViewQuery {
  return {
    partition: readPartition(parameters),
    ...rangeOf(parameters),
    inclusiveEnd: bool(parameters, 'inclusive_end') ?? true,
    descending: bool(parameters, 'descending') ?? false,
    limit: count(parameters, 'limit') ?? Infinity,
    skip: count(parameters, 'skip') ?? 0,
    reduce: bool(parameters, 'reduce'),
    grouping: groupingOf(parameters),
    includeDocs: bool(parameters, 'include_docs') ?? false,
    conflicts: bool(parameters, 'conflicts') ?? false,
    attachments: bool(parameters, 'attachments') ?? false,
    attEncodingInfo: bool(parameters, 'att_encoding_info') ?? false,
    update: updateOf(parameters),
    sorted: bool(parameters, 'sorted') ?? true,
    updateSeq: bool(parameters, 'update_seq') ?? false,
  }
}

function readPartition(parameters: ParameterMap): string | undefined {
  const partition = parameters.get('partition')
  return partition === undefined ? undefined : checkPartition(partition)
}

function rangeOf(parameters: ParameterMap): Pick<ViewQuery, 'keys' | 'start' | 'end' | 'docIds'> {
  const docIds = { start: docId(parameters, 'startkey_docid'), end: docId(parameters, 'endkey_docid') }
  const keys = parameters.get('keys') as readonly unknown[] | undefined
  // A single key counts as `key`.
  const [start, end] = keys?.length === 1 ? [keys[0], keys[0]] : edgesOf(parameters)
  if (keys === undefined || keys.length === 1) {
    return { keys: undefined, start: edge(start, docIds.start), end: edge(end, docIds.end), docIds }
  }
  if (start === undefined && end === undefined) return { keys, start, end, docIds }
  throw parseError('`keys` is incompatible with `key`, `start_key` and `end_key`')
}

/** The keys at which the range starts and ends. `key` sets both, and a later parameter replaces an earlier one. */
function edgesOf(parameters: ParameterMap): readonly [start: unknown, end: unknown] {
  let start: unknown
  let end: unknown
  for (const [name, value] of parameters) {
    if (name === 'key' || name === 'startkey') start = value
    if (name === 'key' || name === 'endkey') end = value
  }
  return [start, end]
}

function edge(key: unknown, id: string | undefined): KeyEdge | undefined {
  return key === undefined ? undefined : { key, docId: id }
}

function docId(parameters: ParameterMap, name: 'startkey_docid' | 'endkey_docid'): string | undefined {
  const value = parameters.get(name)
  if (value === undefined || typeof value === 'string') return value
  throw parseError(`\`${name.replace('key', '_key')}\` must be a string.`)
}

function groupingOf(parameters: ParameterMap): Grouping {
  const group = bool(parameters, 'group')
  const level = count(parameters, 'group_level')
  if (group === false && (level ?? 0) > 0) {
    throw parseError("Can't specify group=false and group_level>0 at the same time")
  }
  if (level !== undefined && level > 0) return level
  return group && level === undefined ? 'exact' : 'none'
}

/** `stale` is the older name of this parameter. */
function updateOf(parameters: ParameterMap): ViewQuery['update'] {
  const stale = parameters.get('stale')
  if (stale !== undefined) {
    if (stale === 'ok') return 'never'
    if (stale === 'update_after') return 'after'
    throw parseError('Invalid value for `stale`.')
  }
  bool(parameters, 'stable', 'Invalid value for `stable`.')
  if (parameters.get('update') === 'lazy') return 'after'
  return bool(parameters, 'update', 'Invalid value for `update`.') === false ? 'never' : 'before'
}

function bool(parameters: ParameterMap, name: string, reason?: string): boolean | undefined {
  const value = parameters.get(name)
  if (value === undefined || typeof value === 'boolean') return value
  const text = typeof value === 'string' ? value.toLowerCase() : ''
  if (text === 'true' || text === 'false') return text === 'true'
  throw parseError(reason ?? `Invalid boolean parameter: ${quoted(value)}`)
}

function count(parameters: ParameterMap, name: string): number | undefined {
  const value = parameters.get(name)
  if (value === undefined) return undefined
  const number = typeof value === 'string' && /^[-+]?\d+$/.test(value) ? Number(value) : value
  if (!Number.isSafeInteger(number)) throw parseError(`Invalid value for integer: ${quoted(value)}`)
  if ((number as number) < 0) throw parseError(`Invalid value for positive integer: ${quoted(value)}`)
  return number as number
}

function quoted(value: unknown): string {
  return (JSON.stringify(value) ?? '').slice(0, 100)
}

/**
 * Checks a query against its view.
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

/**
 * Checks the partition of a query against its view.
 * @param partitioned whether the view has its rows by partitions
 * @throws query_parse_error with CouchDB's texts
 */
export function checkScope({ partition }: ViewQuery, partitioned: boolean): void {
  if (partitioned && partition === undefined) {
    throw parseError('`partition` parameter is mandatory for queries to this view.')
  }
  if (!partitioned && partition !== undefined) {
    throw parseError('`partition` parameter is not supported in this design doc')
  }
}

/** The error for a range that starts after its end. */
export function emptyRange(descending: boolean): CouchError {
  return parseError(
    'No rows can match your key range, reverse your start_key and end_key or set ' +
      `descending=${descending ? 'false' : 'true'}`,
  )
}

function parseError(reason: string): CouchError {
  return new CouchError('query_parse_error', reason)
}
