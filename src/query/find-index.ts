/** Which index a query uses, protocol.md 10.3: there is the one of all ids. Pure. */
import { CouchError } from '../core/errors.ts'
import type { FindRequest } from './find-request.ts'
import { indexableFields, type NormalSelector } from './normal-selector.ts'

/** The index of all ids, as `_index` and `_explain` show it. */
export const ALL_DOCS_INDEX = {
  ddoc: null,
  name: '_all_docs',
  type: 'special',
  def: { fields: [{ _id: 'asc' }] },
} as const

const NO_INDEX = 'No matching index found, create an index to optimize query time.'

export interface IndexUse {
  /** Whether the index of all ids can answer the query. */
  readonly isUsable: boolean
  /** Why it cannot, in CouchDB's words; empty when it can. */
  readonly reasons: readonly ('field_mismatch' | 'sort_order_mismatch')[]
  readonly warnings: readonly string[]
}

/**
 * How a query would use the index of all ids. That gives documents in the order of their ids; for a sort CouchDB uses
 * it only where the selector, too, compares the id.
 * @throws invalid_index, no_usable_index where a fallback to it is not allowed
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

/** Characters of a name that a warning repeats. */
const TOLD = 200

function indexName([ddoc = '', index]: readonly string[]): string {
  const id = ddoc.startsWith('_design/') ? ddoc : `_design/${ddoc}`
  return (index === undefined ? id : `${id}, ${index}`).slice(0, TOLD)
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
