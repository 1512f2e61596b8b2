/**
 * The interface of a database for all other parts of the server. documents/store-database.ts implements it on the
 * thread that owns the database, and threads/forwarded-database.ts over a message port. So arguments and answers are plain
 * data, and answers for clients are bytes ready to be sent.
 *
 * A method that acts for a user takes the user first, and checks the user's rights on the database's own thread, in the
 * turn that acts.
 */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { AttachmentEncoding, DamagedLeaf, DatabaseStore, DocState } from '../storage/engine.ts'
import type { RememberedToken } from '../storage/token-position.ts'
import type { StoreSizes } from '../storage/upkeep.ts'
import type { GiveUp } from './give-up.ts'
import type { IncomingDoc } from './incoming-document.ts'
import type { ListParameters } from './list-parameters.ts'
import type { FileBody } from './temporary-file.ts'
import type { TimeMachine } from './time-machine/time-machine-calls.ts'

/** The bytes of a request's body, in memory or in an open file, which the caller closes. */
export type Body = { readonly bytes: Uint8Array } | FileBody

/** Options of reading a document, protocol.md 3.1; false by default. */
export interface OpenOptions {
  readonly rev?: string
  readonly latest?: boolean
  readonly revs?: boolean
  readonly revsInfo?: boolean
  readonly conflicts?: boolean
  readonly deletedConflicts?: boolean
  readonly localSeq?: boolean
  /** Attachments as base64 instead of stubs. */
  readonly attachments?: boolean
  /** Attachments newer than the newest of these ancestors come with their content, others as stubs. */
  readonly attsSince?: readonly string[]
  /** Adds `encoding` and `encoded_length` to attachments that are stored compressed. */
  readonly attEncodingInfo?: boolean
  /** Returns a deleted winner instead of 404. */
  readonly deleted?: boolean
}

export interface OpenedDocument {
  /** The header's value with its quotes; null if the JSON has members that change without the revision. */
  readonly etag: string | null
  /** The document's JSON and a newline. */
  readonly json: Uint8Array
}

/** A document, and separately the attachments that come with their content. */
export interface OpenedParts {
  readonly etag: string | null
  /** The document's JSON and a newline. */
  readonly json: Uint8Array
  /** With the form `data`: the offsets in `json` for the base64 of each part. Empty with the form `follows`. */
  readonly holes: readonly number[]
  /** In the order of the JSON; empty if the JSON is the whole answer. */
  readonly parts: readonly AttachmentPart[]
}

export interface AttachmentPart extends AttachmentAnswer {
  readonly name: string
}

/** Options of writing one document. */
export interface PutOptions {
  /** The parent revision from the query or If-Match; a parent in the body must be the same. */
  readonly rev?: string
  /** The source of `rev`, for the reason of a refusal. */
  readonly revFrom?: 'query' | 'etag'
  /** false stores the revision with the id that it has (protocol.md 6.4); true by default. */
  readonly newEdits?: boolean
  /** The server itself writes a design document of indexes, for `_index`; hosted mode accepts it. */
  readonly isIndex?: boolean
  /** The server stores a revision again, of which it has found a good copy (edit.ts). Never set for a request. */
  readonly isRepair?: boolean
  /** The boundary of a multipart/related body: the JSON, then its attachments (protocol.md 7.2). */
  readonly boundary?: string
}

/** An attachment written by its own request; protocol.md 7.4. */
interface AttachmentPut {
  readonly type: string
  /** The parent revision; undefined for a new document. */
  readonly rev?: string
  /** The encoding of the body, in which the content is stored. */
  readonly encoding: AttachmentEncoding
}

export interface SavedDocument {
  readonly id: string
  readonly rev: string
  readonly deleted: boolean
}

/**
 * The query of `_all_docs`, `_design_docs` or `_local_docs` from the address; members of a body count where these are
 * absent.
 */
/** As in the address, or as a caller of this server wants it. */
export interface AllDocsQuery extends ListParameters {
  /** The keys that have a row each, also if there is only one; they take the place of `keys`. */
  readonly listedKeys?: readonly unknown[]
}

