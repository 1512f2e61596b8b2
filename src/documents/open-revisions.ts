/** Reads the revisions of a document that `open_revs` or `_bulk_get` asks for, page by page; protocol.md 3.2. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { type Branch, leafRev, sortLeaves } from '../revisions/branch.ts'
import { isKnown, leavesBelow } from '../revisions/branch-index.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { DocState, StoreView } from '../storage/engine.ts'
import type { DocumentReader, OpenOptions } from './database.ts'
import {
  documentPart,
  errorPart,
  inlinePieces,
  MULTIPART_OPTIONS,
  type Piece,
  pieceChunks,
} from './pieces.ts'
import { type ContentForm, type RenderedDocument, type RenderOptions, renderInTexts } from './render.ts'
import { requireMember } from './security.ts'
import { pinContents, readContent } from './stored-content.ts'

/** Characters of documents in a page; a single document may be longer. */
const PAGE_CHARS = 256 * 1024

/** A request for revisions of one document. */
export interface RevisionsRequest {
  readonly id: string
  /** Revision ids as sent, or all leaves. */
  readonly revs: readonly unknown[] | 'all'
  readonly latest?: boolean | undefined
  /** Options for the ancestry and the attachments. */
  readonly render: {
    readonly revs?: boolean | undefined
    readonly attachments?: boolean | undefined
    readonly attsSince?: readonly Rev[] | undefined
    readonly attEncodingInfo?: boolean | undefined
  }
  readonly form: ContentForm
}

/** A revision, or the id of one that does not exist. */
export type RevisionRow = RenderedDocument | { readonly missing: string }

/** A page of rows, and the progress of the request. */
export interface RevisionsProgress {
  readonly plan: RevisionsPlan
  readonly rows: readonly RevisionRow[]
  /** How many rows of the plan have been read. */
  readonly done: number
}

/** Whether this is the last page. */
export function isComplete({ plan, done }: RevisionsProgress): boolean {
  return plan.isWhole && done === plan.rows.length
}

type PlannedRow = { readonly rev: string } | { readonly missing: string }

/**
 * Decides which revisions are returned, and reads the first page of them. They are in the order of the leaves or of the
 * request; each leaf is returned once.
 * @throws invalid_rev; not_found for `all` of an unknown document
 */
export async function readFirstPage(
  store: DocumentReader,
  user: UserCtx,
  request: RevisionsRequest,
): Promise<RevisionsProgress> {
  return readPage(store, user, request, null)
}

/**
 * Reads the first pages of several documents in one turn, up to the length of a page.
 * @returns for each document, the result or the error of {@link readFirstPage}; null if it must be read separately
 */
export async function readFirstPages(
  store: DocumentReader,
  user: UserCtx,
  all: readonly RevisionsRequest[],
): Promise<(RevisionsProgress | CouchError | null)[]> {
  const yielder = new Yielder()
  const unread = all.values()
  let chars = 0
  return store.readDocs(
    all.map(({ id }) => id),
    (doc, _id, view) => {
      requireMember(user, view.security)
      const request = unread.next().value as RevisionsRequest
      if (chars >= PAGE_CHARS || yielder.isDue) return null
      const page = attempt(() => firstPage(doc, request, view))
      if (!(page instanceof CouchError)) for (const row of page.rows) chars += charsOf(row)
      return page
    },
    { body: true, branches: true, ...(all.some(({ render }) => render.revs) && { ancestry: 'winner' }) },
  )
}

function attempt<T>(work: () => T): T | CouchError {
  try {
    return work()
  } catch (error) {
    if (error instanceof CouchError) return error
    throw error
  }
}

function firstPage(doc: DocState | null, request: RevisionsRequest, view: StoreView): RevisionsProgress {
  return nextPage(doc, new RevisionsPlan(request), 0, request, view)
}

