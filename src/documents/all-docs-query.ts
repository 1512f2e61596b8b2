/** The parameters of `_all_docs` from the address and from a POST body of the same names; protocol.md 8.1. */

import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { AllDocsQuery, Body } from './database.ts'
import type { Shape } from './json-parser.ts'
import { bodyObject } from './request-body.ts'

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] }
type Members = Readonly<Record<string, unknown>>

/** Which member of the query each name of a body sets, and what it must be. */
const MEMBERS: Readonly<Record<string, readonly [keyof AllDocsQuery, (value: unknown) => unknown]>> = {
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

/** Queries of one body; CouchDB takes any number. */
export const MAX_QUERIES = 10_000
/** Characters of one key, or of what else stands in a query: it may be sent back. */
const MAX_MEMBER = 64 * 1024

/** A query in a body, of a listing or of a view. */
export const QUERY_SHAPE: Shape = {
  members: { keys: { elements: { maxLength: MAX_MEMBER } }, queries: {} },
  others: { maxLength: MAX_MEMBER },
}

/** Several queries in a body. */
export const QUERIES_SHAPE: Shape = {
  members: { queries: { maxCount: MAX_QUERIES, elements: QUERY_SHAPE } },
  others: { maxLength: MAX_MEMBER },
}

/**
 * The whole query; the address overrides the body.
 * @throws query_parse_error, bad_request, body_not_object, invalid_json, too_large, too_deep
 */
export async function allDocsQuery(asked: AllDocsQuery, body: Body | null): Promise<AllDocsQuery> {
  return whole(body === null ? asked : { ...(await bodyQuery(body)), ...asked })
}

async function bodyQuery(body: Body): Promise<AllDocsQuery> {
  const members = await bodyObject(body, QUERY_SHAPE)
  if (members.queries !== undefined) {
    throw new CouchError('bad_request', 'The `queries` parameter is no longer supported at this endpoint')
  }
  return memberQuery(members, '`keys` body member must be an array.')
}

/**
 * The queries of a body of `_all_docs/queries`.
 * @param asked what the address says; each query overrides it
 * @throws as {@link allDocsQuery}, for whichever query is at fault
 */
export async function allDocsQueriesOf(asked: AllDocsQuery, body: Body): Promise<AllDocsQuery[]> {
  const { queries } = await bodyObject(body, QUERIES_SHAPE)
  if (queries === undefined)
    throw new CouchError('bad_request', 'POST body must include `queries` parameter.')
  if (!Array.isArray(queries)) throw new CouchError('bad_request', '`queries` member must be an array.')
  return (queries as readonly unknown[]).map((members) => {
    if (!isJsonObject(members)) {
      throw new CouchError('bad_request', '`queries` member must be an array of objects.')
    }
    return whole({ ...asked, ...memberQuery(members, '`keys` member must be an array.') })
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

/** A list of documents has nothing to reduce or to group. */
function refuseReducing({ reduce = false, group = false, group_level: level = 0 }: Members): void {
  if (booleanOf(reduce)) throw parseError('Reduce is invalid for map-only views.')
  if (booleanOf(group) || level !== 0) throw parseError('Invalid use of grouping on a map view.')
}

/**
 * A key of a range. One that is no string stands before every id, as Erlang's order of terms has it: as a start it
 * bounds nothing, as an end it leaves nothing.
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
