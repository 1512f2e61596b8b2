/**
 * A database as the rest of the house sees it. The same interface is kept by documents/store-database.ts, on the
 * thread that owns the database, and by threads/database-proxy.ts, which speaks to it over a port; so arguments and
 * answers are plain data, and what goes to a client comes as bytes ready to be sent.
 *
 * Every method that acts for somebody takes the caller first and checks the caller's rights on the database's
 * own thread, in the turn of the act.
 */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { AttachmentEncoding, DatabaseStore } from '../storage/engine.ts'
import type { StoreSizes } from '../storage/upkeep.ts'
import type { IncomingDoc } from './incoming-document.ts'
import type { TimeMachine } from './time-machine/time-machine-calls.ts'

/** The bytes of a request's body: in memory, or spooled to a file that is open (and closed by the giver). */
export type Body = { readonly bytes: Uint8Array } | { readonly file: number; readonly length: number }

/** Options of reading a document; protocol.md 3.1. Absent is false. */
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
  /** Attachments newer than the newest of these ancestors come with their content, the others as stubs. */
  readonly attsSince?: readonly string[]
  /** `encoding` and `encoded_length` beside attachments that are stored coded. */
  readonly attEncodingInfo?: boolean
  /** A deleted winner is answered instead of 404. */
  readonly deleted?: boolean
}

export interface OpenedDocument {
  /** The header's value with its quotes; null when members that are not the revision's own came out. */
  readonly etag: string | null
  /** The document's JSON and a newline. */
  readonly json: Uint8Array
}

/** A document and, apart from it, the attachments that come with their content. */
export interface OpenedParts {
  readonly etag: string | null
  /** The document's JSON and a newline. */
  readonly json: Uint8Array
  /** With the form `data`: where in `json` the base64 of each part stands. Else none: they say `follows`. */
  readonly holes: readonly number[]
  /** In the order of the JSON; none: the answer is the JSON alone. */
  readonly parts: readonly AttachmentPart[]
}

export interface AttachmentPart extends AttachmentAnswer {
  readonly name: string
}

/** Options of writing one document. */
export interface PutOptions {
  /** The parent revision from the query or If-Match; it must agree with the body's. */
  readonly rev?: string
  /** Where `rev` came from, for the refusal when it disagrees with the body. */
  readonly revFrom?: 'query' | 'etag'
  /** false stores the given revision as it is (protocol.md 6.4). Default true. */
  readonly newEdits?: boolean
  /** The body is multipart/related with this boundary: the JSON, then its attachments (protocol.md 7.2). */
  readonly boundary?: string
}

/** An attachment that is written by itself; protocol.md 7.4. */
interface AttachmentPut {
  readonly type: string
  /** The parent revision; undefined for a document that is not there yet. */
  readonly rev?: string
  /** How the body is coded, and stored. */
  readonly encoding: AttachmentEncoding
}

export interface SavedDocument {
  readonly id: string
  readonly rev: string
  readonly deleted: boolean
}

/** Query of `_all_docs` and its kin, as read from the address; a body's members count where these are absent. */
export interface AllDocsQuery {
  readonly key?: string
  readonly keys?: readonly unknown[]
  readonly startKey?: string
  readonly endKey?: string
  readonly inclusiveEnd?: boolean
  readonly descending?: boolean
  readonly limit?: number
  readonly skip?: number
  readonly includeDocs?: boolean
  readonly conflicts?: boolean
  readonly attachments?: boolean
  readonly attEncodingInfo?: boolean
  readonly updateSeq?: boolean
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
  /** Bytes as they are stored, and as {@link Database.readAttachment} gives them. */
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
  readonly props: Record<string, never>
  readonly doc_del_count: number
  readonly doc_count: number
  readonly disk_format_version: number
  readonly compact_running: boolean
  readonly cluster: { readonly q: number; readonly n: number; readonly w: number; readonly r: number }
}

/** Where the bytes of a database are. */
export interface DatabaseSize extends StoreSizes {
  /** What the rows of its views take in memory. */
  readonly views: { readonly bytes: number }
}

/** What a database has that a policy without it would refuse. */
export interface DisallowedContent {
  /** Live design documents, settee's own aside. */
  readonly designDocs: number
  /** Attachments of all stored revisions, counted up to MAX_COUNTED (document-policy.ts). */
  readonly attachments: number
}

