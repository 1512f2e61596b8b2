/** The answer of `_explain`, and the index of all ids as it shows it; protocol.md 10.3 and 10.4. Pure. */
import { directed } from '../documents/all-docs-query.ts'
import { fieldRanges } from './field-ranges.ts'
import { type FindRequest, isDescending } from './find-request.ts'
import { type AnyIndex, type Candidate, explainChoice, type Plan } from './index-choice.ts'
import { type MangoIndex, shownIndex } from './mango-index.ts'
import { fieldsOf, idBounds, indexableFields, type NormalSelector } from './normal-selector.ts'

/** Represents the end of the index. */
const MAX = '<MAX>'

/** The index of all ids, as `_index` and `_explain` show it. */
export const ALL_DOCS_INDEX = {
  ddoc: null,
  name: '_all_docs',
  type: 'special',
  def: { fields: [{ _id: 'asc' }] },
} as const

/**
 * Explains how a query would be answered.
 * @param name the name of the database
 * @param indexes its json indexes
 * @throws invalid_index
 */
export function explanation(
  name: string,
  request: FindRequest,
  normal: NormalSelector,
  indexes: readonly MangoIndex[],
): object {
  const { partitioned, limit, skip, fields } = request
  const { plan, candidates } = explainChoice(request, normal, indexes)
  const indexable = indexableFields(normal)
  const canBeIndexed = new Set(indexable)
  return {
    dbname: name,
    index: plan.index === undefined ? null : shown(plan.index),
    partitioned,
    selector: normal,
    opts: options(request),
    limit,
    skip,
    fields,
    index_candidates: candidates.map(shownCandidate),
    selector_hints: [
      {
        type: 'json',
        indexable_fields: indexable,
        unindexable_fields: fieldsOf(normal).filter((field) => !canBeIndexed.has(field)),
      },
    ],
    ...(plan.index !== undefined && {
      mrargs: viewArguments(request, normal, plan),
      covering: plan.covering,
    }),
  }
}

function shown(index: AnyIndex): object {
  return index === null ? ALL_DOCS_INDEX : shownIndex(index)
}

function options(request: FindRequest): object {
  const { useIndex, bookmark, limit, skip, sort, fields, partition, r, conflicts, stale, update, stable } =
    request
  return {
    use_index: useIndex,
    bookmark,
    limit,
    skip,
    sort: Object.fromEntries(sort),
    fields,
    partition,
    r,
    conflicts,
    stale,
    update,
    stable,
    execution_stats: request.executionStats,
    allow_fallback: request.allowFallback,
  }
}

function shownCandidate({ index, isUsable, reason, ranking, covering }: Candidate): object {
  return {
    index: shown(index),
    analysis: { usable: isUsable, reasons: [{ name: reason }], ranking, covering },
  }
}

/** The range that is read, as CouchDB's arguments of a view query. */
function viewArguments(request: FindRequest, normal: NormalSelector, plan: Plan): object {
  const { partition, stable, update, conflicts, r, stale } = request
  const [low, high] = plan.isEmpty
    ? [null, null]
    : plan.bounds === null
      ? idRange(normal)
      : keyRange(plan.bounds)
  const descending = isDescending(request)
  return {
    include_docs: r === 1 && !plan.covering,
    view_type: 'map',
    reduce: false,
    partition: partition === '' ? null : partition,
    start_key: descending ? high : low,
    end_key: descending ? low : high,
    direction: descending ? 'rev' : 'fwd',
    stable: stable || stale === 'ok',
    update: update && stale !== 'ok',
    conflicts: conflicts || 'undefined',
  }
}

function keyRange({ low, high }: NonNullable<Plan['bounds']>): readonly [low: unknown, high: unknown] {
  return [low, [...high, MAX]]
}

/** In CouchDB a query without a condition on ids begins at null, and one with an upper bound only at the empty string. */
function idRange(normal: NormalSelector): readonly [low: unknown, high: unknown] {
  const bounds = idBounds(normal)
  if (bounds === null || directed(bounds.low, bounds.high, false) === null) return [null, null]
  const range = fieldRanges(normal).get('_id')
  const first = range?.low === null ? '' : (range?.low?.value ?? null)
  return [bounds.low?.id ?? first, bounds.high?.id ?? MAX]
}
