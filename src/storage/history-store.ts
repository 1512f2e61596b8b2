/**
 * The contract's part for the time machine: what documents were. Versions that are no leaves any more stay stored until
 * compaction, and for some time after it (`settee/keep_days`); see storage/engine.ts for what holds of every engine.
 */
import type { Horizon, TimedVersion } from '../revisions/as-of.ts'
import type { DatabaseStore, DocState, IdRange, Page, Paging, StoreView } from './engine.ts'

/** A version of a document of which a row is stored. */
export interface StoredVersion extends TimedVersion {
  /** Orders the versions of a document by when they were stored: later ones have greater places. */
  readonly place: number
  /** Compaction has been there: CouchDB's model knows its body no more. */
  readonly isRetained: boolean
  /** Bytes of the body and of its attachments, decoded. */
  readonly size: number
  /** How many attachments it has. */
  readonly attachments: number
}

/** Which versions are wanted. */
export interface VersionRange {
  /** Only leaves, and those that were superseded after this time, in ms since 1970. */
  readonly leavesAfter?: number
  /** Only those that were stored by this time, in ms since 1970, or before times were noted. */
  readonly storedBy?: number
  /** Only those with lesser places. */
  readonly before?: number
  /** At most so many. */
  readonly limit?: number
}

/** A document with all that it was: `revisions`, `body`, `attachments` and `bytes` are of kept versions, too. */
export interface DocHistory extends DocState {
  /** Its stored versions, the one stored last first. */
  versions(range?: VersionRange): readonly StoredVersion[]
}

/** How far back a database remembers. */
export interface StoreHorizon extends Horizon {
  /** When it was made, or its oldest stored version was stored; in ms since 1970. */
  readonly begun: number
}

export interface HistoryStore {
  /** How far back it is known what documents were. */
  horizon(): Promise<StoreHorizon>
  /** Documents by id, in the order asked; null for one that never was. */
  readDocs<R>(
    ids: readonly string[],
    read: (doc: DocHistory | null, id: string, view: StoreView) => R,
  ): Promise<R[]>
  /** Documents in the ids' order, deleted ones too. */
  readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>>
  /** Documents by their place in the feed, below `before`, from the newest down. */
  readNewest<R>(
    before: number,
    paging: Paging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>>
}

/** A store that remembers what documents were. */
export interface VersionedStore extends DatabaseStore {
  readonly history: HistoryStore
}
