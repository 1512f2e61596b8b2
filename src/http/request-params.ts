/** What a call says in its path, query and headers; protocol.md 2.2, 3.1, 3.3, 3.6, 17. */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import { parseJson } from '../documents/body.ts'
import type { OpenOptions, PutOptions } from '../documents/database.ts'
import { headerParameter } from '../documents/multipart.ts'

/** The query's parameters, decoded; the last value of a repeated one. */
export type Query = Readonly<Record<string, string>>

/** A query string with a bad escape, until plugins/error-replies.ts can refuse it. */
export const BAD_QUERY: Query = Object.freeze(Object.create(null) as Record<string, string>)

/**
 * Parses a query string; `+` is a space. For Fastify's router option `querystringParser`.
 * @returns {@link BAD_QUERY} when an escape is broken or holds no UTF-8
 */
export function parseQuery(text: string): Query {
  const query = Object.create(null) as Record<string, string>
  if (text === '') return query
  try {
    for (const pair of text.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = equals === -1 ? pair : pair.slice(0, equals)
      query[decode(name)] = equals === -1 ? '' : decode(pair.slice(equals + 1))
    }
    return query
  } catch {
    return BAD_QUERY
  }
}

function decode(text: string): string {
  return decodeURIComponent(text.replaceAll('+', ' '))
}

export function queryOf(request: FastifyRequest): Query {
  return request.query as Query
}

/** A parameter as it was sent; undefined if it is absent. */
export function textParam(query: Query, name: string): string | undefined {
  return query[name]
}

/** A boolean parameter of document reads: only the exact text `true` is true. */
export function isOn(query: Query, name: string): boolean {
  return query[name] === 'true'
}

/** A boolean parameter of views and lists, checked with `VIEW_BOOLEAN`; undefined if it is absent. */
export function viewBoolean(query: Query, name: string): boolean | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : text.toLowerCase() === 'true'
}

/** A number, checked with `COUNT`; undefined if it is absent. */
export function count(query: Query, name: string): number | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : Number(text)
}

/** The `limit` of a list that is paged, at least 1. @param usual without the parameter @param most however large it is */
export function pageLimit(query: Query, usual: number, most: number): number {
  return Math.min(most, Math.max(1, count(query, 'limit') ?? usual))
}

/**
 * The value of a JSON parameter, by the first of its names that is present; undefined without any.
 * @throws invalid_json, too_deep
 */
export function jsonParam(query: Query, ...names: readonly string[]): unknown {
  const name = names.find((each) => textParam(query, each) !== undefined)
  if (name === undefined) return undefined
  return parseJson(query[name] ?? '')
}

/** Base for parsing a path. */
const HERE = 'http://here.invalid'

/**
 * @returns a path of this server, encoded, with query and fragment; null if it leads elsewhere: to another scheme or
 *   host, also in the forms that browsers read as a host (`//host`, `/\host`)
 */
export function localPath(text: string): string | null {
  if (!text.startsWith('/') || /^\/[/\\]/.test(text) || !URL.canParse(text, HERE)) return null
  const { origin, pathname, search, hash } = new URL(text, HERE)
  // Removed dot segments may have left slashes at the beginning.
  return origin === HERE && !pathname.startsWith('//') ? pathname + search + hash : null
}

/** The parameters in the paths of routes, by their names in the route table. */
type PathParams = Readonly<
  Partial<
    Record<
      | 'db'
      | 'partition'
      | 'docid'
      | 'ddoc'
      | 'local'
      | 'view'
      | 'node'
      | 'section'
      | 'key'
      | 'id'
      | 'name'
      | 'type'
      | 'alarm'
      | 'fn'
      | 'other'
      | '*',
      string
    >
  >
>

/** @returns the parameters of the matched route, decoded; none for a request without a route */
export function pathParams({ params }: FastifyRequest): PathParams {
  return (params as PathParams | null | undefined) ?? {}
}

/**
 * A parameter that the route's path has.
 * @throws Error if the path has none of this name
 */
export function pathParam(request: FastifyRequest, name: keyof PathParams): string {
  const value = pathParams(request)[name]
  if (value === undefined) throw new Error(`No parameter ${name} on ${request.routeOptions.url}`)
  return value
}

/**
 * The document's id, from the parameter of the route that holds it. The database decides whether the id is legal, except
 * for a `_local` without a name.
 * @throws bad_request
 */
export function idOf(request: FastifyRequest): string {
  const { docid = '', ddoc, local } = pathParams(request)
  if (ddoc !== undefined) return DESIGN_PREFIX + ddoc
  if (local !== undefined) return LOCAL_PREFIX + local
  if (docid === '_local' || docid === LOCAL_PREFIX) {
    throw new CouchError('bad_request', 'Invalid _local document id.')
  }
  return docid
}