function nextPage(
  doc: DocState | null,
  plan: RevisionsPlan,
  done: number,
  request: RevisionsRequest,
  view: StoreView,
): RevisionsProgress {
  const yielder = new Yielder()
  plan.extend(doc, yielder)
  const rows = renderPage(doc, plan.rows, done, request, view, yielder)
  return { plan, rows, done: done + rows.length }
}

function charsOf(row: RevisionRow): number {
  let chars = 0
  if (!('missing' in row)) for (const text of row.texts) chars += text.length
  return chars
}

/**
 * All pages of rows. The contents of a page's attachments are pinned until the next page is requested.
 * @param progress the result of {@link readFirstPage} for the same request
 * @throws no_attachment if a content no longer exists
 */
export async function* revisionPages(
  store: DocumentReader,
  user: UserCtx,
  request: RevisionsRequest,
  progress: RevisionsProgress,
): AsyncGenerator<readonly RevisionRow[]> {
  const yielder = new Yielder()
  for (let page = progress; ; page = await readPage(store, user, request, page)) {
    const contents = page.rows.flatMap((row) => ('missing' in row ? [] : row.contents))
    const pins = contents.length === 0 ? [] : await pinContents(store, contents)
    try {
      yield page.rows
    } finally {
      for (const pin of pins) pin.release()
    }
    if (isComplete(page)) return
    // The page ended because it took long.
    await yielder.yieldNow()
  }
}

async function readPage(
  store: DocumentReader,
  user: UserCtx,
  request: RevisionsRequest,
  before: RevisionsProgress | null,
): Promise<RevisionsProgress> {
  const [page] = await store.readDocs(
    [request.id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (before === null) return firstPage(doc, request, view)
      return nextPage(doc, before.plan, before.done, request, view)
    },
    { body: true, branches: true },
  )
  return page as RevisionsProgress
}

/**
 * The rows of a request, decided in as many turns as necessary. Existing revisions are first, in the order of the
 * request.
 */
class RevisionsPlan {
  readonly rows: PlannedRow[] = []
  /** Whether the plan has all rows. */
  isWhole = false
  readonly #request: RevisionsRequest
  /** Null for all leaves. */
  readonly #revs: readonly Rev[] | null
  readonly #found = new Set<string>()
  readonly #missing: string[] = []
  #next = 0

  /** @throws invalid_rev */
  constructor(request: RevisionsRequest) {
    this.#request = request
    this.#revs = request.revs === 'all' ? null : request.revs.map(parseRev)
  }

