/** Rows of `_changes` as text, protocol.md 5.2 and 5.3. */
import { encodeTexts } from '../core/bytes.ts'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { quoted } from '../core/json.ts'
import { renderDocument } from '../documents/render.ts'
import { trimFields } from '../query/projection.ts'
import { leafRev, sortLeaves } from '../revisions/branch.ts'
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
  readonly attEncodingInfo: boolean
  readonly framing: Framing
  /** Only rows whose countdown is a multiple of it carry their `seq`; 1: all. */
  readonly seqInterval: number
  /** Only these documents (`filter=_doc_ids`). */
  readonly docIds?: readonly string[]
  /** Only documents of which a revision passes; absent: all. */
  readonly filter?: ChangesFilter
}

/** A stretch of the feed: `since < seq < before`, from its low or, descending, from its high end. */
export interface FeedRange {
  readonly since: number
  readonly descending: boolean
  readonly before?: number
}

/** What a page is to be made of. */
export interface FeedSearch {
  readonly options: ChangesOptions
  /** Rows at most; Infinity for no limit. */
  readonly limit: number
  readonly range: FeedRange
}

/** A row before it is known whether it carries its `seq`. */
export interface Row {
  readonly seq: number
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
export const PAGE_ROWS = 2000
/** After about so much text a page ends: less where others wait (core/bytes.ts, scanBytes). */
export const PAGE_TEXT = 512 * 1024

/** What {@link readRow} will touch of a document. */
export function touchesOf(options: ChangesOptions): Required<Omit<Touches, 'ancestry'>> {
  const { style, includeDocs, conflicts, attachments } = options
  return {
    body: includeDocs,
    branches: style === 'all_docs' || (includeDocs && conflicts),
    bytes: includeDocs && attachments,
  }
}

/** What is known of a row before it is known which revisions it lists. */
export interface RowParts {
  readonly seq: number
  readonly id: string
  readonly deleted: boolean
  /** The member `doc`, or `error`, with a comma before it; '' without `include_docs`. */
  readonly doc: string
}

/** The revisions that a row lists unless a filter keeps some back: the winner, or all leaves, winner first. */
export function listedRevs(doc: DocState, { style }: Pick<ChangesOptions, 'style'>): readonly string[] {
  return style === 'main_only' || doc.hasOneLeaf ? [doc.rev] : sortLeaves(doc.branches).map(leafRev)
}

/** A document's row; pure, for use in an engine's callbacks. @param revs those that it lists */
export function readRow(
  doc: DocState,
  options: ChangesOptions,
  revs: readonly string[] = listedRevs(doc, options),
): Row {
  return makeRow(readParts(doc, options), revs)
}

export function readParts(doc: DocState, options: ChangesOptions): RowParts {
  const { id, seq, deleted } = doc
  return { id, seq, deleted, doc: options.includeDocs ? documentMember(doc, options) : '' }
}

export function makeRow({ seq, id, deleted, doc }: RowParts, revs: readonly string[]): Row {
  let changes = ''
  for (const rev of revs) changes += `${changes && ','}{"rev":${quoted(rev)}}`
  const members = `"id":${quoted(id)},"changes":[${changes}]${deleted ? ',"deleted":true' : ''}${doc}`
  return { seq, members }
}

/** One document that cannot be told of does not hold up all behind it: protocol.md 5.2. */
function documentMember(doc: DocState, options: ChangesOptions): string {
  const { conflicts, attachments, attEncodingInfo, filter } = options
  const fields = filter?.kind === 'selector' ? filter.fields : undefined
  try {
    const text = renderDocument(doc, doc.rev, { conflicts, attachments, attEncodingInfo })
    return `,"doc":${fields === undefined ? text : trimFields(text, fields)}`
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
export function frameRows(
  { rows, view }: Pick<FeedRows, 'rows' | 'view'>,
  { framing, seqInterval }: ChangesOptions,
  limit: number,
): Uint8Array {
  const wanted = Math.min(limit, UNLIMITED)
  const framed = rows.map(({ seq: number, members }, index) => {
    const seq = (wanted - index) % seqInterval === 0 ? `"${sequenceToken(view.epochs, number)}"` : null
    const json = `{"seq":${seq},${members}}`
    if (framing === 'json') return json
    if (framing === 'lines') return `${json}\n`
    return seq === null ? `data: ${json}\n\n` : `data: ${json}\nid: ${seq}\n\n`
  })
  return encodeTexts(framed, framing === 'json' ? ',\r\n' : '')
}

/** Options of a feed of which nothing is asked but its rows. */
export const PLAIN_CHANGES: Omit<ChangesOptions, 'framing'> = {
  style: 'main_only',
  descending: false,
  includeDocs: false,
  conflicts: false,
  attachments: false,
  attEncodingInfo: false,
  seqInterval: 1,
}

// What a feed lets through, as plain data that travels between threads; protocol.md 5.5.

export type ChangesFilter =
  /** `_design`: design documents. */
  | { readonly kind: 'design' }
  /** `_selector`: revisions that a Mango selector matches. */
  | {
      readonly kind: 'selector'
      /** JSON text. */
      readonly selector: string
      /** Names of the fields that `include_docs` sends; absent: all. */
      readonly fields?: readonly string[]
    }
  | FunctionFilter

/** A filter that runs a function of a design document. */
export type FunctionFilter =
  /** `_view`: revisions for which the map function emits at least once. */
  | { readonly kind: 'view'; readonly ddoc: string; readonly name: string }
  /** `ddoc/name`: revisions for which `filters.name` returns something truthy. */
  | {
      readonly kind: 'function'
      /** `_design/name`. */
      readonly ddoc: string
      readonly name: string
      /** JSON text of the request as far as the HTTP thread knows it; feeds.ts adds the rest. */
      readonly request: string
    }

/** Whether a filter runs a function of a design document. */
export function runsFunction(filter: ChangesFilter | undefined): filter is FunctionFilter {
  return filter?.kind === 'view' || filter?.kind === 'function'
}

const SELECTOR_ERRORS: ReadonlySet<ErrorName> = new Set([
  'invalid_selector',
  'invalid_operator',
  'not_supported',
  'bad_arg',
])

/** What a feed says of a selector's error: a feed has one word for all of them, protocol.md 5.6. Others stay as they are. */
export function filterError(thrown: unknown): unknown {
  const isOfSelector = thrown instanceof CouchError && SELECTOR_ERRORS.has(thrown.code)
  return isOfSelector ? new CouchError('invalid_filter', thrown.reason, { cause: thrown.cause }) : thrown
}
