/**
 * The filter of a feed request, protocol.md 5.1, 5.5 and 5.6: its parameters and the body of its POST. Pure.
 */
import { CouchError } from '../core/errors.ts'
import { parseJson } from '../documents/body.ts'
import type { Body } from '../documents/database.ts'
import type { Schema } from '../documents/json-parser.ts'
import { bodyLength, bodyObject, bodyText } from '../documents/request-body.ts'
import { MAX_FIELDS, parseFieldPath } from '../query/projection.ts'
import type { FeedQuery } from './changes-query.ts'
import { type ChangesFilter, type ChangesOptions, filterError } from './rows.ts'

/** The options of a feed that decide which documents pass. */
export type FilterOptions = Pick<ChangesOptions, 'docIds' | 'filter'>

type FilterQuery = Pick<FeedQuery, 'filter' | 'docIds' | 'view'>

/**
 * Reads the filter of a request.
 * @param body the body of a POST, if it has one
 * @param request returns the JSON text of the request for a filter function; called only if there is one
 * @throws bad_request, invalid_filter with CouchDB's texts; invalid_json
 */
export async function readFilter(
  query: FilterQuery,
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

/** Whether the filter is a function, which sees the body of the request. */
export function isFunctionFilter({ filter }: FilterQuery): boolean {
  return filter !== '' && !filter.startsWith('_')
}

function listedIds({ docIds: text }: FilterQuery, body: FilterBody | undefined): readonly string[] {
  const ofAddress = () => (text === undefined ? undefined : asDocIds(parseJson(text)))
  const ids = body === undefined ? ofAddress() : body.docIds
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

function viewFilter({ view = '' }: FilterQuery): ChangesFilter {
  if (view === '') throw badRequest('`view` filter parameter is not provided.')
  const [ddoc, name, ...others] = partsOf(view)
  if (ddoc === undefined || name === undefined || others.length > 0) {
    throw badRequest('`view` must be of the form `designname/viewname`')
  }
  return { kind: 'view', ddoc: `_design/${ddoc}`, name }
}

/** @returns null for a name of slashes only, which CouchDB treats like no filter */
function namedFunction(filter: string): { readonly ddoc: string; readonly name: string } | null {
  if (filter.startsWith('_')) throw badRequest('unknown builtin filter name')
  const [ddoc, name, ...others] = partsOf(filter)
  if (ddoc === undefined) return null
  if (name === undefined || others.length > 0) {
    throw badRequest('`filter` must be of the form `designname/filtername`')
  }
  return { ddoc: `_design/${ddoc}`, name }
}

/** Splits a name at slashes and skips empty parts. Each part may be percent-encoded, so a name can contain a slash. */
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

/** The members of a POST body that filters use; absent if the body lacks them. Read on the thread of the database. */
export interface FilterBody {
  /** Present only if it is a list of strings. */
  readonly docIds?: readonly string[]
  /** JSON text. */
  readonly selector?: string
  /** Any value; not checked yet. */
  readonly fields?: unknown
  /** The JSON text of the whole body, if it was requested. */
  readonly text?: string
}

/** The maximum number of ids in a list, since each page sends the list to the database thread and looks up every id. */
const MAX_DOC_IDS = 50_000
/** The longest selector or body, in bytes. Selectors are compiled repeatedly, and bodies are sent with each batch. */
const MAX_TEXT = 1024 * 1024

const SHAPE: Schema = {
  members: {
    doc_ids: { maxCount: MAX_DOC_IDS },
    selector: { maxLength: MAX_TEXT, tooLong: selectorTooLong },
  },
  others: { maxLength: MAX_TEXT },
}

/**
 * Reads the body of a POST to `_changes`.
 * @param withText whether to return the whole text, for `req.body` of a filter function
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

/** @returns the value if it is a list of strings, otherwise undefined */
export function asDocIds(value: unknown): readonly string[] | undefined {
  return Array.isArray(value) && value.every((id) => typeof id === 'string') ? value : undefined
}
