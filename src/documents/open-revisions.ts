/** The revisions of one document that `open_revs` or `_bulk_get` asks for, page by page; protocol.md 3.2. */
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { Yielder } from '../core/yielder.ts'
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

/** Characters of documents in a page; one document may be longer. */
const PAGE_CHARS = 256 * 1024

/** What is asked of a document. */
export interface RevisionsRequest {
  readonly id: string
  /** Names as sent, or all leaves. */
  readonly revs: readonly unknown[] | 'all'
  readonly latest?: boolean | undefined
  /** Whether and how the ancestry comes, and the attachments. */
  readonly render: {
    readonly revs?: boolean | undefined
    readonly attachments?: boolean | undefined
    readonly attsSince?: readonly Rev[] | undefined
    readonly attEncodingInfo?: boolean | undefined
  }
  readonly form: ContentForm
}

/** A revision, or the name of one that is not there. */
export type RevisionRow = RenderedDocument | { readonly missing: string }

/** How far the rows are read. */
export interface RevisionsProgress {
  readonly plan: RevisionsPlan
  readonly rows: readonly RevisionRow[]
  /** Rows of the plan that are read. */
  readonly done: number
}

/** Whether there is no further page. */
export function isComplete({ plan, done }: RevisionsProgress): boolean {
  return plan.isWhole && done === plan.rows.length
}

type PlannedRow = { readonly rev: string } | { readonly missing: string }

/**
 * Decides which revisions come, and reads the first page of them. Their order is the leaves' or the request's; each
 * leaf comes once.
 * @throws invalid_rev; not_found for `all` of an unknown document
 */
export async function readFirstPage(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsRequest,
): Promise<RevisionsProgress> {
  return readStretch(store, user, asked, null)
}

/**
 * The same for several documents in one turn, as far as a page goes.
 * @returns for each what {@link readFirstPage} gives or throws; null for one that is to be begun by itself
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
      const asked = unread.next().value as RevisionsRequest
      if (chars >= PAGE_CHARS || yielder.isDue) return null
      const begun = attempt(() => beginWith(doc, asked, view))
      if (!(begun instanceof CouchError)) for (const row of begun.rows) chars += charsOf(row)
      return begun
    },
    { body: true, branches: true, ancestry: all.some(({ render }) => render.revs) },
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

function beginWith(doc: DocState | null, asked: RevisionsRequest, view: StoreView): RevisionsProgress {
  return nextPage(doc, new RevisionsPlan(asked), 0, asked, view)
}

function nextPage(
  doc: DocState | null,
  plan: RevisionsPlan,
  done: number,
  asked: RevisionsRequest,
  view: StoreView,
): RevisionsProgress {
  const yielder = new Yielder()
  plan.extend(doc, yielder)
  const rows = renderPage(doc, plan.rows, done, asked, view, yielder)
  return { plan, rows, done: done + rows.length }
}

function charsOf(row: RevisionRow): number {
  let chars = 0
  if (!('missing' in row)) for (const text of row.texts) chars += text.length
  return chars
}

/**
 * Pages of rows, as many as there are. The contents that a page's attachments name are held until the next is asked
 * for.
 * @param begun what {@link readFirstPage} gave for the same asked
 * @throws no_attachment when a content is gone
 */
export async function* revisionPages(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsRequest,
  begun: RevisionsProgress,
): AsyncGenerator<readonly RevisionRow[]> {
  const yielder = new Yielder()
  for (let stretch = begun; ; stretch = await readStretch(store, user, asked, stretch)) {
    const contents = stretch.rows.flatMap((row) => ('missing' in row ? [] : row.contents))
    const pins = contents.length === 0 ? [] : await pinContents(store, contents)
    try {
      yield stretch.rows
    } finally {
      for (const pin of pins) pin.release()
    }
    if (isComplete(stretch)) return
    // It ended because it was long.
    await yielder.yieldNow()
  }
}

async function readStretch(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsRequest,
  before: RevisionsProgress | null,
): Promise<RevisionsProgress> {
  const [stretch] = await store.readDocs(
    [asked.id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (before === null) return beginWith(doc, asked, view)
      return nextPage(doc, before.plan, before.done, asked, view)
    },
    { body: true, branches: true },
  )
  return stretch as RevisionsProgress
}

/** Which rows come, found out in as many turns as it takes: those that are there first, as they were asked for. */
class RevisionsPlan {
  readonly rows: PlannedRow[] = []
  /** Whether all rows are in it. */
  isWhole = false
  readonly #asked: RevisionsRequest
  /** null: all leaves. */
  readonly #revs: readonly Rev[] | null
  readonly #found = new Set<string>()
  readonly #missing: string[] = []
  #next = 0

  /** @throws invalid_rev */
  constructor(asked: RevisionsRequest) {
    this.#asked = asked
    this.#revs = asked.revs === 'all' ? null : asked.revs.map(parseRev)
  }

  /** Goes on as long as there is time. @throws not_found for `all` of an unknown document */
  extend(doc: DocState | null, yielder: Yielder): void {
    if (this.isWhole) return
    if (this.#revs === null) {
      for (const rev of allLeaves(doc)) this.rows.push({ rev })
      this.isWhole = true
      return
    }
    const listed = new Set<Branch>()
    for (let looked = 0; this.#next < this.#revs.length; looked++) {
      if (looked > 0 && yielder.isDue) return
      this.#look(doc, this.#revs[this.#next++] as Rev, listed)
      // The first loads what all others look at; its time would leave none to them, in each turn anew.
      if (looked === 0) yielder.restart()
    }
    for (const missing of this.#missing) this.rows.push({ missing })
    this.isWhole = true
  }

  /** @param listed leaves that are in the plan */
  #look(doc: DocState | null, asked: Rev, listed: Set<Branch>): void {
    const rev = formatRev(asked.pos, asked.id)
    // What most ask for; no revision that there is leads further.
    if (rev === doc?.rev) this.#list(rev)
    else if (doc === null || !isKnown(doc.branches, asked)) this.#missing.push(rev)
    else if (!this.#asked.latest) this.#list(rev)
    else {
      const leaves = leavesBelow(doc.branches, asked).filter((leaf) => !listed.has(leaf))
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

function allLeaves(doc: DocState | null): string[] {
  if (doc === null) throw new CouchError('not_found')
  return doc.hasOneLeaf ? [doc.rev] : sortLeaves(doc.branches).map(leafRev)
}

/** At least one row of the plan, where there is one, and no more than a page. */
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

/** Of an ancestor no body may ever have come, and between two pages one may have been cleaned away. */
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
  const asked = revisionsRequest(id, revs, options, 'data')
  yield* pieceChunks(arrayPieces(store, user, asked), (content, start, end) =>
    readContent(store, content, start, end),
  )
}

/** What a request with these options asks of one document's revisions. @throws invalid_rev */
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

async function* arrayPieces(store: DocumentReader, user: UserCtx, asked: RevisionsRequest) {
  const begun = await readFirstPage(store, user, asked)
  let separator = '['
  for await (const rows of revisionPages(store, user, asked, begun)) {
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
  const asked = revisionsRequest(id, revs, { ...options, ...MULTIPART_OPTIONS }, 'follows')
  const begun = await readFirstPage(store, user, asked)
  const pages = revisionPages(store, user, asked, begun)
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
