/**
 * What a feed asks of the thread that owns a database, and what it gets: one page of `_changes` as bytes.
 */
import type { UserCtx } from '../core/types.ts'
import type { Body } from '../documents/database.ts'

/** How rows are framed: protocol.md 5.3. `json` joins them by `,\r\n`; `lines` and `events` end each one. */
export type Framing = 'json' | 'lines' | 'events'

export interface ChangesOptions {
  readonly style: 'main_only' | 'all_docs'
  readonly descending: boolean
  readonly includeDocs: boolean
  readonly conflicts: boolean
  readonly attachments: boolean
  readonly framing: Framing
  /** Only rows whose countdown is a multiple of it carry their `seq`; 1: all. */
  readonly seqInterval: number
  /** Only these documents (`filter=_doc_ids`). */
  readonly docIds?: readonly string[]
}

/** Where a page begins: a client's token, `now`, or the number at which the page before it ended. */
export type Since = string | number

export interface ChangesRequest {
  readonly options: ChangesOptions
  readonly since: Since
  /** Rows still wanted; Infinity for no limit. Counted down by the feed from page to page. */
  readonly limit: number
}

export interface ChangesPage {
  /** The rows, framed; empty when there are none. `json` rows are joined, with nothing before the first. */
  readonly bytes: Uint8Array
  readonly rows: number
  /** Where the next page begins; with `descending`, the number of the last row sent. */
  readonly lastSeq: number
  /** The same as a token, for `last_seq`. */
  readonly lastToken: string
  /** Rows of the feed behind `lastSeq`, before filtering. */
  readonly pending: number
  /** Whether the feed's end was reached: no further page follows until something is written. */
  readonly atTip: boolean
}

export interface ChangesSource {
  /** @throws bad_request for a malformed token; unauthorized, forbidden */
  changes(user: UserCtx, request: ChangesRequest): Promise<ChangesPage>
  /** The `doc_ids` of a POST body. @throws bad_request, invalid_json, body_not_object */
  readDocIds(user: UserCtx, body: Body): Promise<readonly string[] | undefined>
}
