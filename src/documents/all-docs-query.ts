/** The parameters of `_all_docs` from the address and from a POST body of the same names; protocol.md 8.1. */
import { CouchError } from '../core/errors.ts'
import type { AllDocsQuery, Body } from './database.ts'
import { bodyObject } from './request-body.ts'

/** About a million keys. */
const MAX_BODY_BYTES = 64 * 1024 * 1024

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] }

/** Which member of the query each name of a body sets, and what it must be. */
const MEMBERS: Readonly<Record<string, readonly [keyof AllDocsQuery, 'string' | 'boolean' | 'count']>> = {
  key: ['key', 'string'],
  startkey: ['startKey', 'string'],
  start_key: ['startKey', 'string'],
  endkey: ['endKey', 'string'],
  end_key: ['endKey', 'string'],
  inclusive_end: ['inclusiveEnd', 'boolean'],
  descending: ['descending', 'boolean'],
  limit: ['limit', 'count'],
  skip: ['skip', 'count'],
  include_docs: ['includeDocs', 'boolean'],
  conflicts: ['conflicts', 'boolean'],
  attachments: ['attachments', 'boolean'],
  update_seq: ['updateSeq', 'boolean'],
}

/**
 * The whole query; the address overrides the body.
 * @throws query_parse_error, bad_request, body_not_object, invalid_json
 */
export function allDocsQuery(asked: AllDocsQuery, body: Body | null): AllDocsQuery {
  const query = body === null ? asked : { ...bodyQuery(body), ...asked }
  const hasKey = query.key !== undefined || query.startKey !== undefined || query.endKey !== undefined
  if (query.keys !== undefined && hasKey) {
    throw new CouchError('query_parse_error', '`keys` is incompatible with `key`, `start_key` and `end_key`')
  }
  return query
}

function bodyQuery(body: Body): AllDocsQuery {
  const request = bodyObject(body, MAX_BODY_BYTES)
  const query: Mutable<AllDocsQuery> = {}
  if (request.keys !== undefined && request.keys !== null) {
    if (!Array.isArray(request.keys)) {
      throw new CouchError('bad_request', '`keys` body member must be an array.')
    }
    query.keys = request.keys
  }
  for (const [name, value] of Object.entries(request)) {
    const member = Object.hasOwn(MEMBERS, name) ? MEMBERS[name] : undefined
    if (member !== undefined) Object.assign(query, { [member[0]]: checked(name, value, member[1]) })
  }
  return query
}

function checked(name: string, value: unknown, type: 'string' | 'boolean' | 'count'): unknown {
  const isRight =
    type === 'count' ? Number.isSafeInteger(value) && (value as number) >= 0 : typeof value === type
  if (isRight) return value
  const said = JSON.stringify(value)?.slice(0, 100)
  if (type === 'boolean') throw new CouchError('query_parse_error', `Invalid boolean parameter: ${said}`)
  if (type === 'count')
    throw new CouchError('query_parse_error', `Invalid value for positive integer: ${said}`)
  throw new CouchError('query_parse_error', `\`${name}\` must be a string.`)
}
