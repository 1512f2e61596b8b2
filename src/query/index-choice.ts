/**
 * The choice of an index for a query, and what `_explain` tells about it; protocol.md 10.3. Source: CouchDB's mango_idx,
 * mango_cursor and mango_cursor_view. Pure.
 */
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import {
  constantFields,
  type FieldRange,
  fieldRanges,
  type RequiredFields,
  requiredFields,
} from './field-ranges.ts'
import type { FindRequest } from './find-request.ts'
import { columnsOf, type MangoIndex } from './mango-index.ts'
import { fieldsOf, indexableFields, type NormalSelector } from './normal-selector.ts'

/** A json index, or null for the index of all ids. */
export type AnyIndex = MangoIndex | null

/** The keys that a query reads in a json index, in ascending order. */
export interface KeyBounds {
  /** The first keys are at or above it. */
  readonly low: readonly unknown[]
  /** The last keys begin with it, or are below it. */
  readonly high: readonly unknown[]
}

/** Why an index was not chosen, in CouchDB's words. */
type Reason =
  | 'is_partial'
  | 'scope_mismatch'
  | 'field_mismatch'
  | 'sort_order_mismatch'
  | 'excluded_by_user'
  | 'unfavored_type'
  | 'less_overlap'
  | 'too_many_fields'
  | 'alphabetically_comes_after'

/** An index that was not chosen. */
export interface Candidate {
  readonly index: AnyIndex
  readonly isUsable: boolean
  readonly reason: Reason
  /** 1 for those that were almost chosen. */
  readonly ranking: number
  /** null for the index of all ids, which never covers a query. */
  readonly covering: boolean | null
}

/** How a query is answered. */
export interface Plan {
  /** undefined if no index can answer the query; only `_explain` gets such a plan. */
  readonly index: AnyIndex | undefined
  /** null for the index of all ids, whose range is a range of ids, and if no document can match. */
  readonly bounds: KeyBounds | null
  /** Whether no document can match, so that nothing is read. */
  readonly isEmpty: boolean
  /** Whether the rows of the index have all fields of the query, so that no document is read. */
  readonly covering: boolean
  readonly warnings: readonly string[]
}

/** What is known of a query before an index is chosen. */
interface Question {
  readonly request: FindRequest
  readonly normal: NormalSelector
  readonly sortFields: readonly string[]
  /** The fields that need no condition: those of the sort, and those of every document. */
  readonly given: ReadonlySet<string>
  readonly required: RequiredFields
  /** Whether an index of ids can answer a condition. */
  readonly comparesIds: boolean
  readonly constant: ReadonlySet<string>
  readonly ranges: ReadonlyMap<string, FieldRange>
}

/** The stages of the choice. Each has the indexes that are left. */
interface Stages {
  readonly question: Question
  readonly all: readonly AnyIndex[]
  /** Those without a filter, and those that the request names. */
  readonly allowed: readonly AnyIndex[]
  readonly usable: readonly AnyIndex[]
  /** Of the usable ones those that the request names, or all if that leaves none. */
  readonly named: readonly AnyIndex[]
  /** The json indexes, or the index of all ids if there are none; the best comes first. */
  readonly ranked: readonly AnyIndex[]
}

/**
 * Chooses the index that answers a query.
 * @param indexes the json indexes of the database; the index of all ids is always there
 * @throws no_usable_index for a sort that no index has; invalid_index if the requested index cannot be used and no other
 *   may be
 */
export function chooseIndex(
  request: FindRequest,
  normal: NormalSelector,
  indexes: readonly MangoIndex[],
): Plan {
  return planOf(stagesOf(request, normal, indexes, true))
}

/**
 * Chooses an index as {@link chooseIndex} does, and tells why the others were not chosen.
 * @throws invalid_index
 */
export function explainChoice(
  request: FindRequest,
  normal: NormalSelector,
  indexes: readonly MangoIndex[],
): { readonly plan: Plan; readonly candidates: readonly Candidate[] } {
  const stages = stagesOf(request, normal, indexes, false)
  return { plan: planOf(stages), candidates: candidatesOf(stages) }
}

/** @param mustBeUsable whether a query that no index can answer is an error */
function stagesOf(
  request: FindRequest,
  normal: NormalSelector,
  indexes: readonly MangoIndex[],
  mustBeUsable: boolean,
): Stages {
  const question = questionOf(request, normal)
  const { useIndex, partition } = request
  const all: AnyIndex[] = [null, ...indexes]
  const isNamed = (index: AnyIndex) => useIndex.length > 0 && names(useIndex, index)
  const allowed = all.filter((index) => index === null || index.partialFilter === null || isNamed(index))
  const inScope = allowed.filter((index) => isInScope(index, partition))
  const usable = inScope.filter((index) => mismatchOf(question, index) === null)
  if (mustBeUsable && usable.length === 0) throw unsortable(request)
  const requested = usable.filter(isNamed)
  if (requested.length === 0 && !mayFallBack(request, usable)) throw noFallback(useIndex)
  const named = requested.length === 0 ? usable : requested
  const json = named.filter((index) => index !== null)
  const ranked = json.length === 0 ? named : ranking(question, json)
  return { question, all, allowed, usable, named, ranked }
}

