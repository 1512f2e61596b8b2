/**
 * The contract between the server and its storage engines. An engine stores outcomes. Pure functions above it, which it
 * calls, decide every rule of CouchDB (revisions, winners, conflicts, rights).
 *
 * Rules for every engine, which test/storage/conformance.ts checks:
 * - A promise of a write resolves only after the write is durable; a write that rejects has left no trace.
 * - The callbacks (`decide`, `read`) are synchronous and pure. An engine may call them more than once, and only the outcome
 *   of the last call counts, which is always made on the state that the write or the read meets. `readSet` declare what they read; an engine loads the rest
 *   when it is missed, and calls again.
 * - The arguments of a callback are valid only until it returns.
 * - No lock is held while an engine waits for its caller: between two calls nothing is locked, and a callback cannot wait.
 *   So a slow or frozen caller delays nobody. An engine over a network may hold locks over its own round trips, for a bounded time.
 * - Ids, revisions and names are compared as bytes of UTF-8.
 * - A fault of the disk reaches the caller as `insufficient_storage`, `disk_fault`, `damaged_file` or
 *   `internal_server_error`, and a store over a network that cannot be reached as `store_unavailable`. The next call tries
 *   again. Of a write whose answer was lost, the engine finds out whether it is stored, or it rejects with
 *   `store_unavailable`: the one case in which a write that rejects may have been stored.
 */
import type { CouchError } from '../core/errors.ts'
import type { SecurityObject } from '../core/types.ts'
import type { Branch } from '../revisions/branch.ts'
import type { BlobReference, BlobUpload } from './blob-leases.ts'
import type { DocReadSet, ReadSet } from './read-set.ts'
import type { Epochs } from './sequence.ts'
import type { StoreEvent } from './store-events.ts'
import type { forgotten, RememberedPoint } from './token-position.ts'
import type { CompactOptions, GarbageCounts, StoreSizes } from './upkeep.ts'

/** A snapshot of a database's own state, consistent with the documents that are passed along with it. */
export interface StoreView {
  /** The number of updates so far; the newest row of the feed carries it unless that document was purged. */
  readonly updateSeq: number
  readonly epochs: Epochs
  readonly docCount: number
  readonly deletedCount: number
  /** Ancestors kept for each branch, at least 1. */
  readonly revsLimit: number
  /** Purges that are remembered, at least 1. */
  readonly purgedInfosLimit: number
  /** Grows with each write of a design document ({@link DocWrite.design}). */
  readonly designVersion: number
  /**
   * Grows with each change of what does not change with every write: `epochs`, `revsLimit`, `purgedInfosLimit`,
   * `designVersion`, `security`, `wasRestored`. An engine that decides outside its transaction compares this one number
   * when it commits.
   */
  readonly settingsVersion: number
  /** null if it was never set. */
  readonly security: SecurityObject | null
  /**
   * Whether the database was restored to an earlier state, or is a copy that may lack the latest changes: then the first
   * checkpoint of each replication is refused.
   */
  readonly wasRestored: boolean
}

/** What an index has to include. */
export interface StoreProgress extends StoreView {
  readonly purgeSeq: number
}

/** Facts for the database's information object, protocol.md 4.5. */
export interface StoreInfo extends StoreProgress {
  readonly name: string
  /** When the database was created, in seconds since 1970. */
  readonly createdAt: number
  /** Whether {@link DatabaseStore.compact} is running. */
  readonly compacting: boolean
  /** In bytes: on disk; in use on disk, without {@link StoreSizes.kept}; of the leaves' contents as they were sent. */
  readonly sizes: { readonly file: number; readonly active: number; readonly external: number }
}

/** A stored attachment of one revision. */
export interface StoredAttachment {
  readonly name: string
  readonly type: string
  readonly revpos: number
  /** `md5-` and the base64 of the MD5 of the bytes as they are stored. */
  readonly digest: string
  /** Bytes of the content, decoded. */
  readonly length: number
  /** How the stored bytes are coded; null if they are not coded. */
  readonly encoding: AttachmentEncoding
  /** Bytes as they are stored: `length`, unless they are coded. */
  readonly storedLength: number
  /** Identifies the stored bytes in {@link DatabaseStore.readBlob}. */
  readonly blob: number
}

export type AttachmentEncoding = 'gzip' | null

