/** The rows of `_changes` as text, and the options of a feed; protocol.md 5.2, 5.3 and 5.5. */
import { encodeTexts } from '../core/bytes.ts'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { escaped } from '../core/json.ts'
import type { DocumentReader } from '../documents/database.ts'
import { type RenderedDocument, renderDocument, renderInTexts } from '../documents/render.ts'
import { trimFields } from '../query/projection.ts'
import { leafRevs } from '../revisions/branch.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import type { ReadSet } from '../storage/read-set.ts'
import { sequenceTokens } from '../storage/sequence.ts'

/** How rows are framed: protocol.md 5.3. `json` puts `,\r\n` between rows; `lines` and `events` end each row. */
export type Framing = 'json' | 'lines' | 'events'

export interface ChangesOptions {
  readonly style: 'main_only' | 'all_docs'
  readonly descending: boolean
  readonly includeDocs: boolean
  readonly conflicts: boolean
  readonly attachments: boolean
  readonly attEncodingInfo: boolean
  readonly framing: Framing
  /** Only rows whose countdown is a multiple of this have a `seq`; 1 for all rows. */
  readonly seqInterval: number
  /** Restricts the feed to these documents (`filter=_doc_ids`). */
  readonly docIds?: readonly string[]
  /** Restricts the feed to documents with a passing revision. */
  readonly filter?: ChangesFilter
}

/** What a feed reads of a database. */
export type FeedReader = DocumentReader & Pick<DatabaseStore, 'readChanges' | 'countChanges' | 'findPoint'>

/** A range of the feed, `since < seq < before`, read from the low end or, with `descending`, from the high end. */
export interface FeedRange {
  readonly since: number
  readonly descending: boolean
  readonly before?: number
}

/** The rows that a page looks for. */
export interface FeedSearch {
  readonly options: ChangesOptions
  /** The maximum number of rows; Infinity for no limit. */
  readonly limit: number
  readonly range: FeedRange
}

/** A row before framing, which decides whether it has a `seq`. */
export interface Row {
  readonly seq: number
  /** JSON members from `"id"` on, without the closing brace. */
  readonly members: string
  /** The document, if contents of attachments must be read for it; the members then lack it (row-contents.ts). */
  readonly document?: RenderedDocument
}

/** The rows found in a range, consistent with the view. */
export interface FeedRows {
  readonly rows: readonly Row[]
  /** Whether the range may contain further rows. */
  readonly more: boolean
  readonly view: StoreView
  /** The position that the scan reached, if it is not the last row. */
  readonly end?: number
}

/** The start of the countdown of `seq_interval` for a feed without a limit, as in CouchDB (protocol.md 19.5). */
export const UNLIMITED = 1e15

/** The maximum number of rows in a page, except with `filter=_doc_ids`. */
export const PAGE_ROWS = 2000
/** A page ends after about this many characters, and earlier while other work waits (core/bytes.ts, scanBytes). */
export const PAGE_TEXT = 512 * 1024

/** The parts of a document that {@link readRow} reads. */
export function readSetOf(options: ChangesOptions): ReadSet {
  const { style, includeDocs, conflicts } = options
  return {
    body: includeDocs,
    branches: style === 'all_docs' || (includeDocs && conflicts),
  }
}

/**
 * The first rows, up to the one with which the length of their texts reaches a bound.
 * @returns the same array if that is all of them
 */
export function firstRows<T extends { readonly members: string }>(
  rows: readonly T[],
  chars: number,
): readonly T[] {
  let text = 0
  let count = 0
  for (const { members } of rows) {
    text += members.length
    count += 1
    if (text >= chars) break
  }
  return count === rows.length ? rows : rows.slice(0, count)
}

/** The bodies of the revisions that a filter decides on: those of {@link listedRevs}. */
export function bodiesOf({ style }: Pick<ChangesOptions, 'style'>): ReadSet {
  return { body: true, bodies: style === 'all_docs' }
}

/** A row before its revisions are chosen. */
export interface RowParts {
  readonly seq: number
  readonly id: string
  readonly deleted: boolean
  /** The member `doc`, or `error`, with a comma before it; '' without `include_docs`. */
  readonly doc: string
  /** As in {@link Row}. */
  readonly document?: RenderedDocument
}

/** The revisions of a row before filtering: the winner, or all leaves with the winner first. */
export function listedRevs(doc: DocState, { style }: Pick<ChangesOptions, 'style'>): readonly string[] {
  return style === 'main_only' || doc.hasOneLeaf ? [doc.rev] : leafRevs(doc.branches, doc.rev)
}

/** Makes the row of a document. Pure, so engines can call it. @param revs the revisions of the row */
export function readRow(
  doc: DocState,
  options: ChangesOptions,
  revs: readonly string[] = listedRevs(doc, options),
): Row {
  return makeRow(readParts(doc, options), revs)
}

export function readParts(doc: DocState, options: ChangesOptions): RowParts {
  const { id, seq, deleted } = doc
  if (!options.includeDocs) return { id, seq, deleted, doc: '' }
  const document = renderedFor(doc, options)
  if (typeof document === 'string') return { id, seq, deleted, doc: document }
  return { id, seq, deleted, doc: '', document }
}

