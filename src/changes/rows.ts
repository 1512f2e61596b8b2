/** Rows of `_changes` as text, protocol.md 5.2 and 5.3. */
import { CouchError } from '../core/errors.ts'
import { renderDocument } from '../documents/render.ts'
import { leafRev } from '../revisions/branch.ts'
import { sortLeaves } from '../revisions/winner.ts'
import type { DocState, StoreView, Touches } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'

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

/** A stretch of the feed: `since < seq < before`, from its low or, descending, from its high end. */
export interface FeedRange {
  readonly since: number
  readonly descending: boolean
  readonly before?: number
}

/** A row before it is known whether it carries its `seq`. */
export interface Row {
  readonly seq: number
  readonly token: string
  /** JSON members from `"id"` on, without the closing brace. */
  readonly members: string
}

/** What was found of a stretch, consistent with the view. */
export interface FeedRows {
  readonly rows: readonly Row[]
  /** Whether the stretch may hold further rows. */
  readonly more: boolean
  readonly view: StoreView
  /** Up to where the stretch was looked through, where that is not the last row. */
  readonly end?: number
}

/** The countdown of `seq_interval` begins here where no limit is asked for, as in CouchDB (protocol.md 19.5). */
export const UNLIMITED = 1e15

/** Rows a page of the whole feed has at most. */
export const PAGE_ROWS = 500
/** After about so much text a page ends, so that no thread and no socket holds more. */
export const PAGE_TEXT = 1_000_000

/** What {@link readRow} will touch of a document. */
export function touchesOf(options: ChangesOptions): Touches {
  const { style, includeDocs, conflicts, attachments } = options
  return {
    body: includeDocs,
    branches: style === 'all_docs' || (includeDocs && conflicts),
    bytes: includeDocs && attachments,
  }
}

/** A document's row; pure, for use in an engine's callbacks. */
export function readRow(doc: DocState, view: StoreView, options: ChangesOptions): Row {
  const revs = options.style === 'all_docs' ? sortLeaves(doc.branches).map(leafRev) : [doc.rev]
  const changes = revs.map((rev) => `{"rev":${JSON.stringify(rev)}}`).join(',')
  const deleted = doc.deleted ? ',"deleted":true' : ''
  const body = options.includeDocs ? documentMember(doc, options) : ''
  return {
    seq: doc.seq,
    token: sequenceToken(view.epochs, doc.seq),
    members: `"id":${JSON.stringify(doc.id)},"changes":[${changes}]${deleted}${body}`,
  }
}

/** One document that cannot be told of does not hold up all behind it: protocol.md 5.2. */
function documentMember(doc: DocState, { conflicts, attachments }: ChangesOptions): string {
  try {
    return `,"doc":${renderDocument(doc, doc.rev, { conflicts, attachments })}`
  } catch (thrown) {
    if (!(thrown instanceof CouchError)) throw thrown
    return `,"error":${JSON.stringify(thrown.error)}`
  }
}

/**
 * Frames rows. A row carries its `seq` when the count of rows still wanted before it is a multiple of the
 * interval; an event without one has no `id`, so that a reader resumes from the last that had.
 * @param limit rows wanted when the first of these was still to come
 */
export function frameRows(rows: readonly Row[], options: ChangesOptions, limit: number): string {
  const wanted = Math.min(limit, UNLIMITED)
  const framed = rows.map((row, index) => {
    const seq = (wanted - index) % options.seqInterval === 0 ? `"${row.token}"` : null
    const json = `{"seq":${seq},${row.members}}`
    if (options.framing === 'json') return json
    if (options.framing === 'lines') return `${json}\n`
    return seq === null ? `data: ${json}\n\n` : `data: ${json}\nid: ${seq}\n\n`
  })
  return framed.join(options.framing === 'json' ? ',\r\n' : '')
}
