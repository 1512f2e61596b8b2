/** The query of a view, protocol.md 9.3. */
import { CouchError } from '../core/errors.ts'
import {
  checkedKeys,
  type Grouping,
  groupingOf,
  type ListParameters,
  parseError,
  readParameters,
} from '../documents/list-parameters.ts'

/** One end of a range of keys. */
export interface KeyEdge {
  readonly key: unknown
  /** Breaks ties between equal keys. */
  readonly docId: string | undefined
}

export interface ViewQuery {
  readonly partition: string | undefined
  readonly keys: readonly unknown[] | undefined
  readonly start: KeyEdge | undefined
  readonly end: KeyEdge | undefined
  /** Break ties among the rows of each key of `keys`, at its start and its end. */
  readonly docIds: { readonly start: string | undefined; readonly end: string | undefined }
  readonly inclusiveEnd: boolean
  readonly descending: boolean
  /** Infinity means no limit. */
  readonly limit: number
  readonly skip: number
  /** If undefined, the rows are reduced if the view has a reduce function. */
  readonly reduce: boolean | undefined
  readonly grouping: Grouping
  readonly includeDocs: boolean
  /** Undefined without the parameter, which a reduced answer refuses whatever its value. */
  readonly conflicts: boolean | undefined
  readonly attachments: boolean
  readonly attEncodingInfo: boolean
  /** When the index is updated. */
  readonly update: NonNullable<ListParameters['update']>
  readonly sorted: boolean
  readonly updateSeq: boolean
}

/**
 * Reads a query.
 * @param pairs the parameters of the address as text, which override those of the body
 * @param body the members of the body; null without one
 * @throws query_parse_error with CouchDB's texts; illegal_partition; bad_request if `keys` of the body is not a list; invalid_json,
 *   too_deep
 */
export function readViewQuery(
  pairs: Iterable<readonly [name: string, text: string]>,
  body: Readonly<Record<string, unknown>> | null,
): ViewQuery {
  if (body?.keys !== undefined && !Array.isArray(body.keys)) {
    throw new CouchError('bad_request', '`keys` member must be an array.')
  }
  return viewQuery(readParameters(pairs, 'text', readParameters(Object.entries(body ?? {}), 'json')))
}

/** @throws query_parse_error */
export function viewQuery(parameters: ListParameters): ViewQuery {
  const { startKey, endKey, startDocId, endDocId, inclusiveEnd = true } = parameters
  const keys = checkedKeys(parameters)
  return {
    partition: parameters.partition,
    keys,
    // An empty list has no rows, whatever the range.
    start: keys === undefined ? edge(startKey, startDocId) : undefined,
    end: keys === undefined ? edge(endKey, endDocId) : undefined,
    docIds: { start: startDocId, end: endDocId },
    inclusiveEnd,
    descending: parameters.descending ?? false,
    limit: parameters.limit ?? Infinity,
    skip: parameters.skip ?? 0,
    reduce: parameters.reduce,
    grouping: groupingOf(parameters),
    includeDocs: parameters.includeDocs ?? false,
    conflicts: parameters.conflicts,
    attachments: parameters.attachments ?? false,
    attEncodingInfo: parameters.attEncodingInfo ?? false,
    update: parameters.update ?? 'before',
    sorted: parameters.sorted ?? true,
    updateSeq: parameters.updateSeq ?? false,
  }
}

function edge(key: unknown, id: string | undefined): KeyEdge | undefined {
  return key === undefined ? undefined : { key, docId: id }
}

/**
 * Checks a query against its view.
 * @param hasReduce whether the view has a reduce function
 * @returns whether the answer is reduced
 * @throws query_parse_error with CouchDB's texts
 */
export function reduces(query: ViewQuery, hasReduce: boolean): boolean {
  const { grouping, reduce = hasReduce } = query
  if (!hasReduce && reduce) throw parseError('Reduce is invalid for map-only views.')
  if (!reduce && grouping !== 'none') throw parseError('Invalid use of grouping on a map view.')
  if (reduce && query.includeDocs) throw parseError('`include_docs` is invalid for reduce')
  if (reduce && query.conflicts !== undefined) throw parseError('`conflicts` is invalid for reduce views.')
  if (reduce && query.keys !== undefined && grouping !== 'exact') {
    throw parseError('Multi-key fetches for reduce views must use `group=true`')
  }
  return reduce
}

/**
 * Checks the partition of a query against its view.
 * @param partitioned whether the view has its rows by partitions
 * @throws query_parse_error with CouchDB's texts
 */
export function checkScope({ partition }: ViewQuery, partitioned: boolean): void {
  if (partitioned && partition === undefined) {
    throw parseError('`partition` parameter is mandatory for queries to this view.')
  }
  if (!partitioned && partition !== undefined) {
    throw parseError('`partition` parameter is not supported in this design doc')
  }
}

/** The error for a range that starts after its end. */
export function emptyRange(descending: boolean): CouchError {
  return parseError(
    'No rows can match your key range, reverse your start_key and end_key or set ' +
      `descending=${descending ? 'false' : 'true'}`,
  )
}