export type AllDocsKind = 'all' | 'design' | 'local'

/** Options of `_bulk_get`. */
export interface BulkGetOptions {
  readonly revs?: boolean
  readonly attachments?: boolean
  readonly attEncodingInfo?: boolean
  readonly latest?: boolean
}

export interface AttachmentAnswer {
  readonly type: string
  /** Bytes of the content, decoded. */
  readonly length: number
  readonly encoding: AttachmentEncoding
  /** Bytes as stored, and as {@link Database.readAttachment} returns them. */
  readonly storedLength: number
  readonly digest: string
  /** For {@link Database.readAttachment}. */
  readonly blob: number
}

/** The database information object, protocol.md 4.5, in its order. */
export interface DatabaseInfo {
  readonly instance_start_time: string
  readonly db_name: string
  readonly purge_seq: string
  readonly update_seq: string
  readonly sizes: { readonly file: number; readonly external: number; readonly active: number }
  readonly props: { readonly partitioned?: true }
  readonly doc_del_count: number
  readonly doc_count: number
  readonly disk_format_version: number
  readonly compact_running: boolean
  readonly cluster: { readonly q: number; readonly n: number; readonly w: number; readonly r: number }
}

/** The answer of `_partition/{name}`, in its order. */
export interface PartitionInfo {
  readonly db_name: string
  readonly sizes: { readonly active: number; readonly external: number }
  readonly partition: string
  readonly doc_count: number
  readonly doc_del_count: number
}

/** The sizes of a database's parts. */
export interface DatabaseSize extends StoreSizes {
  /** Its indexes, on disk. */
  readonly views: { readonly bytes: number }
}

/** A function that fails whenever it is needed. */
export interface BrokenFunction {
  /** `_design/name`. */
  readonly ddoc: string
  /** The path of members to its text. */
  readonly path: readonly string[]
  readonly reason: string
}

/** A page of the list of conflicts. */
export interface ConflictsPage {
  /** The maximum number of rows. */
  readonly limit: number
  /** The bookmark of the previous page; absent for the first. */
  readonly bookmark?: string
}

/** The contents of a database that a policy without them would refuse. */
export interface DisallowedContent {
  /** Live design documents, settee's own aside. */
  readonly designDocs: number
  /** Attachments of all stored revisions, counted up to MAX_COUNTED (document-policy.ts). */
  readonly attachments: number
}

export interface Database extends TimeMachine, GiveUp {
  info(user: UserCtx): Promise<DatabaseInfo>
  /** @throws illegal_partition; bad_request if the database is not partitioned */
  partitionInfo(user: UserCtx, partition: string): Promise<PartitionInfo>
  /**
   * Checks the partition in the address of a call, before the call is made.
   * @throws bad_request if the database is not partitioned; illegal_partition
   */
  checkPartition(user: UserCtx, partition: string): Promise<void>
  /** The sizes of the database's parts. For database admins. */
  size(user: UserCtx): Promise<DatabaseSize>

  /** The documents with several live leaves, as JSON; a bounded search. @throws bad_request for an invalid bookmark */
  conflicts(user: UserCtx, page: ConflictsPage): Promise<Uint8Array>
  /** Validate and view functions of stored design documents that do not compile, at most 10. For server admins. */
  brokenFunctions(user: UserCtx): Promise<readonly BrokenFunction[]>

