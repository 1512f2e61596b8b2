/** Which filter a request asks for, protocol.md 5.5 and 5.6. Pure. */
import { CouchError } from '../core/errors.ts'
import { parseJson } from '../documents/body.ts'
import { asDocIds } from './doc-ids.ts'
import type { FeedQuery } from './query.ts'

/**
 * The documents that `filter=_doc_ids` lists; undefined when no filter is asked for.
 * @param posted the `doc_ids` of the body of a POST
 * @param hasBody whether there was a body
 * @throws bad_request for what is no filter, with CouchDB's texts, and for filters that settee does not know yet;
 *   invalid_json
 */
export function filteredIds(
  query: Pick<FeedQuery, 'filter' | 'docIds' | 'view'>,
  posted: readonly string[] | undefined,
  hasBody: boolean,
): readonly string[] | undefined {
  const { filter, docIds, view } = query
  if (filter === '') return undefined
  if (filter === '_doc_ids') return listedIds(posted, docIds)
  if (filter === '_selector' && !hasBody) throw badRequest('Selector must be specified in POST payload')
  if (filter === '_view' && view === undefined) throw badRequest('`view` filter parameter is not provided.')
  refuseNoFilter(filter)
  throw badRequest(`This version of settee does not support \`filter=${filter}\` yet.`)
}

function listedIds(posted: readonly string[] | undefined, text: string | undefined): readonly string[] {
  const ids = posted ?? (text === undefined ? undefined : asDocIds(parseJson(text)))
  if (ids === undefined) throw badRequest('`doc_ids` filter parameter is not a list of doc ids.')
  return ids
}

const BUILT_IN = new Set(['_selector', '_design', '_view'])

function refuseNoFilter(filter: string): void {
  if (filter.startsWith('_')) {
    if (!BUILT_IN.has(filter)) throw badRequest('unknown builtin filter name')
    return
  }
  const parts = filter.split('/')
  if (parts.length !== 2 || parts.includes('')) {
    throw badRequest('`filter` must be of the form `designname/filtername`')
  }
}

function badRequest(reason: string): CouchError {
  return new CouchError('bad_request', reason)
}
