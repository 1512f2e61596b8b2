/** Which filter a request asks for, protocol.md 5.5 and 5.6. Pure. */
import { CouchError } from '../core/errors.ts'
import { parseJson } from '../documents/body.ts'
import { parseFieldPath } from '../query/field-path.ts'
import { MAX_FIELDS } from '../query/projection.ts'
import { asDocIds, type FilterBody } from './filter-body.ts'
import { type ChangesFilter, filterError } from './filter-kinds.ts'
import type { FeedQuery } from './query.ts'
import type { ChangesOptions } from './rows.ts'

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
