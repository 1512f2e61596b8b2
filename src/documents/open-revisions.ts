/** Reads the revisions of a document that `open_revs` or `_bulk_get` asks for, page by page; protocol.md 3.2. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { DocState, StoreView } from '../storage/engine.ts'
import { namedRevisions, type ReadSet } from '../storage/read-set.ts'
import type { DocumentReader, OpenOptions } from './database.ts'
import {
  documentPart,
  errorPart,
  inlinePieces,
  MULTIPART_OPTIONS,
  type Piece,
  pieceChunks,
} from './pieces.ts'
import {
  type ContentForm,
  type RenderedDocument,
  type RenderOptions,
  renderInTexts,
  unlessDamaged,
} from './render.ts'
import { LOOKUPS, type PlannedRow, type PlanStep, RevisionsPlan } from './revisions-plan.ts'
import { requireMember } from './security.ts'
import { pinContents, readContent } from './stored-content.ts'

/** Characters of documents in a page; a single document may be longer. */
const PAGE_CHARS = 256 * 1024
/** Rows of a page. */
const PAGE_ROWS = 64

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

/** A revision, or the id of one that does not exist, or is damaged. */
export type RevisionRow = RenderedDocument | { readonly missing: string; readonly because?: CouchError }

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
  const read: (RevisionsProgress | CouchError | null)[] = await store.readDocs(
    all.map(({ id }) => id),
    (doc, _id, view, place) => {
      requireMember(user, view.security)
      return attempt(() => firstPage(doc, all[place] as RevisionsRequest, view))
    },
    {
      body: true,
      branches: true,
      ...(all.some(({ render }) => render.revs) && { ancestry: 'leaves' }),
      of: (place) => ({ ...pathReadSet(all[place]?.render), ...revsReadSet(all[place]?.revs) }),
    },
    PAGE_CHARS,
  )
  for (let at = read.length; at < all.length; at++) read.push(null)
  return read
}

/** What the paths of revisions need. */
function pathReadSet({ revs, attsSince }: RevisionsRequest['render'] = {}): ReadSet {
  return revs || attsSince !== undefined ? { ancestry: 'leaves' } : {}
}

/** The revisions that the first page looks up. */
function revsReadSet(revs: RevisionsRequest['revs'] = 'all'): ReadSet {
  if (revs === 'all') return {}
  const named = namedRevisions(revs.slice(0, LOOKUPS))
  return { ...named, revs: named.revs?.slice(0, PAGE_ROWS) }
}

function attempt<T>(work: () => T): T | CouchError {
  try {
    return work()
  } catch (error) {
    if (error instanceof CouchError) return error
    throw error
  }
}

/** Pure. The bodies of leaves in conflict are read with the next page, which declares them. */
function firstPage(doc: DocState | null, request: RevisionsRequest, view: StoreView): RevisionsProgress {
  const plan = new RevisionsPlan(request.revs, request.latest)
  plan.add(plan.step(doc))
  const isDeclared = request.revs !== 'all' || doc?.hasOneLeaf === true
  const rows = isDeclared ? renderPage(doc, plan.rows, request, view) : []
  return { plan, rows, done: rows.length }
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
  const ids = [request.id]
  const common = { body: true, branches: true, ...pathReadSet(request.render) }
  if (before === null) {
    const first = (doc: DocState | null, _id: string, view: StoreView) => {
      requireMember(user, view.security)
      return firstPage(doc, request, view)
    }
    const [page] = await store.readDocs(ids, first, { ...common, ...revsReadSet(request.revs) })
    return page as RevisionsProgress
  }
  const { plan, done } = before
  const left = plan.rows.slice(done, done + PAGE_ROWS)
  const named = namedRevisions(plan.next)
  const revs = [
    ...(named.revs ?? []).slice(0, PAGE_ROWS),
    ...left.flatMap((row) => ('rev' in row ? row.rev : [])),
  ]
  const [read] = await store.readDocs(
    ids,
    (doc, _id, view) => {
      requireMember(user, view.security)
      const step = plan.step(doc)
      return { step, rows: renderPage(doc, [...left, ...step.rows], request, view) }
    },
    { ...common, ...named, revs },
  )
  const { step, rows } = read as { step: PlanStep; rows: RevisionRow[] }
  plan.add(step)
  return { plan, rows, done: done + rows.length }
}

/** Renders at least one row of the plan, if there is one, and at most a page. */
function renderPage(
  doc: DocState | null,
  planned: readonly PlannedRow[],
  { form, render }: RevisionsRequest,
  { revsLimit }: StoreView,
): RevisionRow[] {
  const rows: RevisionRow[] = []
  let chars = 0
  for (const row of planned) {
    if (rows.length >= PAGE_ROWS || chars >= PAGE_CHARS) break
    const rendered = 'missing' in row ? row : rowOf(doc, row.rev, form, { ...render, revsLimit })
    rows.push(rendered)
    chars += charsOf(rendered)
  }
  return rows
}

/** The body of an ancestor may be unknown, and a compaction between two pages may have removed it. */
function rowOf(doc: DocState | null, rev: string, form: ContentForm, render: RenderOptions): RevisionRow {
  return unlessDamaged(
    () => (doc === null || doc.body(rev) === null ? { missing: rev } : renderInTexts(doc, rev, form, render)),
    (because) => ({ missing: rev, because }),
  )
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
      if ('missing' in row) yield JSON.stringify({ missing: row.missing })
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
