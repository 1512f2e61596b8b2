/**
 * The body of `_find` and `_explain`: its members, their defaults and the errors for invalid ones; protocol.md 10.1.
 */
import { CouchError, type ErrorName } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { checkPartition } from '../core/partitions.ts'
import { MAX_FIELDS, parseFieldPath } from './projection.ts'

type Direction = 'asc' | 'desc'

/** The position of a document in the index that found it. */
export interface Position {
  readonly id: string
  /** Its key in a json index, as JSON; null in the index of all ids. */
  readonly key: string | null
}

export interface FindRequest {
  readonly selector: Readonly<Record<string, unknown>>
  /** The design document and the name of the requested index; empty if the request names none. */
  readonly useIndex: readonly string[]
  /** The last document of the previous answer; null to start at the beginning. */
  readonly after: Position | null
  /** The bookmark as the client sent it; `nil` without one. */
  readonly bookmark: string
  readonly limit: number
  readonly skip: number
  /** All fields have the same direction. */
  readonly sort: readonly (readonly [field: string, direction: Direction])[]
  /** Empty for the whole document. */
  readonly fields: readonly string[]
  /** Whether the database is partitioned. */
  readonly partitioned: boolean
  /** Empty for the whole database. */
  readonly partition: string
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
  'selector',
  'use_index',
  'bookmark',
  'limit',
  'skip',
  'sort',
  'fields',
  'partition',
  'r',
  'conflicts',
  'stale',
  'update',
  'stable',
  'execution_stats',
  'allow_fallback',
])

/**
 * Reads a request.
 * @param members the body, parsed
 * @param partitioned whether the database is
 * @param defaultLimit the number of documents in an answer, if the request has no `limit`
 * @throws the errors of protocol.md 10.1; the first that applies, in CouchDB's order
 */
export function readFindRequest(
  members: Readonly<Record<string, unknown>>,
  partitioned: boolean,
  defaultLimit: number,
): FindRequest {
  const { use_index: index, bookmark, limit, skip, sort, fields, partition, r } = members
  const request = {
    selector: readSelector(required(members, 'selector')),
    useIndex: readIndexName(index),
    ...readBookmark(bookmark),
    limit: limit === undefined ? defaultLimit : countOf(limit),
    skip: skip === undefined ? 0 : countOf(skip),
    sort: sort === undefined ? [] : readSort(sort),
    fields: fields === undefined ? [] : readFields(fields),
    partitioned,
    partition: readPartition(partition, partitioned),
    r: readQuorum(r),
    conflicts: booleanOf(members.conflicts, false),
    stale: readStale(members.stale),
    update: booleanOf(members.update, true),
    stable: booleanOf(members.stable, false),
    executionStats: booleanOf(members.execution_stats, false),
    allowFallback: booleanOf(members.allow_fallback, true),
  }
  refuseUnknown(members, MEMBERS)
  return request
}

/** @throws invalid_key for a member that a request of this kind does not have */
export function refuseUnknown(members: Readonly<Record<string, unknown>>, known: ReadonlySet<string>): void {
  const unknown = Object.keys(members).find((name) => !known.has(name))
  if (unknown === undefined) return
  throw new CouchError('invalid_key', `Invalid key ${unknown.slice(0, MAX_QUOTED)} for this request.`)
}

/** @throws missing_required_key */
export function required(members: Readonly<Record<string, unknown>>, name: string): unknown {
  if (members[name] !== undefined) return members[name]
  throw new CouchError('missing_required_key', `Missing required key: ${name}`)
}

/** @throws invalid_selector_json */
export function readSelector(selector: unknown): Readonly<Record<string, unknown>> {
  if (isJsonObject(selector)) return selector
  throw refusal('invalid_selector_json', 'Selector must be a JSON object, not: ', selector)
}

/**
 * The name of a design document, optionally followed by a slash and the name of an index; or a list of both.
 * @throws invalid_index_name
 */
export function readIndexName(value: unknown): readonly string[] {
  if (value === undefined || value === null) return []
  const names = typeof value === 'string' ? value.replace(/^_design\//, '').split('/') : value
  const isName = Array.isArray(names) && names.length <= 2 && names.every((name) => typeof name === 'string')
  if (isName) return names as readonly string[]
  throw refusal('invalid_index_name', 'Invalid index name: ', value)
}

/**
 * The bookmark after a document: a JSON list with its id, and with its key in a json index, in base64url. Bookmarks are
 * opaque to clients, as in CouchDB.
 */
export function bookmarkOf({ id, key }: Position): string {
  return Buffer.from(`[${JSON.stringify(id)}${key === null ? '' : `,${key}`}]`).toString('base64url')
}

function readBookmark(value: unknown): Pick<FindRequest, 'after' | 'bookmark'> {
  if (value === undefined || value === null || value === '' || value === NO_BOOKMARK) {
    return { after: null, bookmark: NO_BOOKMARK }
  }
  const after = typeof value === 'string' ? bookmarkedPosition(value) : null
  if (after === null) throw invalidBookmark(value)
  return { after, bookmark: value as string }
}

function bookmarkedPosition(bookmark: string): Position | null {
  const text = Buffer.from(bookmark, 'base64url').toString()
  try {
    const read: unknown = JSON.parse(text)
    const [id, values] = Array.isArray(read) ? read : []
    if (typeof id !== 'string' || !id.isWellFormed()) return null
    const beginning = `[${JSON.stringify(id)}`
    const key = Array.isArray(values) ? text.slice(beginning.length + 1, -1) : null
    return bookmarkOf({ id, key }) === bookmark ? { id, key } : null
  } catch {
    return null
  }
}

/** The refusal of a bookmark that another query or another server has made. */
export function invalidBookmark(bookmark: unknown): CouchError {
  return refusal('invalid_bookmark', 'Invalid bookmark value: ', bookmark)
}

/** @throws invalid_sort_json, invalid_sort_field, unsupported_mixed_sort */
export function readSort(value: unknown): FindRequest['sort'] {
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
  throw refusal('invalid_sort_field', 'Invalid sort field: ', spec)
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

function readPartition(value: unknown, partitioned: boolean): string {
  if (value === undefined || value === '') return ''
  const partition = checkPartition(value)
  if (partitioned) return partition
  throw new CouchError('query_parse_error', '`partition` parameter is not supported on this db')
}

/** Each document has a single copy, so every quorum is met. */
function readQuorum(r: unknown): number {
  return r === undefined ? 1 : positiveOf(r)
}

/** @throws invalid_pos_integer */
export function positiveOf(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) > 0) return value as number
  throw refusal('invalid_pos_integer', '', value, ' is not an integer greater than zero')
}

function readStale(value: unknown): 'ok' | false {
  if (value === 'ok') return 'ok'
  if (value === undefined || value === false || value === 'false') return false
  throw refusal('invalid_value', 'Invalid value for stale: ', value)
}

/** Whether the answer is in descending order. */
export function isDescending({ sort }: Pick<FindRequest, 'sort'>): boolean {
  return sort[0]?.[1] === 'desc'
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

/** An error that quotes a value. */
export function refusal(code: ErrorName, before: string, value: unknown, after = ''): CouchError {
  return new CouchError(code, before + JSON.stringify(value).slice(0, MAX_QUOTED) + after)
}
