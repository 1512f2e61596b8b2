/**
 * The storage contract for the time machine: earlier versions of documents. Superseded versions stay stored until
 * compaction, and for some time after it (`settee/keep_days`). See engine.ts for the rules of every engine.
 */
import type { Horizon, TimedVersion } from '../revisions/as-of.ts'
import type { DatabaseStore, DocState, IdRange, Page, Paging, StoreView } from './engine.ts'
import type { ReadSet } from './read-set.ts'

/** A stored version of a document. */
export interface StoredVersion extends TimedVersion {
  /** The order in which the versions of a document were stored: later ones have greater places. */
  readonly place: number
  /** Whether compaction has retained it: for CouchDB's API its body is gone. */
  readonly isRetained: boolean
  /** Bytes of the body and of its attachments, decoded. */
  readonly size: number
  /** How many attachments it has. */
  readonly attachments: number
}

/** Selects versions. */
export interface VersionRange {
  /** Only leaves, and those that were superseded after this time, in ms since 1970. */
  readonly leavesAfter?: number
  /** Only those that were stored by this time, in ms since 1970, or before times were noted. */
  readonly storedBy?: number
  /** Only those with smaller places. */
  readonly before?: number
  /** At most this many. */
  readonly limit?: number
}

/** A document with its history: `revisions`, `body` and `attachments` include retained versions. */
export interface DocHistory extends DocState {
  /** Its stored versions, newest first. */
  versions(range?: VersionRange): readonly StoredVersion[]
}

/** How far back the history of a database reaches. */
export interface StoreHorizon extends Horizon {
  /** When the database was created or its oldest stored version was stored, the earlier; in ms since 1970. */
  readonly begun: number
}

/** What a callback reads of a document and its versions. */
export interface HistoryReadSet extends ReadSet {
  readonly versions?: VersionRange
}

export interface HistoryPaging extends Paging {
  readonly readSet?: HistoryReadSet
}

export interface HistoryStore {
  /** How far back the history reaches. */
  horizon(): Promise<StoreHorizon>
  /** Documents by id, in the order of `ids`; null for a document that does not exist. */
  readDocs<R>(
    ids: readonly string[],
    read: (doc: DocHistory | null, id: string, view: StoreView) => R,
    readSet?: HistoryReadSet,
  ): Promise<R[]>
  /** Documents in the order of their ids, deleted ones included. */
  readRange<R>(
    range: IdRange,
    paging: HistoryPaging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>>
  /** Documents by their sequence number, below `before`, newest first. */
  readNewest<R>(
    before: number,
    paging: HistoryPaging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>>
}

/** A store with the history of its documents. */
export interface VersionedStore extends DatabaseStore {
  readonly history: HistoryStore
}
