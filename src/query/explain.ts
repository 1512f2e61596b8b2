/** The answer of `_explain`, and the index that a query uses; protocol.md 10.3 and 10.4. Pure. */
import { CouchError } from '../core/errors.ts'
import type { FindRequest } from './find-request.ts'
import { fieldsOf, idBounds, indexableFields, type NormalSelector } from './normal-selector.ts'

/** Represents the end of the index. */
const MAX = '<MAX>'

/**
 * Explains how a query would be answered.
 * @param name the name of the database
 * @throws the errors of {@link indexUse}
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

/** The range of ids, as CouchDB's arguments of a view query. */
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

/** The index of all ids, the only index, as `_index` and `_explain` show it. */
export const ALL_DOCS_INDEX = {
  ddoc: null,
  name: '_all_docs',
  type: 'special',
  def: { fields: [{ _id: 'asc' }] },
} as const

const NO_INDEX = 'No matching index found, create an index to optimize query time.'

interface IndexUse {
  /** Whether the index of all ids can answer the query. */
  readonly isUsable: boolean
  /** Why the index cannot be used, in CouchDB's words; empty if it can. */
  readonly reasons: readonly ('field_mismatch' | 'sort_order_mismatch')[]
  readonly warnings: readonly string[]
}

/**
 * Decides how a query uses the index of all ids. The index gives documents in the order of their ids. For a query with
 * a sort, CouchDB uses it only if the selector compares the id.
 * @throws invalid_index, no_usable_index if the query does not allow this index as a fallback
 */
export function indexUse(request: FindRequest, normal: NormalSelector): IndexUse {
  const { sort, useIndex, allowFallback } = request
  const name = useIndex.length === 0 ? null : indexName(useIndex)
  if (!allowFallback) throw noFallback(name)
  const isInOrder = sort.length <= 1 && sort.every(([field]) => field === '_id')
  const isCompared = sort.length === 0 || indexableFields(normal).includes('_id')
  const reasons = [
    ...(isCompared ? [] : (['field_mismatch'] as const)),
    ...(isInOrder ? [] : (['sort_order_mismatch'] as const)),
  ]
  const unused = name === null ? [] : [notUsed(name, useIndex.length)]
  return { isUsable: reasons.length === 0, reasons, warnings: [...unused, NO_INDEX] }
}

/** A warning quotes at most this many characters of a name. */
const MAX_QUOTED = 200

function indexName([ddoc = '', index]: readonly string[]): string {
  const id = ddoc.startsWith('_design/') ? ddoc : `_design/${ddoc}`
  return (index === undefined ? id : `${id}, ${index}`).slice(0, MAX_QUOTED)
}

function notUsed(name: string, parts: number): string {
  return parts === 1
    ? `${name} was not used because it does not contain a valid index for this query.`
    : `${name} was not used because it is not a valid index for this query.`
}

function noFallback(name: string | null): CouchError {
  return name === null
    ? new CouchError('no_usable_index', 'There is no index available for this selector.')
    : new CouchError(
        'invalid_index',
        `${name} specified by \`use_index\` could not be found or it is not suitable.`,
      )
}
