/**
 * Reads the parameters of `_all_docs` from the query string and from a POST body with the same names (protocol.md 8.1),
 * and computes id ranges.
 */
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { checkPartition, partitionIds } from '../core/partitions.ts'
import type { IdRange } from '../storage/engine.ts'
import type { AllDocsKind, AllDocsQuery, Body } from './database.ts'
import type { Schema } from './json-parser.ts'
import { bodyObject } from './request-body.ts'

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] }
type Members = Readonly<Record<string, unknown>>

/** Maps each name in a body to the query member that it sets, and to its parser. */
const MEMBERS: Readonly<Record<string, readonly [keyof AllDocsQuery, (value: unknown) => unknown]>> = {
  partition: ['partition', checkPartition],
  key: ['key', rangeKey],
  startkey: ['startKey', rangeKey],
  start_key: ['startKey', rangeKey],
  endkey: ['endKey', rangeKey],
  end_key: ['endKey', rangeKey],
  inclusive_end: ['inclusiveEnd', booleanOf],
  descending: ['descending', booleanOf],
  limit: ['limit', countOf],
  skip: ['skip', countOf],
  include_docs: ['includeDocs', booleanOf],
  conflicts: ['conflicts', booleanOf],
  attachments: ['attachments', booleanOf],
  att_encoding_info: ['attEncodingInfo', booleanOf],
  update_seq: ['updateSeq', booleanOf],
}

/** Maximum number of queries in one body; CouchDB has no limit. */
const MAX_QUERIES = 10_000
/**
 * Maximum number of characters in one key or other value of a query. The limit exists because the value may be sent
 * back.
 */
const MAX_MEMBER = 64 * 1024

/** A query in a body, for `_all_docs` or a view. */
export const QUERY_SCHEMA: Schema = {
  members: { keys: { elements: { maxLength: MAX_MEMBER } }, queries: {} },
  others: { maxLength: MAX_MEMBER },
}

/** Several queries in a body. */
export const QUERIES_SCHEMA: Schema = {
  members: { queries: { maxCount: MAX_QUERIES, elements: QUERY_SCHEMA } },
  others: { maxLength: MAX_MEMBER },
}

/**
 * Merges the query string and the body; the query string overrides the body.
 * @throws query_parse_error, illegal_partition, bad_request, body_not_object, invalid_json, too_large, too_deep
 */
export async function allDocsQuery(query: AllDocsQuery, body: Body | null): Promise<AllDocsQuery> {
  return whole(body === null ? query : { ...(await bodyQuery(body)), ...query })
}

async function bodyQuery(body: Body): Promise<AllDocsQuery> {
  const members = await bodyObject(body, QUERY_SCHEMA)
  if (members.queries !== undefined) {
    throw new CouchError('bad_request', 'The `queries` parameter is no longer supported at this endpoint')
  }
  return memberQuery(members, '`keys` body member must be an array.')
}

/**
 * The queries of a body of `_all_docs/queries`.
 * @param defaults the query string; each query overrides it
 * @throws as {@link allDocsQuery}, for the first query with an error
 */
export async function allDocsQueriesOf(defaults: AllDocsQuery, body: Body): Promise<AllDocsQuery[]> {
  const { queries } = await bodyObject(body, QUERIES_SCHEMA)
  if (queries === undefined)
    throw new CouchError('bad_request', 'POST body must include `queries` parameter.')
  if (!Array.isArray(queries)) throw new CouchError('bad_request', '`queries` member must be an array.')
  return (queries as readonly unknown[]).map((members) => {
    if (!isJsonObject(members)) {
      throw new CouchError('bad_request', '`queries` member must be an array of objects.')
    }
    return whole({ ...defaults, ...memberQuery(members, '`keys` member must be an array.') })
  })
}

function whole(query: AllDocsQuery): AllDocsQuery {
  const hasKey = query.key !== undefined || query.startKey !== undefined || query.endKey !== undefined
  if (query.keys !== undefined && hasKey) {
    throw new CouchError('query_parse_error', '`keys` is incompatible with `key`, `start_key` and `end_key`')
  }
  return query
}

function memberQuery(members: Members, keysReason: string): AllDocsQuery {
  const query: Mutable<AllDocsQuery> = {}
  if (members.keys !== undefined && members.keys !== null) {
    if (!Array.isArray(members.keys)) throw new CouchError('bad_request', keysReason)
    query.keys = members.keys
  }
  refuseReducing(members)
  for (const [name, value] of Object.entries(members)) {
    const member = Object.hasOwn(MEMBERS, name) ? MEMBERS[name] : undefined
    if (member !== undefined) Object.assign(query, { [member[0]]: member[1](value) })
  }
  return query
}