export interface Database extends TimeMachine {
  info(user: UserCtx): Promise<DatabaseInfo>
  /** Counts where its bytes are. For database admins. */
  size(user: UserCtx): Promise<DatabaseSize>

  /** For the house itself: no rights are checked. null: none was set. */
  security(): Promise<SecurityObject | null>
  /** Stores a whole security object. @throws bad_request for a bad shape; unauthorized, forbidden */
  setSecurity(user: UserCtx, security: SecurityObject): Promise<void>
  /** For the house itself: no rights are checked. */
  countDisallowed(): Promise<DisallowedContent>
  /** All revisions as lines of a couchbackup file, without its first. For server admins. */
  exportLines(user: UserCtx): AsyncIterable<Uint8Array>
  revsLimit(user: UserCtx): Promise<number>
  /** @throws bad_request unless a positive integer */
  setRevsLimit(user: UserCtx, limit: unknown): Promise<void>
  /** Begins to clean up, unless that is at work already; resolves at once. For database admins. */
  compact(user: UserCtx): Promise<void>
  /** `_purge`: the answer's JSON. For server admins. @throws bad_request, invalid_rev, protocol.md 4.7 */
  purge(user: UserCtx, body: Body): Promise<Uint8Array>
  /** `_purged_infos`: the answer's JSON. */
  purgedInfos(user: UserCtx): Promise<Uint8Array>
  purgedInfosLimit(user: UserCtx): Promise<number>
  /** @throws bad_request unless a positive integer */
  setPurgedInfosLimit(user: UserCtx, limit: unknown): Promise<void>

  /** Reads a document, `_local/` and `_design/` ones too. @throws not_found, deleted, invalid_rev */
  open(user: UserCtx, id: string, options: OpenOptions): Promise<OpenedDocument>
  /** The answer of `open_revs` as a JSON array, in chunks. @throws not_found for `all` of an unknown document */
  openRevs(
    user: UserCtx,
    id: string,
    revs: readonly unknown[] | 'all',
    options: OpenOptions,
  ): AsyncIterable<Uint8Array>
  /**
   * A document whose wanted attachments are still to be read, one after the other.
   * @param form `data`: as base64 in the JSON; `follows`: behind it, as multipart/related (protocol.md 7.3)
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
  /** Writes a document whose id is in its JSON, or is made here. */
  post(user: UserCtx, body: Body): Promise<SavedDocument>
  /**
   * Writes a document from CouchDB's upload form, which has this boundary; protocol.md 3.7.
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

  /** `_bulk_docs`: the answer's JSON array in chunks. Nothing is written, and it throws at its first chunk, when
   * the request as a whole is refused (protocol.md 4.1). */
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

  /** Several queries in one body (`_all_docs/queries`), which override `query`; protocol.md 8.3. */
  allDocsQueries(user: UserCtx, kind: AllDocsKind, query: AllDocsQuery, body: Body): AsyncIterable<Uint8Array>

  /** @throws not_found, deleted, no_attachment */
  openAttachment(user: UserCtx, id: string, name: string, rev: string | undefined): Promise<AttachmentAnswer>
  /**
   * Stored bytes from `start` up to, not including, `end`; held against compaction while they are read.
   * @throws no_attachment when the blob is gone or another one by now
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

// What a database can ask of its documents beyond its security object, as `_users` does (users-database.ts).

export interface DocumentRules {
  /** The documents as the user may see them: what he may not see is not there. */
  reader(user: UserCtx): DocumentReader
  /**
   * Whether the user may write the document; asked early, and in the turn of the act. Pure.
   * @param isLive whether it is there and not deleted, as far as that is known yet
   * @throws what it is refused with
   */
  checkWriter(user: UserCtx, id: string, security: SecurityObject | null, isLive: boolean): void
  /** What is wrong with a document that the user may write. Pure. @throws */
  checkDocument(doc: IncomingDoc): void
  /** What is written for a document that has been found good. @throws unavailable */
  prepare(doc: IncomingDoc): Promise<IncomingDoc>
}

/** The part of a store that reading documents takes; where not everybody may see everything, it shows less. */
export type DocumentReader = Pick<DatabaseStore, 'view' | 'readDocs' | 'readLocals' | 'readBlob' | 'pinBlob'>
