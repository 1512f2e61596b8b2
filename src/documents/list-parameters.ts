/**
 * The parameters of views and of lists of documents, protocol.md 8.1 and 9.3: in an address as text, in a body as JSON. Both
 * have one reader, as in CouchDB (couch_mrview_http).
 */
import { CouchError } from '../core/errors.ts'
import { checkPartition } from '../core/partitions.ts'
import { parseJson } from './body.ts'

export interface ListParameters {
  readonly partition?: string
  /** A list of one key is a range with that key at both ends, and is not named here. */
  readonly keys?: unknown
  readonly startKey?: unknown
  readonly endKey?: unknown
  /** They break ties between equal keys. */
  readonly startDocId?: string
  readonly endDocId?: string
  readonly inclusiveEnd?: boolean
  readonly descending?: boolean
  readonly limit?: number
  readonly skip?: number
  readonly reduce?: boolean
  readonly group?: boolean
  readonly groupLevel?: number
  readonly includeDocs?: boolean
  readonly conflicts?: boolean
  readonly attachments?: boolean
  readonly attEncodingInfo?: boolean
  /** When the index is updated. */
  readonly update?: 'before' | 'after' | 'never'
  readonly sorted?: boolean
  readonly updateSeq?: boolean
}

/** `text` for parameters of an address, `json` for members of a body. */
export type ParameterForm = 'text' | 'json'

/** Of a limit, in CouchDB. */
const MAX_LIMIT = 576_460_752_303_423_487n

type Read = (value: unknown, form: ParameterForm) => ListParameters

const READERS: Readonly<Record<string, Read>> = {
  partition: (value) => ({ partition: checkPartition(value) }),
  key: (value, form) => bothEnds(jsonOf(value, form)),
  keys: (value, form) => keysOf(jsonOf(value, form)),
  startkey: (value, form) => ({ startKey: jsonOf(value, form) }),
  endkey: (value, form) => ({ endKey: jsonOf(value, form) }),
  startkey_docid: (value) => ({ startDocId: textOf(value) }),
  endkey_docid: (value) => ({ endDocId: textOf(value) }),
  inclusive_end: (value) => ({ inclusiveEnd: booleanOf(value) }),
  descending: (value) => ({ descending: booleanOf(value) }),
  limit: (value, form) => ({ limit: limitOf(value, form) }),
  skip: (value, form) => ({ skip: countOf(value, form) }),
  reduce: (value) => ({ reduce: booleanOf(value) }),
  group: (value) => ({ group: booleanOf(value) }),
  group_level: (value, form) => ({ groupLevel: countOf(value, form) }),
  include_docs: (value) => ({ includeDocs: booleanOf(value) }),
  conflicts: (value) => ({ conflicts: booleanOf(value) }),
  attachments: (value) => ({ attachments: booleanOf(value) }),
  att_encoding_info: (value) => ({ attEncodingInfo: booleanOf(value) }),
  stale: (value) => ({ update: staleOf(value) }),
  stable: (value) => {
    oneOf({ true: true, false: false }, value, 'stable')
    return {}
  },
  update: (value) => ({ update: oneOf({ true: 'before', false: 'never', lazy: 'after' }, value, 'update') }),
  sorted: (value) => ({ sorted: booleanOf(value) }),
  update_seq: (value) => ({ updateSeq: booleanOf(value) }),
}

/** Other names of parameters. */
const ALIASES: Readonly<Record<string, string>> = {
  start_key: 'startkey',
  end_key: 'endkey',
  start_key_doc_id: 'startkey_docid',
  end_key_doc_id: 'endkey_docid',
}

/**
 * Reads parameters, one after the other; a later one overrides an earlier one. Unknown ones are ignored.
 * @param before what was read before them
 * @throws query_parse_error with CouchDB's texts; illegal_partition; invalid_json, too_deep
 */
export function readParameters(
  parameters: Iterable<readonly [name: string, value: unknown]>,
  form: ParameterForm,
  before: ListParameters = {},
): ListParameters {
  const read = { ...before }
  for (const [name, value] of parameters) {
    const known = Object.hasOwn(ALIASES, name) ? (ALIASES[name] as string) : name
    if (Object.hasOwn(READERS, known)) Object.assign(read, READERS[known]?.(value, form))
  }
  return read
}