  /** Continues until the turn has lasted long enough. @throws not_found for `all` of an unknown document */
  extend(doc: DocState | null, yielder: Yielder): void {
    if (this.isWhole) return
    if (this.#revs === null) {
      for (const rev of leavesOf(doc)) this.rows.push({ rev })
      this.isWhole = true
      return
    }
    const listed = new Set<Branch>()
    for (let looked = 0; this.#next < this.#revs.length; looked++) {
      if (looked > 0 && yielder.isDue) return
      this.#find(doc, this.#revs[this.#next++] as Rev, listed)
      // The first look-up loads the data that the others use. If its time counted, each turn could end after it.
      if (looked === 0) yielder.restart()
    }
    for (const missing of this.#missing) this.rows.push({ missing })
    this.isWhole = true
  }

  /** @param listed the leaves that are in the plan */
  #find(doc: DocState | null, named: Rev, listed: Set<Branch>): void {
    const rev = formatRev(named.pos, named.id)
    // The usual request: no other revision follows the winner.
    if (rev === doc?.rev) this.#list(rev)
    else if (doc === null || !isKnown(doc.branches, named)) this.#missing.push(rev)
    else if (!this.#request.latest) this.#list(rev)
    else {
      const leaves = leavesBelow(doc.branches, named).filter((leaf) => !listed.has(leaf))
      for (const leaf of sortLeaves(leaves)) {
        listed.add(leaf)
        this.#list(leafRev(leaf))
      }
    }
  }

  #list(rev: string): void {
    if (this.#found.has(rev)) return
    this.#found.add(rev)
    this.rows.push({ rev })
  }
}

function leavesOf(doc: DocState | null): string[] {
  if (doc === null) throw new CouchError('not_found')
  return doc.hasOneLeaf ? [doc.rev] : sortLeaves(doc.branches).map(leafRev)
}

/** Renders at least one row of the plan, if there is one, and at most a page. */
function renderPage(
  doc: DocState | null,
  plan: readonly PlannedRow[],
  from: number,
  { form, render }: RevisionsRequest,
  { revsLimit }: StoreView,
  yielder: Yielder,
): RevisionRow[] {
  const rows: RevisionRow[] = []
  let chars = 0
  while (from + rows.length < plan.length && chars < PAGE_CHARS && !(rows.length > 0 && yielder.isDue)) {
    const planned = plan[from + rows.length] as PlannedRow
    const row = 'missing' in planned ? planned : rowOf(doc, planned.rev, form, { ...render, revsLimit })
    rows.push(row)
    chars += charsOf(row)
  }
  return rows
}

/** The body of an ancestor may be unknown, and a compaction between two pages may have removed it. */
function rowOf(doc: DocState | null, rev: string, form: ContentForm, render: RenderOptions): RevisionRow {
  return doc === null || doc.body(rev) === null ? { missing: rev } : renderInTexts(doc, rev, form, render)
}

/** `open_revs` as a JSON array. @throws invalid_rev; not_found for `all` of an unknown document */
export async function* openRevs(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  revs: readonly unknown[] | 'all',
  options: OpenOptions,
): AsyncGenerator<Uint8Array> {
  const request = revisionsRequest(id, revs, options, 'data')
  yield* pieceChunks(arrayPieces(store, user, request), (content, start, end) =>
    readContent(store, content, start, end),
  )
}

/** The request for one document's revisions with these options. @throws invalid_rev */
export function revisionsRequest(
  id: string,
  revs: readonly unknown[] | 'all',
  { revs: withPath, latest, attachments, attsSince, attEncodingInfo }: OpenOptions,
  form: ContentForm,
): RevisionsRequest {
  const since = attsSince?.map(parseRev)
  return {
    id,
    revs,
    latest,
    render: { revs: withPath, attachments, attsSince: since, attEncodingInfo },
    form,
  }
}

async function* arrayPieces(store: DocumentReader, user: UserCtx, request: RevisionsRequest) {
  const progress = await readFirstPage(store, user, request)
  let separator = '['
  for await (const rows of revisionPages(store, user, request, progress)) {
    for (const row of rows) {
      yield separator
      separator = ','
      if ('missing' in row) yield JSON.stringify(row)
      else yield* ['{"ok":', ...inlinePieces(row), '}']
    }
  }
  yield separator === '[' ? '[]\n' : ']\n'
}

/**
 * `open_revs` as multipart/mixed, protocol.md 3.2.
 * @throws invalid_rev; not_found for `all` of an unknown document
 */
export async function* openRevsMixed(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  revs: readonly unknown[] | 'all',
  options: OpenOptions,
  boundary: string,
): AsyncGenerator<Uint8Array> {
  const request = revisionsRequest(id, revs, { ...options, ...MULTIPART_OPTIONS }, 'follows')
  const progress = await readFirstPage(store, user, request)
  const pages = revisionPages(store, user, request, progress)
  yield* pieceChunks(revisionParts(pages, boundary), (content, start, end) =>
    readContent(store, content, start, end),
  )
}

async function* revisionParts(
  pages: AsyncIterable<readonly RevisionRow[]>,
  boundary: string,
): AsyncGenerator<Piece> {
  const between = `\r\n--${boundary}`
  yield `--${boundary}`
  for await (const rows of pages) {
    for (const row of rows) {
      if ('missing' in row) yield errorPart(row)
      else yield* documentPart(row, (inner) => `Content-Type: multipart/related; boundary="${inner}"`)
      yield between
    }
  }
  yield '--'
}
