/** Which filter a request asks for, protocol.md 5.5 and 5.6. Pure. */
import { CouchError } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { parseJson } from '../documents/body.ts'
import type { Body, DatabaseInfo } from '../documents/database.ts'
import type { Schema } from '../documents/json-parser.ts'
import { bodyLength, bodyObject, bodyText } from '../documents/request-body.ts'
import { ADMIN_ONLY } from '../documents/security.ts'
import { MAX_FIELDS, parseFieldPath } from '../query/projection.ts'
import type { FeedQuery } from './changes-query.ts'
import { type ChangesFilter, type ChangesOptions, filterError } from './rows.ts'

/** The part of a feed's options that says what passes. */
export type FilterOptions = Pick<ChangesOptions, 'docIds' | 'filter'>

type AskedFilter = Pick<FeedQuery, 'filter' | 'docIds' | 'view'>

/**
 * Reads which filter is asked for.
 * @param body of a POST that has one
 * @param request JSON text of the request for a filter function, made only when one is asked for
 * @throws bad_request, invalid_filter with CouchDB's texts; invalid_json
 */
export async function readFilter(
  query: AskedFilter,
  body: FilterBody | undefined,
  request: () => Promise<string>,
): Promise<FilterOptions> {
  const { filter } = query
  switch (filter) {
    case '':
      return {}
    case '_doc_ids':
      return { docIds: listedIds(query, body) }
    case '_design':
      return { filter: { kind: 'design' } }
    case '_selector':
      return { filter: selectorFilter(body) }
    case '_view':
      return { filter: viewFilter(query) }
  }
  const named = namedFunction(filter)
  return named === null ? {} : { filter: { kind: 'function', ...named, request: await request() } }
}

/** Whether a filter function is asked for, which sees the request's body. */
export function asksForFunction({ filter }: AskedFilter): boolean {
  return filter !== '' && !filter.startsWith('_')
}

function listedIds({ docIds: text }: AskedFilter, body: FilterBody | undefined): readonly string[] {
  const ids = body?.docIds ?? (text === undefined ? undefined : asDocIds(parseJson(text)))
  if (ids === undefined) throw badRequest('`doc_ids` filter parameter is not a list of doc ids.')
  return ids
}

function selectorFilter(body: FilterBody | undefined): ChangesFilter {
  if (body === undefined) throw badRequest('Selector must be specified in POST payload')
  const { selector, fields } = body
  if (selector === undefined) throw badRequest('Selector error: expected a JSON object')
  if (fields === undefined) return { kind: 'selector', selector }
  if (!Array.isArray(fields)) throw badRequest('Selector error: fields must be JSON array')
  if (fields.length > MAX_FIELDS) throw badRequest(`Selector error: there are more than ${MAX_FIELDS} fields`)
  const wrong = fields.find((field) => typeof field !== 'string')
  if (wrong !== undefined) throw badRequest(`Invalid JSON for field spec: ${JSON.stringify(wrong)}`)
  try {
    for (const field of fields as string[]) parseFieldPath(field)
  } catch (thrown) {
    throw filterError(thrown)
  }
  // An empty list means all, as in CouchDB.
  return { kind: 'selector', selector, ...(fields.length > 0 && { fields: fields as string[] }) }
}

function viewFilter({ view = '' }: AskedFilter): ChangesFilter {
  if (view === '') throw badRequest('`view` filter parameter is not provided.')
  const [ddoc, name, ...others] = partsOf(view)
  if (ddoc === undefined || name === undefined || others.length > 0) {
    throw badRequest('`view` must be of the form `designname/viewname`')
  }
  return { kind: 'view', ddoc: `_design/${ddoc}`, name }
}

/** null for a name of nothing but slashes, which CouchDB takes for no filter. */
function namedFunction(filter: string): { readonly ddoc: string; readonly name: string } | null {
  if (filter.startsWith('_')) throw badRequest('unknown builtin filter name')
  const [ddoc, name, ...others] = partsOf(filter)
  if (ddoc === undefined) return null
  if (name === undefined || others.length > 0) {
    throw badRequest('`filter` must be of the form `designname/filtername`')
  }
  return { ddoc: `_design/${ddoc}`, name }
}