/** The options that a parameter turns on if it is `true`. */
const SWITCHES: Readonly<Record<string, readonly (keyof OpenOptions)[]>> = {
  latest: ['latest'],
  revs: ['revs'],
  revs_info: ['revsInfo'],
  conflicts: ['conflicts'],
  deleted_conflicts: ['deletedConflicts'],
  meta: ['revsInfo', 'conflicts', 'deletedConflicts'],
  local_seq: ['localSeq'],
  attachments: ['attachments'],
  att_encoding_info: ['attEncodingInfo'],
  deleted: ['deleted'],
}

/**
 * The options for reading a document. Only requested ones are present, since each adds to the message to the database's
 * thread.
 * @throws invalid_json, invalid_revs_list, invalid_rev for a bad `atts_since`
 */
export function openOptions(query: Query): OpenOptions {
  const options: { -readonly [Name in keyof OpenOptions]: unknown } = {}
  for (const name of Object.keys(query)) {
    if (!Object.hasOwn(SWITCHES, name) || !isOn(query, name)) continue
    for (const option of SWITCHES[name] ?? []) options[option] = true
  }
  const rev = textParam(query, 'rev')
  const attsSince = attsSinceParam(query)
  if (rev !== undefined) options.rev = rev
  if (attsSince !== undefined) options.attsSince = attsSince
  return options as OpenOptions
}

function attsSinceParam(query: Query): readonly string[] | undefined {
  const revs = jsonParam(query, 'atts_since')
  if (revs === undefined) return undefined
  if (!Array.isArray(revs)) throw new CouchError('invalid_revs_list')
  if (!revs.every((rev) => typeof rev === 'string')) throw new CouchError('invalid_rev')
  return revs
}

/**
 * `open_revs`: `all`, bare as Fauxton sends it or as JSON, or a list; undefined if it is absent.
 * @throws invalid_json, invalid_revs_list
 */
export function openRevsParam(query: Query): readonly unknown[] | 'all' | undefined {
  if (query.open_revs === 'all') return 'all'
  const revs = jsonParam(query, 'open_revs')
  // CouchDB reads an empty list as its default, which is none.
  if (Array.isArray(revs)) return revs.length === 0 ? undefined : revs
  if (revs === undefined || revs === 'all') return revs
  throw new CouchError('invalid_revs_list')
}

/**
 * The revision in the query or in If-Match.
 * @throws bad_request if both are present and differ
 */
export function parentRev(request: FastifyRequest): Pick<PutOptions, 'rev' | 'revFrom'> {
  const inQuery = textParam(queryOf(request), 'rev')
  const inHeader = request.headers['if-match']?.trim().replace(/^"|"$/g, '')
  if (inHeader === undefined) return inQuery === undefined ? {} : { rev: inQuery, revFrom: 'query' }
  if (inQuery === undefined || inQuery === inHeader) return { rev: inHeader, revFrom: 'etag' }
  throw new CouchError('bad_request', 'Document rev and etag have different values')
}

/**
 * The header Destination of COPY: a percent-encoded id with an optional `?rev=`.
 * @throws bad_request, invalid_url, invalid_rev
 */
export function copyTarget({ destination }: IncomingHttpHeaders): { id: string; rev?: string } {
  if (typeof destination !== 'string' || destination === '') {
    throw new CouchError('bad_request', 'Destination header is mandatory for COPY.')
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(destination)) {
    throw new CouchError('bad_request', 'Destination URL must be relative.')
  }
  const [id = '', ...query] = destination.split('?')
  if (query.length === 0) return { id: decoded(id) }
  // CouchDB takes what follows the first `=` for the revision, whatever its name, and fails with 500 without one.
  const rev = /^[^=]*=([^=]*)$/.exec(query.join('?'))?.[1]
  if (rev === undefined) throw new CouchError('invalid_rev')
  return { id: decoded(id), rev: decoded(rev) }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new CouchError('invalid_url')
  }
}

const JSON_TYPE = 'application/json'

/** @returns the media type of the request's body in lower case, without parameters; empty if it is not stated */
export function mediaType(request: FastifyRequest): string {
  const header = request.headers['content-type'] ?? ''
  if (header === JSON_TYPE) return header
  const [type = ''] = header.split(';', 1)
  return type.trim().toLowerCase()
}

/**
 * A hook for calls that require JSON; protocol.md 1.3.
 * @throws bad_content_type
 */
export async function requireJsonType(request: FastifyRequest): Promise<void> {
  if (mediaType(request) !== JSON_TYPE) throw new CouchError('bad_content_type')
}

/** @returns the boundary of a multipart body; empty, which is no boundary, if the header states none */
export function multipartBoundary(request: FastifyRequest): string {
  return headerParameter(request.headers['content-type'] ?? '', 'boundary') ?? ''
}
