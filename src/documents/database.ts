/**
 * A database as the rest of the house sees it. The same interface is kept by documents/store-database.ts, on the
 * thread that owns the database, and by threads/proxy.ts, which speaks to it over a port; so arguments and
 * answers are plain data, and what goes to a client comes as bytes ready to be sent.
 *
 * Every method that acts for somebody takes the caller first and checks the caller's rights on the database's
 * own thread, in the turn of the act.
 */
import type { SecurityObject, UserCtx } from '../core/types.ts'

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
  /** A deleted winner is answered instead of 404. */
  readonly deleted?: boolean
}

export interface OpenedDocument {
  /** The header's value with its quotes; null when members that are not the revision's own came out. */
  readonly etag: string | null
  /** The document's JSON and a newline. */
  readonly json: Uint8Array
}

/** Options of writing one document. */
export interface PutOptions {
  /** The parent revision from the query or If-Match; it must agree with the body's. */
  readonly rev?: string
  /** Where `rev` came from, for the refusal when it disagrees with the body. */
  readonly revFrom?: 'query' | 'etag'
  /** false stores the given revision as it is (protocol.md 6.4). Default true. */
  readonly newEdits?: boolean
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
  readonly updateSeq?: boolean
}

export type AllDocsKind = 'all' | 'design' | 'local'

/** Options of `_bulk_get`. */
export interface BulkGetOptions {
  readonly revs?: boolean
  readonly attachments?: boolean
  readonly latest?: boolean
}

export interface AttachmentAnswer {
  readonly type: string
  readonly length: number
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

export interface Database {
  info(user: UserCtx): Promise<DatabaseInfo>

  /** For the house itself: no rights are checked. null: none was set. */
  security(): Promise<SecurityObject | null>
  /** Stores a whole security object. @throws bad_request for a bad shape; unauthorized, forbidden */
  setSecurity(user: UserCtx, security: SecurityObject): Promise<void>
  revsLimit(user: UserCtx): Promise<number>
  /** @throws bad_request unless a positive integer */
  setRevsLimit(user: UserCtx, limit: unknown): Promise<void>

  /** Reads a document, `_local/` and `_design/` ones too. @throws not_found, deleted, invalid_rev */
  open(user: UserCtx, id: string, options: OpenOptions): Promise<OpenedDocument>
  /** The answer of `open_revs` as a JSON array, in chunks. @throws not_found for `all` of an unknown document */
  openRevs(
    user: UserCtx,
    id: string,
    revs: readonly unknown[] | 'all',
    options: OpenOptions,
  ): AsyncIterable<Uint8Array>

  /** Writes a document from its JSON. @throws conflict, and all that protocol.md 3.3 lists */
  put(user: UserCtx, id: string, body: Body, options: PutOptions): Promise<SavedDocument>
  /** Writes a document whose id is in its JSON, or is made here. */
  post(user: UserCtx, body: Body): Promise<SavedDocument>
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
  revsDiff(user: UserCtx, body: Body): Promise<Uint8Array>
  missingRevs(user: UserCtx, body: Body): Promise<Uint8Array>
  allDocs(user: UserCtx, kind: AllDocsKind, query: AllDocsQuery, body: Body | null): AsyncIterable<Uint8Array>

  /** @throws not_found, deleted, no_attachment */
  openAttachment(user: UserCtx, id: string, name: string, rev: string | undefined): Promise<AttachmentAnswer>
  /** The bytes from `start` up to, not including, `end`. */
  readAttachment(blob: number, start: number, end: number): AsyncIterable<Uint8Array>
}
