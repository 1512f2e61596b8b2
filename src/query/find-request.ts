/**
 * The body of `_find` and `_explain`: its members, their defaults and the errors for invalid ones; protocol.md 10.1.
 */
import { CouchError, type ErrorName } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { MAX_FIELDS, parseFieldPath } from './projection.ts'

type Direction = 'asc' | 'desc'

export interface FindRequest {
  readonly selector: Readonly<Record<string, unknown>>
  /** The design document and the name of the requested index; empty if the request names none. */
  readonly useIndex: readonly string[]
  /** The id of the last document of the previous answer; null to start at the beginning. */
  readonly after: string | null
  /** The bookmark as the client sent it; `nil` without one. */
  readonly bookmark: string
  readonly limit: number
  readonly skip: number
  /** All fields have the same direction. */
  readonly sort: readonly (readonly [field: string, direction: Direction])[]
  /** Empty for the whole document. */
  readonly fields: readonly string[]
  readonly r: number
  readonly conflicts: boolean
  readonly stale: 'ok' | false
  readonly update: boolean
  readonly stable: boolean
  readonly executionStats: boolean
  /** If false, only the requested index may be used. */
  readonly allowFallback: boolean
}

/** An error quotes at most this many characters of a value. */
const MAX_QUOTED = 200
/** What CouchDB sends in place of a bookmark. */
const NO_BOOKMARK = 'nil'

/** All members that a request may have, in the order in which CouchDB checks them. */
const MEMBERS: ReadonlySet<string> = new Set([
  ...['selector', 'use_index', 'bookmark', 'limit', 'skip', 'sort', 'fields', 'partition', 'r', 'conflicts'],
  ...['stale', 'update', 'stable', 'execution_stats', 'allow_fallback'],
])

/**
 * Reads a request.
 * @param members the body, parsed
 * @param defaultLimit the number of documents in an answer, if the request has no `limit`
 * @throws the errors of protocol.md 10.1; the first that applies, in CouchDB's order
 */
export function readFindRequest(
  members: Readonly<Record<string, unknown>>,
  defaultLimit: number,
): FindRequest {
  const { selector, use_index: index, bookmark, limit, skip, sort, fields, partition, r } = members
  const request = {
    selector: readSelector(selector),
    useIndex: readIndexName(index),
    ...readBookmark(bookmark),
    limit: limit === undefined ? defaultLimit : countOf(limit),
    skip: skip === undefined ? 0 : countOf(skip),
    sort: sort === undefined ? [] : readSort(sort),
    fields: fields === undefined ? [] : readFields(fields),
    r: readQuorum(partition, r),
    conflicts: booleanOf(members.conflicts, false),
    stale: readStale(members.stale),
    update: booleanOf(members.update, true),
    stable: booleanOf(members.stable, false),
    executionStats: booleanOf(members.execution_stats, false),
    allowFallback: booleanOf(members.allow_fallback, true),
  }
  const unknown = Object.keys(members).find((name) => !MEMBERS.has(name))
  if (unknown !== undefined) {
    throw new CouchError('invalid_key', `Invalid key ${unknown.slice(0, MAX_QUOTED)} for this request.`)
  }
  return request
}

function readSelector(selector: unknown): Readonly<Record<string, unknown>> {
  if (selector === undefined) throw new CouchError('missing_required_key', 'Missing required key: selector')
  if (isJsonObject(selector)) return selector
  throw refusal('invalid_selector_json', 'Selector must be a JSON object, not: ', selector)
}

/** The name of a design document, optionally followed by a slash and the name of an index; or a list of both. */
function readIndexName(value: unknown): readonly string[] {
  if (value === undefined || value === null) return []
  const names = typeof value === 'string' ? splitName(value) : value
  const isName = Array.isArray(names) && names.length <= 2 && names.every((name) => typeof name === 'string')
  if (isName) return names as readonly string[]
  throw refusal('invalid_index_name', 'Invalid index name: ', value)
}