/** Empty parts do not count; each part may be escaped once more, so that a name may hold a slash. */
function partsOf(text: string): string[] {
  const parts = text.split('/').filter((part) => part !== '')
  try {
    return parts.map(decodeURIComponent)
  } catch {
    return parts
  }
}

function badRequest(reason: string): CouchError {
  return new CouchError('bad_request', reason)
}

// The body of a POST to `_changes`, on the database's thread; protocol.md 5.1.

/** What filters take from a body. Members that it does not have are absent. */
export interface FilterBody {
  /** When it is a list of strings. */
  readonly docIds?: readonly string[]
  /** JSON text. */
  readonly selector?: string
  /** Whatever it is. */
  readonly fields?: unknown
  /** The whole JSON text; only where it was asked for. */
  readonly text?: string
}

/** Ids go to the database's thread with each page, and are looked up for each. */
const MAX_DOC_IDS = 50_000
/** Selectors are compiled again and again, and bodies go to functions with each batch. */
const MAX_TEXT = 1024 * 1024

const SHAPE: Schema = {
  members: {
    doc_ids: { maxCount: MAX_DOC_IDS },
    selector: { maxLength: MAX_TEXT, tooLong: selectorTooLong },
  },
  others: { maxLength: MAX_TEXT },
}

/**
 * @param withText whether the whole text is wanted, for a filter function's `req.body`
 * @throws invalid_json, body_not_object, too_large; invalid_filter for a selector that is too long
 */
export async function readFilterBody(body: Body, withText: boolean): Promise<FilterBody> {
  if (withText && bodyLength(body) > MAX_TEXT) throw tooLarge('too_large', 'the request body')
  const { doc_ids: ids, selector, fields } = await bodyObject(body, SHAPE)
  const docIds = asDocIds(ids)
  return {
    ...(docIds !== undefined && { docIds }),
    ...(selector !== undefined && { selector: selectorText(selector) }),
    ...(fields !== undefined && { fields }),
    ...(withText && { text: bodyText(body) }),
  }
}

function selectorText(selector: unknown): string {
  const text = JSON.stringify(selector)
  if (text.length > MAX_TEXT) throw selectorTooLong()
  return text
}

function selectorTooLong(): CouchError {
  return tooLarge('invalid_filter', 'Selector error: the selector')
}

function tooLarge(code: 'too_large' | 'invalid_filter', what: string): CouchError {
  return new CouchError(code, `${what} is longer than ${MAX_TEXT} bytes`)
}

/** A value as a list of document ids; undefined when it is none. */
export function asDocIds(value: unknown): readonly string[] | undefined {
  return Array.isArray(value) && value.every((id) => typeof id === 'string') ? value : undefined
}

// The object `req` that filter functions see, protocol.md 9.2: JSON text, made on two threads.

/** What the HTTP thread knows of a request; members as CouchDB has them, in its order. */
export interface KnownRequest {
  /** Of the moment when the request came. */
  readonly info: DatabaseInfo
  readonly uuid: string
  readonly method: string
  /** The path's parts, decoded. */
  readonly path: readonly string[]
  /** The path with its query, as it was sent. */
  readonly rawPath: string
  readonly query: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  /** JSON text of the body; undefined without one. */
  readonly body: string | undefined
  readonly peer: string
}

/** JSON text of the object but for the members that {@link completeRequest} adds. */
export function packRequest(known: KnownRequest): string {
  const { info, uuid, method, path, rawPath, query, headers, body, peer } = known
  const before = {
    info,
    uuid,
    id: null,
    method,
    requested_path: path,
    path,
    raw_path: rawPath,
    query,
    headers,
  }
  // CouchDB's word for a request without a body.
  const after = `"body":${body ?? '"undefined"'},${JSON.stringify({ peer, form: {}, cookie: {} }).slice(1)}`
  return `${JSON.stringify(before).slice(0, -1)},${after}`
}

/** The whole object: who asks, and the security object, are those of the turn in which the function is run. */
export function completeRequest(
  packed: string,
  database: string,
  user: UserCtx,
  security: SecurityObject | null,
): string {
  const userCtx = { db: database, name: user.name, roles: user.roles }
  const rest = JSON.stringify({ userCtx, secObj: security ?? ADMIN_ONLY })
  return `${packed.slice(0, -1)},${rest.slice(1)}`
}
