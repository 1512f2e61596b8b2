/** The revisions of one document that `open_revs` or `_bulk_get` asks for, page by page; protocol.md 3.2. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { isKnown, leafRev, leavesBelow } from '../revisions/branch.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import { sortLeaves } from '../revisions/winner.ts'
import type { DocState } from '../storage/engine.ts'
import type { OpenOptions } from './database.ts'
import type { DocumentReader } from './document-reader.ts'
import { inlinePieces } from './parts.ts'
import { pieceChunks } from './pieces.ts'
import { type ContentForm, type RenderedDocument, renderInTexts } from './render.ts'
import { requireMember } from './security.ts'
import { pinContents, readContent } from './stored-content.ts'

/** Characters of documents in a page; one document may be longer. */
const PAGE_CHARS = 256 * 1024

/** What is asked of a document. */
export interface RevisionsAsked {
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
export type OpenRow = RenderedDocument | { readonly missing: string }

/** How far the rows are read. */
export interface RevisionsBegun {
  readonly plan: readonly PlannedRow[]
  readonly rows: readonly OpenRow[]
  /** Rows of the plan that are read. */
  readonly done: number
}

type PlannedRow = { readonly rev: string } | { readonly missing: string }

/**
 * Decides which revisions come, and reads the first page of them. Their order is the leaves' or the request's; each
 * leaf comes once.
 * @throws invalid_rev; not_found for `all` of an unknown document
 */
export async function beginRevisions(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsAsked,
): Promise<RevisionsBegun> {
  return readStretch(store, user, asked, null)
}

/**
 * The same for several documents in one turn, as far as a page goes.
 * @returns for each what {@link beginRevisions} gives or throws; null for one that is to be begun by itself
 */
export async function beginTogether(
  store: DocumentReader,
  user: UserCtx,
  all: readonly RevisionsAsked[],
): Promise<(RevisionsBegun | CouchError | null)[]> {
  const breath = new Breath()
  const unread = all.values()
  let chars = 0
  return store.readDocs(
    all.map(({ id }) => id),
    (doc, _id, view) => {
      requireMember(user, view.security)
      const asked = unread.next().value as RevisionsAsked
      if (chars >= PAGE_CHARS || breath.isDue) return null
      const begun = attempt(() => beginWith(doc, asked))
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

function beginWith(doc: DocState | null, asked: RevisionsAsked): RevisionsBegun {
  const plan = planRows(doc, asked)
  const rows = renderPage(doc, plan, 0, asked)
  return { plan, rows, done: rows.length }
}

function charsOf(row: OpenRow): number {
  let chars = 0
  if (!('missing' in row)) for (const text of row.texts) chars += text.length
  return chars
}

/**
 * Pages of rows, as many as there are. The contents that a page's attachments name are held until the next is asked
 * for.
 * @param begun what {@link beginRevisions} gave for the same asked
 * @throws no_attachment when a content is gone
 */
export async function* revisionPages(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsAsked,
  begun: RevisionsBegun,
): AsyncGenerator<readonly OpenRow[]> {
  const breath = new Breath()
  for (let stretch = begun; ; stretch = await readStretch(store, user, asked, stretch)) {
    const contents = stretch.rows.flatMap((row) => ('missing' in row ? [] : row.contents))
    const pins = contents.length === 0 ? [] : await pinContents(store, contents)
    try {
      yield stretch.rows
    } finally {
      for (const pin of pins) pin.release()
    }
    if (stretch.done === stretch.plan.length) return
    await breath.take()
  }
}

async function readStretch(
  store: DocumentReader,
  user: UserCtx,
  asked: RevisionsAsked,
  before: RevisionsBegun | null,
): Promise<RevisionsBegun> {
  const [stretch] = await store.readDocs(
    [asked.id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (before === null) return beginWith(doc, asked)
      const { plan, done } = before
      const rows = renderPage(doc, plan, done, asked)
      return { plan, rows, done: done + rows.length }
    },
    { body: true, branches: true },
  )
  return stretch as RevisionsBegun
}

function planRows(doc: DocState | null, { revs, latest }: RevisionsAsked): PlannedRow[] {
  if (revs === 'all') {
    if (doc === null) throw new CouchError('not_found')
    if (doc.hasOneLeaf) return [{ rev: doc.rev }]
    return sortLeaves(doc.branches).map((leaf) => ({ rev: leafRev(leaf) }))
  }
  // What most ask for; no revision that there is leads further.
  if (revs.length === 1 && revs[0] === doc?.rev) return [{ rev: doc?.rev as string }]
  const found = new Set<string>()
  const missing: string[] = []
  for (const asked of revs.map(parseRev)) {
    const rev = formatRev(asked.pos, asked.id)
    const leaves = latest ? sortLeaves(leavesBelow(doc?.branches ?? [], asked)).map(leafRev) : [rev]
    if (leaves.length > 0 && isNamed(doc, asked)) for (const leaf of leaves) found.add(leaf)
    else missing.push(rev)
  }
  return [...[...found].map((rev) => ({ rev })), ...missing.map((rev) => ({ missing: rev }))]
}

/** Whether some branch has the revision; whether its body is kept is seen when it is rendered. */
function isNamed(doc: DocState | null, rev: Rev): boolean {
  return doc !== null && (formatRev(rev.pos, rev.id) === doc.rev || isKnown(doc.branches, rev))
}

/** At least one row of the plan, where there is one, and no more than a page. */
function renderPage(
  doc: DocState | null,
  plan: readonly PlannedRow[],
  from: number,
  { form, render }: RevisionsAsked,
): OpenRow[] {
  const rows: OpenRow[] = []
  const breath = new Breath()
  let chars = 0
  while (from + rows.length < plan.length && chars < PAGE_CHARS && !(rows.length > 0 && breath.isDue)) {
    const planned = plan[from + rows.length] as PlannedRow
    const row = 'missing' in planned ? planned : rowOf(doc, planned.rev, form, render)
    rows.push(row)
    chars += charsOf(row)
  }
  return rows
}

/** Of an ancestor no body may ever have come, and between two pages one may have been cleaned away. */
function rowOf(
  doc: DocState | null,
  rev: string,
  form: ContentForm,
  render: RevisionsAsked['render'],
): OpenRow {
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
  const asked = revisionsAsked(id, revs, options, 'data')
  yield* pieceChunks(arrayPieces(store, user, asked), (content, start, end) =>
    readContent(store, content, start, end),
  )
}

/** What a request with these options asks of one document's revisions. @throws invalid_rev */
export function revisionsAsked(
  id: string,
  revs: readonly unknown[] | 'all',
  { revs: withPath, latest, attachments, attsSince, attEncodingInfo }: OpenOptions,
  form: ContentForm,
): RevisionsAsked {
  const since = attsSince?.map(parseRev)
  return {
    id,
    revs,
    latest,
    render: { revs: withPath, attachments, attsSince: since, attEncodingInfo },
    form,
  }
}

async function* arrayPieces(store: DocumentReader, user: UserCtx, asked: RevisionsAsked) {
  const begun = await beginRevisions(store, user, asked)
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
