/** The options of a view query as the user enters them. Pure. */
import { findFault } from '../../parts/json-editor/exact-json.ts'

export interface ViewOptions {
  /** Which rows: all, those with one key, or those between two. */
  readonly range: 'all' | 'key' | 'between'
  readonly key: string
  readonly startKey: string
  readonly endKey: string
  readonly isReduced: boolean
  /** `exact`: rows with equal keys together; a number: by so many first elements of the key. */
  readonly grouping: 'none' | 'exact' | `${number}`
  readonly isDescending: boolean
  readonly includesDocs: boolean
  readonly isStale: boolean
  readonly partition: string
}

export const FIRST_OPTIONS: ViewOptions = {
  range: 'all',
  key: '',
  startKey: '',
  endKey: '',
  isReduced: true,
  grouping: 'none',
  isDescending: false,
  includesDocs: false,
  isStale: false,
  partition: '',
}

export type ViewFault = 'key' | 'startKey' | 'endKey'

/** @returns the fields that are not JSON; an empty end of a range is no end */
export function viewFaults(options: ViewOptions): readonly ViewFault[] {
  const isBad = (text: string, mayBeEmpty: boolean) =>
    text.trim() === '' ? !mayBeEmpty : findFault(text) !== null
  const { range, key, startKey, endKey } = options
  if (range === 'key') return isBad(key, false) ? ['key'] : []
  if (range === 'all') return []
  return [
    ...(isBad(startKey, true) ? (['startKey'] as const) : []),
    ...(isBad(endKey, true) ? (['endKey'] as const) : []),
  ]
}

/** Rows on a page. */
export const VIEW_PAGE = 50

/**
 * The query's parameters, as texts.
 * @param hasReduce whether the view has a reduce function
 * @param skip rows of the pages before
 */
export function viewParameters(
  options: ViewOptions,
  hasReduce: boolean,
  skip: number,
): Readonly<Record<string, string | undefined>> {
  const { range, key, startKey, endKey, isDescending, grouping } = options
  const isReduced = hasReduce && options.isReduced
  // The server reads from the start; in descending order that is the greater key.
  const [first, last] = isDescending ? [endKey, startKey] : [startKey, endKey]
  return {
    key: range === 'key' ? key : undefined,
    start_key: range === 'between' ? given(first) : undefined,
    end_key: range === 'between' ? given(last) : undefined,
    reduce: hasReduce ? String(isReduced) : undefined,
    group: isReduced && grouping === 'exact' ? 'true' : undefined,
    group_level: isReduced && /^\d+$/.test(grouping) ? grouping : undefined,
    descending: isDescending ? 'true' : undefined,
    include_docs: options.includesDocs && !isReduced ? 'true' : undefined,
    update: options.isStale ? 'false' : undefined,
    // One more shows whether there is a next page.
    limit: String(VIEW_PAGE + 1),
    skip: skip === 0 ? undefined : String(skip),
  }
}

function given(text: string): string | undefined {
  return text.trim() === '' ? undefined : text
}
