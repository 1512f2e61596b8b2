/** CouchDB's reading of the query string; protocol.md 17. */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import { parseJson } from '../documents/body.ts'
import type { OpenOptions, PutOptions } from '../documents/database.ts'
import type { Schema } from './route-table.ts'

/** The parameters, decoded; of a repeated one the last. */
export type Query = Readonly<Record<string, string>>

/** Stands for a query string with a bad escape, until plugins/errors.ts can refuse it. */
export const BAD_QUERY: Query = Object.freeze(Object.create(null) as Record<string, string>)

/** `true` or `false` in any case, as the parameters of views and their kin. */
export const VIEW_BOOLEAN: Schema = {
  type: 'string',
  pattern: '^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$',
  refusal: ['query_parse_error', 'Invalid boolean parameter: "%"'],
}

/** A whole number that is not negative, as `limit` and `skip`. */
export const COUNT: Schema = {
  allOf: [
    {
      type: 'string',
      pattern: '^-?[0-9]+$',
      refusal: ['query_parse_error', 'Invalid value for integer: "%"'],
    },
    {
      type: 'string',
      pattern: '^[0-9]',
      refusal: ['query_parse_error', 'Invalid value for positive integer: "%"'],
    },
  ],
}

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

/** The request's parameters. */
export function queryOf(request: FastifyRequest): Query {
  return request.query as Query
}

/** A parameter as it came; undefined when it is not given. */
export function textParam(query: Query, name: string): string | undefined {
  return query[name]
}

/** A switch of document reads: only the exact text `true` turns it on. */
export function isOn(query: Query, name: string): boolean {
  return query[name] === 'true'
}

/** A switch of views and their kin, of the shape {@link VIEW_BOOLEAN}; undefined when it is not given. */
export function viewBoolean(query: Query, name: string): boolean | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : text.toLowerCase() === 'true'
}

/** A parameter of the shape {@link COUNT}; undefined when it is not given. */
export function count(query: Query, name: string): number | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : Number(text)
}

/**
 * A parameter that is JSON text, under the first of its names that is given; undefined without any.
 * @throws invalid_json, too_deep
 */
export function jsonParam(query: Query, ...names: readonly string[]): unknown {
  const name = names.find((each) => textParam(query, each) !== undefined)
  if (name === undefined) return undefined
  return parseJson(query[name] ?? '')
}

/** Stands for this server while a path is taken apart. */
const HERE = 'http://here.invalid'

/**
 * @returns a path of this server, encoded, its query and fragment included; null for what leads elsewhere: another
 *   scheme or host, also in the forms that browsers read as one (`//host`, `/\host`)
 */
export function localPath(text: string): string | null {
  if (!text.startsWith('/') || /^\/[/\\]/.test(text) || !URL.canParse(text, HERE)) return null
  const { origin, pathname, search, hash } = new URL(text, HERE)
  // Dot segments are gone by now, and may have left slashes at the beginning.
  return origin === HERE && !pathname.startsWith('//') ? pathname + search + hash : null
}

// What a call about one document says in its path, query and headers; protocol.md 2.2, 3.1, 3.3, 3.6.

interface DocumentParams {
  readonly docid?: string
  readonly ddoc?: string
  readonly local?: string
}

/**
 * The document's id, from whichever parameter of the route holds it. Whether it is legal is for the database to
 * say, but for a `_local` without a name.
 * @throws bad_request
 */
export function idOf(request: FastifyRequest): string {
  const { docid = '', ddoc, local } = request.params as DocumentParams
  if (ddoc !== undefined) return DESIGN_PREFIX + ddoc
  if (local !== undefined) return LOCAL_PREFIX + local
  if (docid === '_local' || docid === LOCAL_PREFIX) {
    throw new CouchError('bad_request', 'Invalid _local document id.')
  }
  return docid
}

/** What a parameter switches on when it is `true`. */
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
 * The options of reading a document; only those that are asked for, since each is named in the message to the
 * database's thread.
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
 * `open_revs`: `all`, bare as Fauxton sends it or as JSON, or a list; undefined when it is not asked for.
 * @throws invalid_json, invalid_revs_list
 */
export function openRevsParam(query: Query): readonly unknown[] | 'all' | undefined {
  if (query.open_revs === 'all') return 'all'
  const revs = jsonParam(query, 'open_revs')
  if (revs === undefined || revs === 'all' || Array.isArray(revs)) return revs
  throw new CouchError('invalid_revs_list')
}

/**
 * The revision that the query or If-Match names.
 * @throws bad_request when both do, and differ
 */
export function parentRev(request: FastifyRequest): Pick<PutOptions, 'rev' | 'revFrom'> {
  const inQuery = textParam(queryOf(request), 'rev')
  const inHeader = request.headers['if-match']?.trim().replace(/^"|"$/g, '')
  if (inHeader === undefined) return inQuery === undefined ? {} : { rev: inQuery, revFrom: 'query' }
  if (inQuery === undefined || inQuery === inHeader) return { rev: inHeader, revFrom: 'etag' }
  throw new CouchError('bad_request', 'Document rev and etag have different values')
}

/**
 * The header Destination of COPY: an id, percent-encoded, and maybe `?rev=`.
 * @throws bad_request, invalid_url
 */
export function copyTarget({ destination }: IncomingHttpHeaders): { id: string; rev?: string } {
  if (typeof destination !== 'string' || destination === '') {
    throw new CouchError('bad_request', 'Destination header is mandatory for COPY.')
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(destination)) {
    throw new CouchError('bad_request', 'Destination URL must be relative.')
  }
  const [id = '', query = ''] = destination.split('?', 2)
  const rev = /^rev=(.+)$/.exec(query)?.[1]
  return { id: decoded(id), ...(rev !== undefined && { rev: decoded(rev) }) }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new CouchError('invalid_url')
  }
}
