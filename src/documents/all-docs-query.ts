/** The parameters of `_all_docs` (protocol.md 8.1), and the ranges of ids that they name. */
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { partitionIds } from '../core/partitions.ts'
import type { IdRange } from '../storage/engine.ts'
import { parseJson } from './body.ts'
import type { AllDocsKind, AllDocsQuery, Body } from './database.ts'
import type { Schema } from './json-parser.ts'
import { checkedKeys, type ListParameters, readParameters, refuseReducing } from './list-parameters.ts'
import { bodyObject } from './request-body.ts'

type Members = Readonly<Record<string, unknown>>

/** A query whose keys are ids. */
export interface IdQuery
  extends Pick<
    ListParameters,
    | 'partition'
    | 'inclusiveEnd'
    | 'descending'
    | 'limit'
    | 'skip'
    | 'includeDocs'
    | 'conflicts'
    | 'attachments'
    | 'attEncodingInfo'
    | 'updateSeq'
  > {
  readonly keys?: readonly unknown[]
  readonly startKey?: string
  readonly endKey?: string
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
 * Reads the parameters of an address.
 * @param isWhole whether nothing follows in a body, so that a list of one key has a row for its key
 * @throws query_parse_error, illegal_partition, bad_request, invalid_json, too_deep
 */
export function addressQuery(
  parameters: Iterable<readonly [name: string, text: string]>,
  isWhole: boolean,
): AllDocsQuery {
  const read = readParameters(parameters, 'text')
  const [, keys] = [...parameters].findLast(([name]) => name === 'keys') ?? []
  if (!isWhole || keys === undefined) return read
  return { ...read, listedKeys: listOf(parseJson(keys), '`keys` parameter must be an array.') }
}

/**
 * Merges the query string and the body; the query string overrides the body.
 * @throws query_parse_error, illegal_partition, bad_request, body_not_object, invalid_json, too_large, too_deep
 */
export async function allDocsQuery(query: AllDocsQuery, body: Body | null): Promise<IdQuery> {
  if (body === null) return idQuery(query)
  const members = await bodyObject(body, QUERY_SCHEMA)
  const read = { ...readParameters(Object.entries(members), 'json'), ...query }
  if (members.keys === undefined) return idQuery(read)
  const listedKeys = listOf(members.keys, '`keys` body member must be an array.')
  return idQuery({ ...read, listedKeys: Array.isArray(query.keys) ? query.keys : listedKeys })
}

/**
 * The queries of a body of `_all_docs/queries`.
 * @param defaults the query string; each query overrides it
 * @throws as {@link allDocsQuery}, for the first query with an error
 */
export async function allDocsQueriesOf(defaults: AllDocsQuery, body: Body): Promise<IdQuery[]> {
  const queries = readQueries(await bodyObject(body, QUERIES_SCHEMA))
  return queries.map((members) => idQuery(readQuery(members, defaults)))
}

/**
 * @returns the queries in a body of `queries`
 * @throws bad_request
 */
export function readQueries({ queries }: Members): readonly Members[] {
  if (queries === undefined)
    throw new CouchError('bad_request', 'POST body must include `queries` parameter.')
  const list = listOf(queries, '`queries` member must be an array.')
  if (list.every(isJsonObject)) return list
  throw new CouchError('bad_request', '`queries` member must be an array of objects.')
}

/**
 * One of several queries.
 * @param defaults the parameters of the address; what says how rows are chosen by a list of keys and grouped is not among them
 * @throws as {@link readParameters}
 */
export function readQuery(members: Members, defaults: ListParameters): ListParameters {
  const { keys, group, groupLevel, ...before } = defaults
  return readParameters(Object.entries(members), 'json', before)
}

function listOf(value: unknown, reason: string): readonly unknown[] {
  if (Array.isArray(value)) return value
  throw new CouchError('bad_request', reason)
}

function idQuery(query: AllDocsQuery): IdQuery {
  refuseReducing(query)
  const { startKey = query.startDocId, endKey = query.endDocId } = query
  const { partition, inclusiveEnd, descending, limit, skip } = query
  const { includeDocs, conflicts, attachments, attEncodingInfo, updateSeq } = query
  const keys = listedKeys(query)
  const found = {
    partition,
    inclusiveEnd,
    descending,
    limit,
    skip,
    includeDocs,
    conflicts,
    attachments,
    attEncodingInfo,
    updateSeq,
    keys,
    startKey: startKey === undefined ? undefined : rangeKey(startKey),
    endKey: endKey === undefined ? undefined : rangeKey(endKey),
  }
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined))
}

/** The keys that have a row each. @throws query_parse_error for a range beside them */
function listedKeys(query: AllDocsQuery): readonly unknown[] | undefined {
  const { keys, listedKeys = keys, startKey, endKey } = query
  const [only] = Array.isArray(listedKeys) && listedKeys.length === 1 ? listedKeys.map(textOf) : []
  // The reader takes a single key for a range as well.
  const isOnlyKey = only !== undefined && [startKey, endKey].every((end) => textOf(end) === only)
  return checkedKeys(isOnlyKey ? { keys: listedKeys } : { keys: listedKeys, startKey, endKey })
}

function textOf(value: unknown): string | undefined {
  return JSON.stringify(value)
}

/**
 * Converts a key of a range. A key that is not a string sorts before every id, as in Erlang's term order. As a start
 * key it excludes nothing; as an end key it excludes everything.
 */
function rangeKey(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

export const KIND_PREFIX: Readonly<Record<AllDocsKind, string>> = {
  all: '',
  design: DESIGN_PREFIX,
  local: LOCAL_PREFIX,
}

type Bound = NonNullable<IdRange['start']>

/** The id range of a query, in its direction; null if it is empty. */
export function queryRange(kind: AllDocsKind, query: IdQuery): IdRange | null {
  const { startKey, endKey, descending = false, inclusiveEnd = true } = query
  const start = startKey === undefined ? undefined : { id: startKey, inclusive: true }
  const end = endKey === undefined ? undefined : { id: endKey, inclusive: inclusiveEnd }
  const [low, high] = descending ? [end, start] : [start, end]
  const of = query.partition === undefined ? undefined : partitionRange(query.partition)
  return directed(
    higher(low, higher(of?.start, kindLow(kind))),
    lower(high, lower(of?.end, kindHigh(kind))),
    descending,
  )
}

/** The id range before the first document of a query; null if it is empty. */
export function rangeBefore(kind: AllDocsKind, query: IdQuery): IdRange | null {
  const sought = query.startKey === undefined ? undefined : { id: query.startKey, inclusive: true }
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