/** A document as a callback sees it. Its own row is there; the rest is loaded as {@link ReadSet} declares. */
export interface DocState {
  readonly id: string
  /** Its sequence number in the feed. */
  readonly seq: number
  /** The winner. */
  readonly rev: string
  readonly deleted: boolean
  /** Whether the winner is known to be the only leaf; false if that would need a query. */
  readonly hasOneLeaf: boolean
  /** Every leaf with its ancestry, in no order; `ids` of a branch is loaded when it is read. */
  readonly branches: readonly Branch[]
  /** Whether its row is damaged, and the members come from its leaves: {@link PurgeUpdate.salvages}. Absent: no. */
  readonly isSalvaged?: boolean
  /** The leaves that are known to be damaged: a write of such a revision stores it again. Absent: the engine knows none. */
  readonly damagedLeaves?: ReadonlySet<string>
  /** Every revision that is stored, leaf or superseded. */
  revisions(): readonly StoredRevision[]
  /**
   * Superseded revisions that are retained only for the time machine ({@link CompactOptions}); no other member shows
   * them.
   */
  retained(): readonly string[]
  /** Whether a stored revision is a tombstone; null when it is not stored. */
  isDeleted(rev: string): boolean | null
  /** JSON text of a stored revision without its `_` members; null when that revision's body is not stored. */
  body(rev: string): string | null
  /** Attachments of a stored revision, ordered by name. */
  attachments(rev: string): readonly StoredAttachment[]
}

export interface StoredRevision {
  readonly rev: string
  readonly deleted: boolean
  readonly leaf: boolean
}

/** A leaf that does not say what was written. */
export interface DamagedLeaf {
  readonly id: string
  readonly rev: string
}

/** One document's write: the unit of atomicity. */
export interface DocUpdate<R, N = never> {
  readonly id: string
  /** The approximate size of the write, in bytes; limits the size of a group commit. */
  readonly bytes: number
  readonly readSet?: ReadSet
  /** Pure. A throw rejects this update alone. */
  decide(doc: DocState | null, view: StoreView): Decision<R, N>
}

/** Either the result of an update (without `write` nothing is stored) or the facts that it still needs. */
export type Decision<R, N = never> =
  | {
      readonly result: R
      readonly write?: DocWrite
      /**
       * Whether the decision depends on the counts of the view as well: an engine that decides outside its transaction
       * decides again if they have changed, as with {@link StoreView.settingsVersion}.
       */
      readonly dependsOnCounts?: boolean
    }
  | { readonly needs: readonly N[] }

export type Outcome<R, N = never> =
  | { readonly result: R }
  | { readonly needs: readonly N[] }
  | { readonly error: unknown }

/** The change of one document. */
export interface DocWrite {
  /** The winner after the write. */
  readonly rev: string
  readonly deleted: boolean
  /** Whether the document takes the next sequence number; true exactly when its set of leaves changed, or a damaged one is stored again. */
  readonly sequenced: boolean
  /** Whether this is a design document, so that {@link StoreView.designVersion} grows. */
  readonly design?: boolean
  /** Rows to create, or to change if the revision has a row. */
  readonly revisions: readonly RevisionWrite[]
}

export interface RevisionWrite {
  readonly rev: string
  readonly deleted: boolean
  /** The ancestry, newest first, the revision's own id included, for a leaf; null for a superseded revision. */
  readonly ancestry: readonly string[] | null
  /** If absent, the stored content does not change. */
  readonly content?: {
    readonly body: string
    readonly attachments: readonly AttachmentWrite[]
  }
}

export interface AttachmentWrite {
  readonly name: string
  readonly type: string
  readonly revpos: number
  readonly digest: string
  /** Bytes of the content, decoded. */
  readonly length: number
  readonly encoding: AttachmentEncoding
  readonly storedLength: number
  readonly content: /** A stored blob, or a finished upload. */
    | { readonly blob: number }
    /** New bytes with their hash; equal bytes are stored once. */
    | { readonly sha256: Uint8Array; readonly bytes: Uint8Array }
}

/** Removes revisions of one document without a trace (protocol.md 4.7). */
export interface PurgeUpdate<R> {
  readonly id: string
  readonly readSet?: ReadSet
  /** Whether it gets a document whose row is damaged from its leaves, as far as the engine can. Default false. */
  readonly salvages?: boolean
  /** Pure. */
  decide(doc: DocState | null, view: StoreView): { readonly result: R; readonly write?: PurgeWrite }
}