/** A list of documents has no reduce function and no groups. */
function refuseReducing({ reduce = false, group = false, group_level: level = 0 }: Members): void {
  if (booleanOf(reduce)) throw parseError('Reduce is invalid for map-only views.')
  if (booleanOf(group) || level !== 0) throw parseError('Invalid use of grouping on a map view.')
}

/**
 * Converts a key of a range. A key that is not a string sorts before every id, as in Erlang's term order. As a start
 * key it excludes nothing; as an end key it excludes everything.
 */
export function rangeKey(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function booleanOf(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  throw parseError(`Invalid boolean parameter: ${shown(value)}`)
}

function countOf(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw parseError(`Invalid value for integer: ${shown(value)}`)
  if ((value as number) < 0) throw parseError(`Invalid value for positive integer: ${shown(value)}`)
  return value as number
}

function shown(value: unknown): string {
  return JSON.stringify(value).slice(0, 100)
}

function parseError(reason: string): CouchError {
  return new CouchError('query_parse_error', reason)
}

export const KIND_PREFIX: Readonly<Record<AllDocsKind, string>> = {
  all: '',
  design: DESIGN_PREFIX,
  local: LOCAL_PREFIX,
}

type Bound = NonNullable<IdRange['start']>

/** The id range of a query, in its direction; null if it is empty. */
export function queryRange(kind: AllDocsKind, query: AllDocsQuery): IdRange | null {
  const descending = query.descending ?? false
  const startKey = query.key ?? query.startKey
  const endKey = query.key ?? query.endKey
  const start = startKey === undefined ? undefined : { id: startKey, inclusive: true }
  const end =
    endKey === undefined
      ? undefined
      : { id: endKey, inclusive: query.key !== undefined || query.inclusiveEnd !== false }
  const [low, high] = descending ? [end, start] : [start, end]
  const of = query.partition === undefined ? undefined : partitionRange(query.partition)
  return directed(
    higher(low, higher(of?.start, kindLow(kind))),
    lower(high, lower(of?.end, kindHigh(kind))),
    descending,
  )
}

/** The id range before the first document of a query; null if it is empty. */
export function rangeBefore(kind: AllDocsKind, query: AllDocsQuery): IdRange | null {
  const key = query.key ?? query.startKey
  const sought = key === undefined ? undefined : { id: key, inclusive: true }
  const of = query.partition === undefined ? undefined : partitionRange(query.partition)
  const first = query.descending ? lower(sought, of?.end) : higher(sought, of?.start)
  if (first === undefined) return null
  const edge = { id: first.id, inclusive: !first.inclusive }
  return query.descending
    ? directed(higher(edge, kindLow(kind)), kindHigh(kind), false)
    : directed(kindLow(kind), lower(edge, kindHigh(kind)), false)
}

/** All ids of a partition. */
export function partitionRange(partition: string): { readonly start: Bound; readonly end: Bound } {
  const { first, last } = partitionIds(partition)
  return { start: { id: first, inclusive: true }, end: { id: last, inclusive: false } }
}

/** All ids of a kind. */
export function kindRange(kind: AllDocsKind): IdRange {
  return directed(kindLow(kind), kindHigh(kind), false) ?? {}
}

function kindLow(kind: AllDocsKind): Bound | undefined {
  return kind === 'all' ? undefined : { id: KIND_PREFIX[kind], inclusive: true }
}

/** `0` is the character after `/`. */
function kindHigh(kind: AllDocsKind): Bound | undefined {
  return kind === 'all' ? undefined : { id: KIND_PREFIX[kind].replace('/', '0'), inclusive: false }
}

/** The stricter of two bounds at the beginning of a range. */
export function higher(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  return stricter(a, b, 1)
}

/** The stricter of two bounds at the end of a range. */
export function lower(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  return stricter(a, b, -1)
}

/** The stricter bound. Of two bounds with the same id, it is the exclusive one. */
function stricter(a: Bound | undefined, b: Bound | undefined, direction: number): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b
  const order = compareUtf8(a.id, b.id) * direction
  if (order === 0) return a.inclusive ? b : a
  return order > 0 ? a : b
}

/** A range with these bounds; null if it is empty. */
export function directed(
  low: Bound | undefined,
  high: Bound | undefined,
  descending: boolean,
): IdRange | null {
  if (low !== undefined && high !== undefined && compareUtf8(low.id, high.id) > 0) return null
  const [start, end] = descending ? [high, low] : [low, high]
  return { ...(start && { start }), ...(end && { end }), descending }
}