/** @param revs the revisions for the member `changes`, at least one */
export function makeRow({ seq, id, deleted, doc, document }: RowParts, revs: readonly string[]): Row {
  const listed = revs.length === 1 ? escaped(revs[0] as string) : revs.map(escaped).join('"},{"rev":"')
  const end = deleted ? ',"deleted":true' : ''
  const members = `"id":"${escaped(id)}","changes":[{"rev":"${listed}"}]${end}${doc}`
  return document === undefined ? { seq, members } : { seq, members, document }
}

/** The member of a row for its document, or the document if contents must be read for it. */
function renderedFor(doc: DocState, options: ChangesOptions): string | RenderedDocument {
  const { conflicts, attachments, attEncodingInfo } = options
  try {
    if (!attachments)
      return documentMember(renderDocument(doc, doc.rev, { conflicts, attEncodingInfo }), options)
    const document = renderInTexts(doc, doc.rev, 'data', { conflicts, attachments, attEncodingInfo })
    return document.contents.length > 0 ? document : documentMember(document.texts.join(''), options)
  } catch (thrown) {
    return errorMember(thrown)
  }
}

/** @param text the document's JSON */
export function documentMember(text: string, { filter }: ChangesOptions): string {
  const fields = filter?.kind === 'selector' ? filter.fields : undefined
  return `,"doc":${fields === undefined ? text : trimFields(text, fields)}`
}

/**
 * A document that cannot be read has a member `error`, so it does not block the rest of the feed: protocol.md 5.2.
 * @throws errors other than CouchError
 */
export function errorMember(thrown: unknown): string {
  if (!(thrown instanceof CouchError)) throw thrown
  return `,"error":${JSON.stringify(thrown.error)}`
}

/**
 * Frames rows. A row has its `seq` if the number of rows that were still needed before it is a multiple of the
 * interval. An event without `seq` has no `id`, so a reader resumes from the last event with one.
 * @param limit the number of rows that were still needed before the first of these
 */
export function frameRows(
  { rows, view }: Pick<FeedRows, 'rows' | 'view'>,
  { framing, seqInterval }: ChangesOptions,
  limit: number,
): Uint8Array {
  const wanted = Math.min(limit, UNLIMITED)
  const tokenOf = sequenceTokens(view.epochs)
  const framed = rows.map(({ seq: number, members }, index) => {
    const seq = (wanted - index) % seqInterval === 0 ? `"${tokenOf(number)}"` : null
    const json = `{"seq":${seq},${members}}`
    if (framing === 'json') return json
    if (framing === 'lines') return `${json}\n`
    return seq === null ? `data: ${json}\n\n` : `data: ${json}\nid: ${seq}\n\n`
  })
  return encodeTexts(framed, framing === 'json' ? ',\r\n' : '')
}

/** The default options of a feed. */
export const PLAIN_CHANGES: Omit<ChangesOptions, 'framing'> = {
  style: 'main_only',
  descending: false,
  includeDocs: false,
  conflicts: false,
  attachments: false,
  attEncodingInfo: false,
  seqInterval: 1,
}

/** The filter of a feed, protocol.md 5.5: plain data that can be sent to another thread. */
export type ChangesFilter =
  /** `_design` passes design documents. */
  | { readonly kind: 'design' }
  /** `_selector` passes revisions that a Mango selector matches. */
  | {
      readonly kind: 'selector'
      /** JSON text. */
      readonly selector: string
      /** The names of the fields that `include_docs` sends; absent for all. */
      readonly fields?: readonly string[]
    }
  | FunctionFilter

/** A filter that runs a function of a design document. */
export type FunctionFilter =
  /** `_view` passes revisions for which the map function emits at least once. */
  | { readonly kind: 'view'; readonly ddoc: string; readonly name: string }
  /** `ddoc/name` passes revisions for which `filters.name` returns a truthy value. */
  | {
      readonly kind: 'function'
      /** `_design/name`. */
      readonly ddoc: string
      readonly name: string
      /** The JSON text of the request without the members that `completeRequest` adds. */
      readonly request: string
    }

/** Whether a filter runs a function of a design document. */
export function runsFunction(filter: ChangesFilter | undefined): filter is FunctionFilter {
  return filter?.kind === 'view' || filter?.kind === 'function'
}

const SELECTOR_ERRORS: ReadonlySet<ErrorName> = new Set([
  'invalid_selector',
  'invalid_field_name',
  'invalid_operator',
  'not_supported',
  'bad_arg',
])

/**
 * Replaces the code of a selector error by the code that feeds use for all of them, protocol.md 5.6. Other errors are
 * unchanged.
 */
export function filterError(thrown: unknown): unknown {
  const isSelectorError = thrown instanceof CouchError && SELECTOR_ERRORS.has(thrown.code)
  return isSelectorError ? new CouchError('invalid_filter', thrown.reason, { cause: thrown.cause }) : thrown
}
