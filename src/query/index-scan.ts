/** The rows of json indexes, as queries read them. The store of the rows implements this. */
import type { Position } from './find-request.ts'
import type { KeyBounds } from './index-choice.ts'
import type { MangoIndex } from './mango-index.ts'

/** A document in an index. */
export interface IndexRow {
  readonly id: string
  /** Its key as JSON: an array of the values of the index's fields, exactly as the document has them. */
  readonly key: string
}

/**
 * A range of keys. Keys are compared by `compareJson`, and rows with equal keys by the bytes of their ids; a row is in the
 * range if its key is at or above `low`, and begins with `high` or is below it.
 */
export interface IndexRange extends KeyBounds {
  /** Only the rows of this partition; empty for an index without partitions. */
  readonly partition: string
  /** Whether the rows come in the reverse of this order. */
  readonly descending: boolean
  /** The rows begin just after this position, which may not exist; its key is never null. null: at the beginning. */
  readonly after: Position | null
}

/** An index that can be read. */
export interface IndexScan {
  /**
   * The rows of a range in pages, none of them empty. A page is read in a short turn of the event loop, when it is asked
   * for; nothing stays open between two pages.
   * @param most the largest number of rows in one page
   */
  rows(range: IndexRange, most: number): AsyncIterable<readonly IndexRow[]>
}

/**
 * Opens an index.
 * @param isCurrent whether it must include everything that was written before the call
 */
export type OpenIndex = (index: MangoIndex, isCurrent: boolean) => Promise<IndexScan>