  /** For the server itself: no rights are checked. Null if no security object was ever set. */
  security(): Promise<SecurityObject | null>
  /** Replaces the security object. @throws bad_request for a bad shape; unauthorized, forbidden */
  setSecurity(user: UserCtx, security: SecurityObject): Promise<void>
  /** For the server itself: no rights are checked. */
  countDisallowed(): Promise<DisallowedContent>
  /** The leaves that are known to be damaged. For the server itself: no rights are checked. */
  damagedLeaves(): Promise<readonly DamagedLeaf[]>
  /**
   * Remembers what sequence tokens of another server mean here, so that devices go on from them. For the server itself:
   * no rights are checked. Tokens that no server sends are ignored.
   * @param tokens at most MAX_REMEMBERED; of equal tokens the lower number counts. A bare 0 is remembered as 0, and says
   *   that bare numbers are never local ones in this database
   * @throws bad_request for more of them, or a number that the database has not reached
   */
  rememberTokens(tokens: readonly RememberedToken[]): Promise<void>
  /** All revisions as lines of a couchbackup file, without its first line. For server admins. */
  exportLines(user: UserCtx): AsyncIterable<Uint8Array>
  revsLimit(user: UserCtx): Promise<number>
  /** @throws bad_request unless a positive integer */
  setRevsLimit(user: UserCtx, limit: unknown): Promise<void>
  /** Starts a compaction unless one runs. Waits until `info` tells so on every node, not for its end. For database admins. */
  compact(user: UserCtx): Promise<void>
  /**
   * Stores `_local` documents of another server, of which this database is a copy, with their revisions. From then on the
   * first checkpoint of each replication is refused, since the copy may lack what a device has pushed
   * (docs/decisions/0024). For server admins.
   * @param docs JSON texts as the other server sent them
   * @param removed the ids of documents that it no longer has
   * @throws invalid_json, invalid_rev, and others for a text that is no `_local` document; then nothing is stored
   */
  copyLocals(user: UserCtx, docs: readonly string[], removed: readonly string[]): Promise<void>
  /** `_purge`: the answer's JSON. For server admins. @throws bad_request, invalid_rev, protocol.md 4.7 */
  purge(user: UserCtx, body: Body): Promise<Uint8Array>
  /** `_purged_infos`: the answer's JSON. */
  purgedInfos(user: UserCtx): Promise<Uint8Array>
  purgedInfosLimit(user: UserCtx): Promise<number>
  /** @throws bad_request unless a positive integer */
  setPurgedInfosLimit(user: UserCtx, limit: unknown): Promise<void>

  /** Reads a document, also a `_local/` or `_design/` one. @throws not_found, deleted, invalid_rev */
  open(user: UserCtx, id: string, options: OpenOptions): Promise<OpenedDocument>
  /** The answer of `open_revs` as a JSON array, in chunks. @throws not_found for `all` of an unknown document */
  openRevs(
    user: UserCtx,
    id: string,
    revs: readonly unknown[] | 'all',
    options: OpenOptions,
  ): AsyncIterable<Uint8Array>
  /**
   * A document whose attachments are read later, one after the other.
   * @param form `data`: base64 in the JSON; `follows`: after the JSON, as multipart/related (protocol.md 7.3)
   * @throws as {@link Database.open}
   */
  openParts(user: UserCtx, id: string, options: OpenOptions, form: 'data' | 'follows'): Promise<OpenedParts>
  /** `open_revs` as multipart/mixed with this boundary; protocol.md 3.2. */
  openRevsMixed(
    user: UserCtx,
    id: string,
    revs: readonly unknown[] | 'all',
    options: OpenOptions,
    boundary: string,
  ): AsyncIterable<Uint8Array>

  /** Writes a document from its JSON. @throws conflict, and all that protocol.md 3.3 lists */
  put(user: UserCtx, id: string, body: Body, options: PutOptions): Promise<SavedDocument>
  /** Writes a document with the id in its JSON, or a new id. */
  post(user: UserCtx, body: Body): Promise<SavedDocument>
  /**
   * Writes a document from CouchDB's upload form with this boundary; protocol.md 3.7.
   * @throws not_found, conflict, bad_request; and as {@link Database.put}
   */
  postForm(
    user: UserCtx,
    id: string,
    body: Body,
    options: Pick<PutOptions, 'rev' | 'revFrom'> & { readonly boundary: string },
  ): Promise<SavedDocument>
  remove(user: UserCtx, id: string, rev: string | undefined): Promise<SavedDocument>
  copy(
    user: UserCtx,
    source: { readonly id: string; readonly rev?: string },
    target: { readonly id: string; readonly rev?: string },
  ): Promise<SavedDocument>