export interface PurgeWrite {
  /** The leaves that are removed, for the list of purges. */
  readonly purged: readonly string[]
  /** Revisions that are removed, stored or retained: the leaves, and ancestors that no other leaf has. */
  readonly removed: readonly string[]
  /** What remains of the document; null if all of it is removed, its row in the feed included. */
  readonly rest: DocWrite | null
  /** As {@link DocWrite.design}. */
  readonly design?: boolean
}

/** An entry in the list of purges. */
export interface PurgeInfo {
  readonly seq: number
  readonly id: string
  readonly revs: readonly string[]
}

/** A `_local` document: no history, no feed. */
export interface LocalDoc {
  /** With its prefix `_local/`. */
  readonly id: string
  /** N of the revision `0-N`. */
  readonly rev: number
  readonly body: string
}

export interface LocalUpdate<R> {
  readonly id: string
  /**
   * Pure. `write` null deletes.
   * @param wasChecked whether a decision on this id has returned `checked` since the database was restored; else false
   * @returns `checked` is remembered, with the write or without one
   */
  decide(
    doc: LocalDoc | null,
    view: StoreView,
    wasChecked: boolean,
  ): { result: R; write?: { readonly rev: number; readonly body: string } | null; checked?: boolean }
}

/** A change of the database's settings. */
export interface SettingsChange {
  readonly security?: SecurityObject
  readonly revsLimit?: number
  readonly purgedInfosLimit?: number
  /** As {@link StoreView.wasRestored}; it stays. */
  readonly wasRestored?: true
}

/** A range of ids in byte order, from `start` on in the direction of reading. */
export interface IdRange {
  readonly start?: { readonly id: string; readonly inclusive: boolean }
  readonly end?: { readonly id: string; readonly inclusive: boolean }
  readonly descending?: boolean
}

/** The documents of a range of ids. */
export interface RangeSizes {
  readonly docCount: number
  readonly deletedCount: number
  /** Bytes of the leaves' bodies and attachments as they are stored; a content counts for each leaf that has it. */
  readonly active: number
  /** Bytes of the leaves' contents as they were sent. */
  readonly external: number
}

/** The bounds of a page, and what its callback reads. A page has at least one row if the range has one. */
export interface Paging {
  /** The maximum number of rows. */
  readonly limit: number
  /**
   * The page ends at the latest after the row with which the bodies that were read, in characters, reach this; an engine
   * that loads bodies before it calls may count bytes of UTF-8. Such a page also ends when it has held the thread for some
   * milliseconds.
   */
  readonly chars?: number
  /** What the callback reads of each document. */
  readonly readSet?: ReadSet
}

/** `since < seq < before`, in the order of the feed or the reverse. */
export interface ChangesRange {
  readonly since: number
  readonly descending?: boolean
  readonly before?: number
}

export interface Page<R> {
  readonly rows: R[]
  /** Whether rows of the range remain. */
  readonly more: boolean
  /** How many damaged rows are left out; absent: none. */
  readonly damaged?: number
  readonly view: StoreView
}

/** A page of a search that may find few documents, or none, in a stretch of them. */
export interface ForkedPage<R> extends Omit<Page<R>, 'more'> {
  /** Where the next page begins; null at the end. */
  readonly next: number | null
  /**
   * How many documents were searched. An engine that finds them in an index estimates it; the sum over all pages is the
   * number of documents.
   */
  readonly searched: number
}

/** One open database. Methods may be called at any time; writes of several calls may share a commit. */
export interface DatabaseStore {
  /** Whether its file was found, when it was opened, to be an older copy. */
  readonly wasRolledBack: boolean
  /** Whether, when it was opened, it had damaged leaves for which devices were not asked yet. Absent: it cannot say. */
  readonly needsDevices?: boolean
  /** Counters that were damaged when it was opened, and were counted anew; null: none. Absent: it cannot say. */
  readonly damageAtOpening?: CouchError | null
  /** Whether ids name partitions; fixed since the database was created. Copies and restores keep it. */
  readonly partitioned: boolean
  /** As in {@link DatabaseProperties}; fixed like `partitioned`. */
  readonly shards: number
  info(): Promise<StoreInfo>
  view(): Promise<StoreView>
  progress(): Promise<StoreProgress>