function splitName(name: string): readonly string[] {
  const [first = '', ...rest] = name.replace(/^_design\//, '').split('/')
  return rest.length === 0 ? [first] : [first, rest.join('/')]
}

/**
 * The bookmark after a document: a JSON list with its id, in base64url. Bookmarks are opaque to clients, as in CouchDB.
 */
export function bookmarkOf(id: string): string {
  return Buffer.from(JSON.stringify([id])).toString('base64url')
}

function readBookmark(value: unknown): Pick<FindRequest, 'after' | 'bookmark'> {
  if (value === undefined || value === null || value === '' || value === NO_BOOKMARK) {
    return { after: null, bookmark: NO_BOOKMARK }
  }
  if (typeof value === 'string') {
    const id = bookmarkedId(value)
    if (id !== null) return { after: id, bookmark: value }
  }
  throw refusal('invalid_bookmark', 'Invalid bookmark value: ', value)
}

function bookmarkedId(bookmark: string): string | null {
  try {
    const read: unknown = JSON.parse(Buffer.from(bookmark, 'base64url').toString())
    const [id] = Array.isArray(read) ? read : []
    return typeof id === 'string' && id.isWellFormed() && bookmarkOf(id) === bookmark ? id : null
  } catch {
    return null
  }
}

function readSort(value: unknown): FindRequest['sort'] {
  if (!Array.isArray(value))
    throw refusal('invalid_sort_json', 'Sort must be an array of sort specs, not: ', value)
  if (value.length > MAX_FIELDS)
    throw new CouchError('invalid_sort_json', `Sort has more than ${MAX_FIELDS} fields.`)
  const sort = value.map(readSortField)
  if (new Set(sort.map(([, direction]) => direction)).size > 1) throw new CouchError('unsupported_mixed_sort')
  return sort
}

function readSortField(spec: unknown): readonly [string, Direction] {
  if (typeof spec === 'string' && spec !== '') return [spec, 'asc']
  const [only, ...others] = isJsonObject(spec) ? Object.entries(spec) : []
  if (only === undefined || others.length > 0)
    throw refusal('invalid_sort_field', 'Invalid sort field: ', spec)
  const [field, direction] = only
  if (direction === 'asc' || direction === 'desc') return [field, direction]
  throw refusal('invalid_sort_dir', 'Invalid sort direction: ', direction)
}

function readFields(value: unknown): readonly string[] {
  if (!Array.isArray(value))
    throw refusal('invalid_fields', 'Fields must be an array of strings, not: ', value)
  if (value.length > MAX_FIELDS)
    throw new CouchError('invalid_fields', `Fields has more than ${MAX_FIELDS} names.`)
  const invalid: unknown = value.find((field) => typeof field !== 'string')
  if (invalid !== undefined) throw refusal('invalid_field', 'Invalid JSON for field spec: ', invalid)
  for (const field of value as string[]) parseFieldPath(field)
  return value as readonly string[]
}

/** No database is partitioned. Each document has a single copy, so every quorum is met. */
function readQuorum(partition: unknown, r: unknown): number {
  if (partition !== undefined && partition !== '') {
    if (typeof partition !== 'string') throw new CouchError('illegal_partition')
    throw new CouchError('bad_request', '`partition` parameter is not supported in this view.')
  }
  if (r === undefined) return 1
  if (Number.isSafeInteger(r) && (r as number) > 0) return r as number
  throw refusal('invalid_pos_integer', '', r, ' is not an integer greater than zero')
}

function readStale(value: unknown): 'ok' | false {
  if (value === 'ok') return 'ok'
  if (value === undefined || value === false || value === 'false') return false
  throw refusal('invalid_value', 'Invalid value for stale: ', value)
}

function countOf(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw refusal('invalid_non_neg_integer', '', value, ' is not an integer greater than or equal to zero')
}

function booleanOf(value: unknown, fallback: boolean): boolean {
  if (value === undefined) return fallback
  if (typeof value === 'boolean') return value
  throw refusal('invalid_boolean', 'Invalid boolean value: ', value)
}

function refusal(code: ErrorName, before: string, value: unknown, after = ''): CouchError {
  return new CouchError(code, before + JSON.stringify(value).slice(0, MAX_QUOTED) + after)
}