  /**
   * `_bulk_docs`: the answer's JSON array in chunks. If the request as a whole is refused, nothing is written, and it
   * throws at its first chunk (protocol.md 4.1).
   */
  bulkDocs(user: UserCtx, body: Body): AsyncIterable<Uint8Array>
  bulkGet(user: UserCtx, body: Body, options: BulkGetOptions): AsyncIterable<Uint8Array>
  /** `_bulk_get` as multipart with this boundary; protocol.md 4.2. */
  bulkGetMixed(
    user: UserCtx,
    body: Body,
    options: BulkGetOptions,
    boundary: string,
  ): AsyncIterable<Uint8Array>
  revsDiff(user: UserCtx, body: Body): Promise<Uint8Array>
  missingRevs(user: UserCtx, body: Body): Promise<Uint8Array>
  allDocs(user: UserCtx, kind: AllDocsKind, query: AllDocsQuery, body: Body | null): AsyncIterable<Uint8Array>

  /** Several queries in one body (`_all_docs/queries`); they override `query`; protocol.md 8.3. */
  allDocsQueries(user: UserCtx, kind: AllDocsKind, query: AllDocsQuery, body: Body): AsyncIterable<Uint8Array>

  /** @throws not_found, deleted, no_attachment */
  openAttachment(user: UserCtx, id: string, name: string, rev: string | undefined): Promise<AttachmentAnswer>
  /**
   * Stored bytes from `start` up to, not including, `end`. Compaction does not remove them while they are read.
   * @throws no_attachment if the blob no longer exists or has been replaced
   */
  readAttachment(
    found: Pick<AttachmentAnswer, 'blob' | 'digest'>,
    start: number,
    end: number,
  ): AsyncIterable<Uint8Array>
  /** Writes an attachment as an edit of its document. @throws conflict, missing_rev, and as {@link Database.put} */
  putAttachment(
    user: UserCtx,
    id: string,
    name: string,
    body: Body | null,
    options: AttachmentPut,
  ): Promise<SavedDocument>
  /** @throws not_found, no_attachment, conflict, missing_rev */
  removeAttachment(user: UserCtx, id: string, name: string, rev: string | undefined): Promise<SavedDocument>
}

/** A write of a document, as rules see it. */
export interface RuledWrite {
  readonly id: string
  readonly user: UserCtx
  readonly security: SecurityObject | null
  /** `replica`: a revision with its id (protocol.md 6.4); `rewind`: an earlier state of the document. */
  readonly kind: 'edit' | 'replica' | 'rewind'
  /** Only an attachment changes: the document to write has no body of its own. */
  readonly isAttachment: boolean
}

/**
 * Rules of a database for its documents besides its security object; `_users` has them (users-database.ts), and
 * `_replicator` (replication/requests/replicator-database.ts).
 */
export interface DocumentRules {
  /** Reads the documents as the user may see them; hidden documents do not exist for the user. */
  reader(user: UserCtx): DocumentReader
  /**
   * Checks the user's right to write the document; called early, and again in the turn that writes. Pure.
   * @param isLive whether the document exists and is not deleted, as far as known
   * @throws the refusal
   */
  checkWriter(user: UserCtx, id: string, security: SecurityObject | null, isLive: boolean): void
  /** Checks the content of a document that the user may write. Pure. @throws the refusal */
  checkDocument(doc: IncomingDoc, write: RuledWrite): void
  /** Returns the document to write for a checked one. @throws unavailable */
  prepare(doc: IncomingDoc, write: RuledWrite): Promise<IncomingDoc>
  /** Checks a write against the stored document, in the turn that writes. Pure. @throws the refusal */
  checkStored?(stored: DocState | null, write: Omit<RuledWrite, 'kind'>): void
}

/** The part of a store that reads documents; it may hide some documents. */
export type DocumentReader = Pick<
  DatabaseStore,
  'partitioned' | 'view' | 'readDocs' | 'readLocals' | 'readBlob' | 'referenceBlob'
>