  /**
   * Documents by id, in the order of `ids`; null for a document that does not exist.
   * @param read gets the place of the id in `ids`, from 0
   * @param readSet what `read` reads of each document
   * @param chars as {@link Paging.chars}: then there may be fewer results than ids, but at least one
   */
  readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ): Promise<R[]>
  /** Documents whose winner is not deleted, in the ids' order. */
  readRange<R>(range: IdRange, paging: Paging, read: (doc: DocState, view: StoreView) => R): Promise<Page<R>>
  /** How many live documents a range has; a large range takes several turns. */
  countRange(range: IdRange): Promise<number>
  /** Skips the first live documents of a range; many take several turns. @returns the rest; null at the end */
  skipRange(range: IdRange, documents: number): Promise<IdRange | null>
  /** The counts and sizes of the documents of a range, in short turns. */
  measureRange(range: IdRange): Promise<RangeSizes>
  /** Documents by their place in the feed: above `since` upwards, or, descending, from the newest down. */
  readChanges<R>(
    range: ChangesRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>>
  /**
   * Documents that have several leaves, or may have, in an order that no write changes. One call searches a stretch of
   * some thousand documents. @param after the `next` of the previous page; 0 for the first
   */
  readForked<R>(
    after: number,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<ForkedPage<R>>
  /** How many rows of the feed lie above `seq`; in O(log n). */
  countChanges(seq: number): Promise<number>
  /** The leaves that are known to be damaged. Absent: the engine notes none. */
  damagedLeaves?(): Promise<readonly DamagedLeaf[]>
  /** How many attachments all stored revisions have, retained ones included; counted up to `most`. */
  countAttachments(most: number): Promise<number>
  /** A range of an attachment's bytes; null when the blob is not stored. */
  readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null>
  /** Takes a reference to a blob while it is read; null when it is not stored. */
  referenceBlob(blob: number): Promise<BlobReference | null>
  uploadBlob(): Promise<BlobUpload>

  /** Writes documents, each atomically, in the order given; the same id may occur again. */
  updateDocs<R, N = never>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]>
  /** Purges, each document atomically; `purgeSeq` grows by one for each that purged something. */
  purgeDocs<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]>
  /** The newest purges, oldest first, at most `purgedInfosLimit` of them. */
  readPurges(): Promise<PurgeInfo[]>
  /**
   * Removes or retains superseded bodies, cuts ancestries to `revsLimit`, removes blobs that no revision names, and
   * returns free pages to the file system. It works in steps, between which other work is served. A call during a
   * compaction joins it.
   */
  compact(options?: CompactOptions): Promise<void>
  /** What a compaction could remove. Cheap: it reads only counters. */
  garbage(): Promise<GarbageCounts>
  /** Counts the bytes of each part of the database, in short turns. */
  sizes(): Promise<StoreSizes>

  readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]>
  readLocalRange(range: IdRange, paging: Paging): Promise<Page<LocalDoc>>
  countLocals(range: IdRange): Promise<number>
  updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]>

  /**
   * Remembers points in the feeds of other servers, in this order. A point that is remembered already keeps the lower
   * `seq`. Of more than MAX_REMEMBERED, {@link forgotten} are forgotten. An engine may leave out a point of hundreds of parts
   * that is longer than its keys. They are a part of the database's copies.
   */
  rememberPoints(points: readonly RememberedPoint[]): Promise<void>
  /**
   * The first remembered point that passes, of those of a family whose total is not above `total`, the greatest total
   * first; null if there is none. A long search takes several turns.
   * @param passes pure
   */
  findPoint(
    family: string,
    total: number,
    passes: (point: RememberedPoint) => boolean,
  ): Promise<RememberedPoint | null>

  /** Changes settings; a throw of `decide` rejects and changes nothing. */
  updateSettings<R>(decide: (view: StoreView) => { result: R; write?: SettingsChange }): Promise<R>

  /** Calls `listener` on each event, until the store is closed. */
  onEvent(listener: (event: StoreEvent) => void): void
  /** Waits for the writes under way, then closes. Idempotent. */
  close(): Promise<void>
}
