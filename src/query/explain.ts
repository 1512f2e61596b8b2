/** The answer of `_explain`, protocol.md 10.4. Pure. */
import { ALL_DOCS_INDEX, indexUse } from './find-index.ts'
import type { FindRequest } from './find-request.ts'
import { fieldsOf, idBounds, indexableFields, type NormalSelector } from './normal-selector.ts'

/** What stands for the end of the index. */
const MAX = '<MAX>'

/**
 * How a query would be answered.
 * @param name the database's
 * @throws as `indexUse`
 */
export function explanation(name: string, request: FindRequest, normal: NormalSelector): object {
  const { limit, skip, fields } = request
  const { isUsable, reasons } = indexUse(request, normal)
  const indexable = indexableFields(normal)
  return {
    dbname: name,
    index: isUsable ? ALL_DOCS_INDEX : null,
    partitioned: false,
    selector: normal,
    opts: options(request),
    limit,
    skip,
    fields,
    index_candidates: isUsable ? [] : [candidate(reasons)],
    selector_hints: [
      {
        type: 'json',
        indexable_fields: indexable,
        unindexable_fields: fieldsOf(normal).filter((field) => !indexable.includes(field)),
      },
    ],
    ...(isUsable && { mrargs: range(request, normal), covering: false }),
  }
}

function options(request: FindRequest): object {
  const { useIndex, bookmark, limit, skip, sort, fields, r, conflicts, stale, update, stable } = request
  return {
    use_index: useIndex,
    bookmark,
    limit,
    skip,
    sort: Object.fromEntries(sort),
    fields,
    partition: '',
    r,
    conflicts,
    stale,
    update,
    stable,
    execution_stats: request.executionStats,
    allow_fallback: request.allowFallback,
  }
}

function candidate(reasons: readonly string[]): object {
  const analysis = {
    usable: false,
    reasons: reasons.slice(0, 1).map((name) => ({ name })),
    ranking: 1,
    covering: null,
  }
  return { index: ALL_DOCS_INDEX, analysis }
}

/** The range of ids as CouchDB's arguments of a view. */
function range({ sort, stable, update, conflicts, r }: FindRequest, normal: NormalSelector): object {
  const bounds = idBounds(normal)
  const low = bounds === null ? null : (bounds.low?.id ?? '')
  const high = bounds === null ? null : (bounds.high?.id ?? MAX)
  const isDescending = sort[0]?.[1] === 'desc'
  return {
    include_docs: r === 1,
    view_type: 'map',
    reduce: false,
    partition: null,
    start_key: isDescending ? high : low,
    end_key: isDescending ? low : high,
    direction: isDescending ? 'rev' : 'fwd',
    stable,
    update,
    conflicts: conflicts || 'undefined',
  }
}
