/**
 * One end of a replication: a database of this server (local-peer.ts) or of another one (remote-peer.ts). Answers are
 * JSON as CouchDB sends it, in chunks, which transfer.ts and changes-reader.ts read. Every method throws PeerError.
 */
import type { Body } from '../documents/database.ts'
import type { Position, ReplicationFilter } from './requests/replication-request.ts'

export interface ChangesRequest {
  readonly since: Position
  readonly limit: number
  /** `all_docs` lists all leaves, `main_only` the winner. */
  readonly style: 'all_docs' | 'main_only'
  readonly filter: ReplicationFilter
  /** Wait for the next change at the end of the feed, up to the peer's own time limit. */
  readonly waits: boolean
  readonly signal: AbortSignal
}

export interface PeerInfo {
  readonly updateSeq: Position
  /** Changes when the database is deleted and made again. */
  readonly instanceStartTime: string
}

/** Revisions of one document, with its content. */
export interface OpenedRevisions {
  /** The `Content-Type` of the answer. */
  readonly type: string
  readonly chunks: AsyncIterable<Uint8Array>
}

/** A revision with attachments, as multipart/related. */
export interface MultipartRevision {
  /** The whole body that holds it. */
  readonly body: Body
  /** The range of the revision in the body, in bytes. Text around it counts as preamble and epilogue. */
  readonly start: number
  readonly end: number
  readonly boundary: string
}

export interface Peer {
  /** For people, without credentials. */
  readonly address: string
  /** Revisions with large attachments that are read from here at once. Each may hold tens of MB until they are collected. */
  readonly largeFetches: number
  info(signal: AbortSignal): Promise<PeerInfo>
  /** Makes the database. An existing one is fine. */
  create(params: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<void>
  /** What PouchDB calls the id of the database. */
  pouchId(signal: AbortSignal): Promise<string>
  /** `_changes`: an object with `results`, `last_seq` and perhaps `pending`. */
  changes(request: ChangesRequest): AsyncIterable<Uint8Array>
  /** How many changes follow; null: unknown. */
  pending(since: Position, signal: AbortSignal): Promise<number | null>
  /** `_revs_diff`. */
  revsDiff(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array>
  /** `_bulk_get` with stubs of attachments. @throws not_supported */
  bulkGet(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array>
  /**
   * `open_revs` as multipart/mixed, or as JSON if the peer has no such answer.
   * @param attsSince revisions that the target has: attachments that are not newer come as stubs
   * @param isInline attachments as base64 in JSON
   */
  openRevs(
    id: string,
    revs: readonly string[],
    options: { readonly attsSince: readonly string[]; readonly isInline: boolean },
    signal: AbortSignal,
  ): Promise<OpenedRevisions>
  /** `_bulk_docs`. @throws too_large */
  bulkDocs(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array>
  /** Stores a revision with `new_edits=false`. @throws forbidden, unauthorized, too_large */
  putRevision(id: string, revision: MultipartRevision, signal: AbortSignal): Promise<void>
  /** A document by its id, also a `_local/` or `_design/` one; null if there is none. */
  readDocument(id: string, signal: AbortSignal): Promise<unknown>
  /** @returns the new revision @throws conflict */
  writeLocal(id: string, doc: object, signal: AbortSignal): Promise<string>
  /** Makes what was written durable. @returns the `instance_start_time` */
  commit(signal: AbortSignal): Promise<string>
}
