/** The indexes of a database with their sizes and progress, for `/_settee/databases/{db}/indexes`. */
import { Yielder } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { kindRange } from '../documents/all-docs-query.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { requireMember, requireServerAdmin } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { DesignIndexes, IndexState } from './design-indexes.ts'
import { type DesignDoc, definitionsOf, designDocOf, JAVASCRIPT, signatureOfViews } from './design-views.ts'
import { indexesOf, type MangoIndex, QUERY_LANGUAGE, shownIndex } from './mango-index.ts'
import { signatureOfIndex } from './mango-rows.ts'

export interface IndexPage {
  /** The id of the design document before the first; absent: from the first. */
  readonly after?: string
  /** Design documents on a page, at least 1. */
  readonly limit: number
}

export interface IndexReportSource {
  /** A page of the indexes as JSON, with those of whole design documents. For members. */
  indexReport(user: UserCtx, page: IndexPage): Promise<Uint8Array>
  /** Empties an index that was found damaged: the next query builds it. For server admins. */
  discardIndex(user: UserCtx, signature: string): Promise<void>
}

interface ReportContext {
  readonly store: DatabaseStore
  readonly indexes: DesignIndexes
  /** Whether functions of design documents run here. */
  readonly runsFunctions: boolean
}

/** Views of one design document that are shown. */
const MAX_VIEWS = 200
/** Characters of a page's design documents after which it ends. */
const MAX_CHARS = 1024 * 1024

export function storeIndexReport(context: ReportContext): IndexReportSource {
  const { store, indexes } = context
  return {
    indexReport: async (user, page) => {
      requireMember(user, (await store.view()).security)
      const { docs, next } = await designDocuments(store, page)
      const { updateSeq } = await store.view()
      // First, since it empties logs: then no index has more bytes than all together.
      const bytes = await indexes.fileBytes()
      const report: Report = { updateSeq, built: await indexes.built() }
      const yielder = new Yielder()
      const rows: object[] = []
      for (const doc of docs) {
        await yielder.yieldIfDue()
        for (const row of await rowsOf(context, doc, report, yielder)) rows.push(row)
      }
      const answer = { update_seq: updateSeq, indexes: rows, bytes, next }
      return Buffer.from(`${JSON.stringify(answer)}\n`)
    },
    discardIndex: async (user, signature) => {
      requireServerAdmin(user)
      await indexes.discard(signature)
    },
  }
}

interface Source {
  readonly id: string
  readonly rev: string
  readonly text: string
}

async function designDocuments(
  store: DatabaseStore,
  { after, limit }: IndexPage,
): Promise<{ readonly docs: readonly Source[]; readonly next: string | null }> {
  const range = kindRange('design')
  const isInside = after !== undefined && after >= (range.start?.id ?? '')
  const page = await store.readRange(
    isInside ? { ...range, start: { id: after, inclusive: false } } : range,
    { limit, chars: MAX_CHARS, readSet: { body: true } },
    (doc) => ({ id: doc.id, rev: doc.rev, text: doc.body(doc.rev) ?? '{}' }),
  )
  return { docs: page.rows, next: page.more ? (page.rows.at(-1)?.id ?? null) : null }
}

interface Report {
  readonly updateSeq: number
  readonly built: ReadonlySet<string>
}

async function rowsOf(
  context: ReportContext,
  { id, rev, text }: Source,
  report: Report,
  yielder: Yielder,
): Promise<object[]> {
  const { store, indexes, runsFunctions } = context
  const parsed: unknown = text.length > MAX_PARSED_AT_ONCE ? await parseInSteps(text) : JSON.parse(text)
  const design = designDocOf(store, { id, rev, source: text }, parsed as Record<string, unknown>)
  if (design.language === QUERY_LANGUAGE) {
    const rows: object[] = []
    for (const index of indexesOf(id, parsed as Record<string, unknown>, store.partitioned)) {
      await yielder.yieldIfDue()
      const state = await indexes.state(signatureOfIndex(index), report.built, 1)
      rows.push(fieldRow(index, state, report))
    }
    return rows
  }
  const definitions = definitionsOf(design)
  if (definitions.length === 0) return []
  const isRun = runsFunctions && design.language === JAVASCRIPT
  const state = isRun ? await indexes.state(signatureOfViews(design), report.built, definitions.length) : null
  return [viewsRow(design, isRun, state, report)]
}

function fieldRow(index: MangoIndex, state: IndexState | null, report: Report): object {
  return { ...shownIndex(index), ...stateRow(state, report), rows: state?.rows[0] ?? 0 }
}

function viewsRow(design: DesignDoc, isRun: boolean, state: IndexState | null, report: Report): object {
  const definitions = definitionsOf(design)
  const shown = definitions.slice(0, MAX_VIEWS).map(({ name }, at) => ({
    name,
    reduce: reduceOf(design.views[name]?.reduce),
    rows: state?.rows[at] ?? 0,
  }))
  return {
    ddoc: design.id,
    name: null,
    type: 'view',
    partitioned: design.partitioned,
    language: String(design.language).slice(0, MAX_LANGUAGE),
    runs: isRun,
    views: shown,
    views_total: definitions.length,
    ...stateRow(state, report),
    rows: state?.rows.reduce((sum, rows) => sum + rows, 0) ?? 0,
  }
}

const MAX_LANGUAGE = 50

/** The name of a built-in function, or `function`; null without one. */
function reduceOf(reduce: unknown): string | null {
  if (typeof reduce !== 'string' || reduce === '') return null
  return /^_\w{1,50}$/.test(reduce) ? reduce : 'function'
}

function stateRow(state: IndexState | null, { updateSeq }: Report): object {
  if (state === null)
    return { built: false, updating: false, progress: null, pending: updateSeq, bytes: 0, last_use: null }
  const { seq, isUpdating, progress, bytes, lastUse } = state
  return {
    built: seq !== null,
    updating: isUpdating,
    progress: progress === null ? null : { done: progress.done, total: progress.total },
    pending: Math.max(0, updateSeq - (seq ?? 0)),
    bytes,
    last_use: lastUse === null ? null : new Date(lastUse).toISOString(),
  }
}