function unsortable({ partitioned, partition }: FindRequest): CouchError {
  if (!partitioned) return new CouchError('no_usable_index')
  const scope = partition === '' ? 'global' : 'partitioned'
  const reason = `No ${scope} index exists for this sort, try indexing by the sort fields.`
  return new CouchError('no_usable_index', reason)
}

function questionOf(request: FindRequest, normal: NormalSelector): Question {
  const sortFields = request.sort.map(([field]) => field)
  return {
    request,
    normal,
    sortFields,
    given: new Set([...sortFields, '_id', '_rev']),
    required: requiredFields(normal),
    comparesIds: indexableFields(normal).includes('_id'),
    constant: constantFields(normal),
    ranges: fieldRanges(normal),
  }
}

function mayFallBack({ allowFallback, useIndex }: FindRequest, usable: readonly AnyIndex[]): boolean {
  return allowFallback || (useIndex.length === 0 && usable.length > 1)
}

/** Whether the request names the index. */
function names([ddoc = '', name]: readonly string[], index: AnyIndex): boolean {
  return index !== null && index.ddoc === designId(ddoc) && (name === undefined || index.name === name)
}

function designId(ddoc: string): string {
  return ddoc.startsWith('_design/') ? ddoc : `_design/${ddoc}`
}

function isInScope(index: AnyIndex, partition: string): boolean {
  return index === null || index.partitioned === (partition !== '')
}

/** The first reason why an index cannot answer the query; null if it can. */
function mismatchOf(question: Question, index: AnyIndex): Reason | null {
  const { sortFields, given, required } = question
  if (index === null) {
    if (sortFields.length === 0) return null
    if (!question.comparesIds) return 'field_mismatch'
    return sortFields.length === 1 && sortFields[0] === '_id' ? null : 'sort_order_mismatch'
  }
  const columns = columnsOf(index)
  const mayBeAbsent = (field: string) => !given.has(field) && required !== 'all' && !required.has(field)
  if (columns.some(mayBeAbsent)) return 'field_mismatch'
  return hasOrder(question, columns) ? null : 'sort_order_mismatch'
}

/** Whether the keys are in the order of the sort. Fields with a single value may come before those of the sort. */
function hasOrder({ sortFields, constant }: Question, columns: readonly string[]): boolean {
  const [first] = sortFields
  if (first === undefined) return true
  const begin = columns.findIndex((column) => column === first || !constant.has(column))
  return begin !== -1 && sortFields.every((field, at) => columns[begin + at] === field)
}

/** How many of the first fields of an index have a range. */
function overlap({ ranges }: Question, index: MangoIndex): number {
  const columns = columnsOf(index)
  const length = columns.findIndex((column) => !ranges.has(column))
  return length === -1 ? columns.length : length
}

function ranking(question: Question, indexes: readonly MangoIndex[]): MangoIndex[] {
  const overlaps = new Map(indexes.map((index) => [index, overlap(question, index)]))
  const overlapOf = (index: MangoIndex) => overlaps.get(index) ?? 0
  return [...indexes].sort(
    (a, b) => overlapOf(b) - overlapOf(a) || a.fields.length - b.fields.length || byName(a, b),
  )
}

/** The order of indexes in lists: by design document, then by name, in bytes. */
export function byName(a: MangoIndex, b: MangoIndex): number {
  return compareUtf8(a.ddoc, b.ddoc) || compareUtf8(a.name, b.name)
}

function planOf({ question, ranked }: Stages): Plan {
  const [index] = ranked
  const { request, normal } = question
  const bounds = index == null ? null : boundsOf(question, index)
  return {
    index,
    bounds,
    isEmpty: matchesNothing(normal) || (index != null && bounds === null),
    covering: index != null && covers(index, request.fields, fieldsOf(normal)),
    warnings: index === undefined ? [] : warningsOf(request, index),
  }
}

/** null if no key can match. */
function boundsOf(question: Question, index: MangoIndex): KeyBounds | null {
  const columns = columnsOf(index).slice(0, overlap(question, index))
  const ranges = columns.map((column) => question.ranges.get(column) as FieldRange)
  if (ranges.some(({ isEmpty }) => isEmpty)) return null
  return { low: untilOpen(ranges, 'low'), high: untilOpen(ranges, 'high') }
}