/** Checks `keys` and the range. @returns the list of keys @throws query_parse_error */
export function checkedKeys({ keys, startKey, endKey }: ListParameters): readonly unknown[] | undefined {
  if (keys === undefined) return undefined
  if (!Array.isArray(keys)) throw parseError('`keys` must be an array of strings.')
  if (keys.length > 0 && (startKey !== undefined || endKey !== undefined)) {
    throw parseError('`keys` is incompatible with `key`, `start_key` and `end_key`')
  }
  return keys
}

/** How rows are grouped for a reduce function: all together, by equal keys, or by this many first elements of the key. */
export type Grouping = 'none' | 'exact' | number

/** @throws query_parse_error */
export function groupingOf({ group, groupLevel }: ListParameters): Grouping {
  if (group === false && (groupLevel ?? 0) > 0) {
    throw parseError("Can't specify group=false and group_level>0 at the same time")
  }
  if (groupLevel !== undefined && groupLevel > 0) return groupLevel
  return group && groupLevel === undefined ? 'exact' : 'none'
}

/** Checks a query of a list that has no reduce function. @throws query_parse_error with CouchDB's texts */
export function refuseReducing(parameters: ListParameters): void {
  const grouping = groupingOf(parameters)
  if (parameters.reduce) throw parseError('Reduce is invalid for map-only views.')
  if (grouping !== 'none') throw parseError('Invalid use of grouping on a map view.')
}

export function parseError(reason: string): CouchError {
  return new CouchError('query_parse_error', reason)
}

function jsonOf(value: unknown, form: ParameterForm): unknown {
  return form === 'text' ? parseJson(value as string) : value
}

function bothEnds(key: unknown): ListParameters {
  return { startKey: key, endKey: key }
}

function keysOf(keys: unknown): ListParameters {
  return Array.isArray(keys) && keys.length === 1 ? bothEnds(keys[0]) : { keys }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function booleanOf(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  const text = typeof value === 'string' ? value.toLowerCase() : ''
  if (text === 'true' || text === 'false') return text === 'true'
  throw parseError(`Invalid boolean parameter: ${shown(value)}`)
}

function limitOf(value: unknown, form: ParameterForm): number {
  const number = integerOf(value, form)
  // As numbers, the maximum and its neighbours are the same.
  const exact = form === 'text' && number === Number(MAX_LIMIT) ? BigInt(value as string) : number
  if (exact > MAX_LIMIT) throw parseError(`Limit is too large, must not exceed ${MAX_LIMIT}`)
  return countOf(value, form)
}

function countOf(value: unknown, form: ParameterForm): number {
  const number = integerOf(value, form)
  if (number < 0) throw parseError(`Invalid value for positive integer: ${shown(value)}`)
  return Math.min(number, Number.MAX_SAFE_INTEGER)
}

/** Only in an address may a number be a text. */
function integerOf(value: unknown, form: ParameterForm): number {
  const number = form === 'text' && /^[-+]?\d+$/.test(value as string) ? Number(value) : value
  if (Number.isInteger(number) || number === Number.POSITIVE_INFINITY) return number as number
  throw parseError(`Invalid value for integer: ${shown(value)}`)
}

/** The older name of `update`. */
function staleOf(value: unknown): 'never' | 'after' {
  return oneOf({ ok: 'never', update_after: 'after' }, value, 'stale')
}

function oneOf<T>(values: Readonly<Record<string, T>>, value: unknown, name: string): T {
  const text = typeof value === 'boolean' ? String(value) : value
  if (typeof text === 'string' && Object.hasOwn(values, text)) return values[text] as T
  throw parseError(`Invalid value for \`${name}\`.`)
}

/** As CouchDB quotes a parameter: an empty one as the list of characters that it is. */
function shown(value: unknown): string {
  return value === '' ? '[]' : (JSON.stringify(value) ?? '').slice(0, 100)
}