function untilOpen(ranges: readonly FieldRange[], side: 'low' | 'high'): unknown[] {
  const open = ranges.findIndex((range) => range[side] === null)
  return ranges.slice(0, open === -1 ? undefined : open).map((range) => range[side]?.value)
}

/**
 * In CouchDB an empty `$and` or `$or` matches nothing if it is the whole selector. As a part of a selector, it matches
 * everything.
 */
function matchesNothing({ $and, $or }: NormalSelector): boolean {
  return [$and, $or].some((selectors) => Array.isArray(selectors) && selectors.length === 0)
}

/**
 * Whether an index has all fields of an answer, so that no document must be read.
 * @param fields those of the answer; empty for whole documents, which no index has
 * @param tested the fields of the selector
 */
function covers(index: MangoIndex, fields: readonly string[], tested: readonly string[]): boolean {
  const columns = new Set(['_id', ...columnsOf(index)])
  return fields.length > 0 && [...fields, ...tested].every((field) => columns.has(field))
}

const NO_INDEX = 'No matching index found, create an index to optimize query time.'
/** A warning quotes at most this many characters of a name. */
const MAX_QUOTED = 200

function warningsOf({ useIndex }: FindRequest, index: AnyIndex): string[] {
  const isUnused = useIndex.length > 0 && !names(useIndex, index)
  const why =
    useIndex.length === 1
      ? 'because it does not contain a valid index for this query.'
      : 'because it is not a valid index for this query.'
  return [
    ...(isUnused ? [`${namedIndex(useIndex)} was not used ${why}`] : []),
    ...(index === null ? [NO_INDEX] : []),
  ]
}

function namedIndex([ddoc = '', name]: readonly string[]): string {
  return (name === undefined ? designId(ddoc) : `${designId(ddoc)}, ${name}`).slice(0, MAX_QUOTED)
}

function noFallback(useIndex: readonly string[]): CouchError {
  return new CouchError(
    'invalid_index',
    useIndex.length === 0
      ? 'You must specify an index with the `use_index` parameter.'
      : `${namedIndex(useIndex)} specified by \`use_index\` could not be found or it is not suitable.`,
  )
}

/**
 * All indexes but the chosen one, in CouchDB's order. Those that left the choice at a later stage rank higher. CouchDB
 * counts an index with a filter that the request names twice, and adds its ranks.
 */
function candidatesOf({ question, all, allowed, usable, named, ranked }: Stages): Candidate[] {
  const inScope = allowed.filter((index) => isInScope(index, question.request.partition))
  const [winner, ...losers] = ranked
  const found: Omit<Candidate, 'covering'>[] = losers.map((index, at) => ({
    index,
    isUsable: true,
    reason: lostTo(question, winner as MangoIndex, index as MangoIndex),
    ranking: at + 1,
  }))
  let ranking = Math.max(1, ranked.length)
  const leave = (
    before: readonly AnyIndex[],
    after: readonly AnyIndex[],
    isUsable: boolean,
    reasonOf: (index: AnyIndex) => Reason,
  ): void => {
    const left = new Set(after)
    const gone = before.filter((index) => !left.has(index))
    for (const index of gone) found.push({ index, isUsable, reason: reasonOf(index), ranking })
    if (gone.length > 0) ranking += 1
  }
  leave(named, ranked, true, () => 'unfavored_type')
  leave(usable, named, true, () => 'excluded_by_user')
  leave(inScope, usable, false, (index) => mismatchOf(question, index) as Reason)
  leave(allowed, inScope, false, () => 'scope_mismatch')
  const ofPartial = (candidate: Omit<Candidate, 'covering'>) =>
    candidate.index?.partialFilter != null
      ? { ...candidate, isUsable: false, reason: 'is_partial' as const, ranking: candidate.ranking + ranking }
      : candidate
  const counted = found.map(ofPartial)
  const excluded = all.filter((index) => !allowed.includes(index))
  const partial = excluded.map((index) => ({
    index,
    isUsable: false,
    reason: 'is_partial' as const,
    ranking,
  }))
  return [...counted, ...partial]
    .map((candidate) => {
      const { index } = candidate
      // As in CouchDB, the fields of the selector do not count here.
      return { ...candidate, covering: index === null ? null : covers(index, question.request.fields, []) }
    })
    .sort((a, b) => (a.index === null ? 1 : b.index === null ? -1 : byName(b.index, a.index)))
}

function lostTo(question: Question, winner: MangoIndex, index: MangoIndex): Reason {
  // CouchDB counts from the number of all ranges: an index loses by overlap unless it has a range for every field.
  if (overlap(question, index) < question.ranges.size) return 'less_overlap'
  return index.fields.length > winner.fields.length ? 'too_many_fields' : 'alphabetically_comes_after'
}
