/**
 * `filter=ddoc/name` and `filter=_view`; protocol.md 5.5, 5.6. The feed is read in batches, and the sandbox runs
 * functions of design documents that decide which documents pass. While a function works on one batch, the next one is
 * read. At most these two batches are in memory.
 */
import { scanBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { spliceDocument } from '../documents/body.ts'
import { languageOf, requireJavascript } from '../documents/design-docs.ts'
import { completeRequest } from '../documents/function-request.ts'
import { nameOnly, renderDocument, unlessDamaged } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { Sandbox } from '../sandbox/messages.ts'
import type { DocState, StoreView } from '../storage/engine.ts'
import {
  bodiesOf,
  type ChangesOptions,
  type FeedRange,
  type FeedReader,
  type FeedRows,
  type FeedSearch,
  type FunctionFilter,
  listedRevs,
  makeRow,
  PAGE_TEXT,
  type Row,
  type RowParts,
  readParts,
  readSetOf,
} from './rows.ts'

/** A document that may pass the filter. */
interface Candidate {
  readonly parts: RowParts
  /** The revisions that the filter decides on. */
  readonly revs: readonly string[]
  /** Their JSON texts. */
  readonly docs: readonly string[]
}

interface Batch {
  readonly candidates: readonly Candidate[]
  readonly more: boolean
  readonly view: StoreView
}

/** The size of a batch is the number of rows that the feed still needs, within these limits. */
const MAX_DOCS = 400
const MIN_DOCS = 100
/** The number of documents in the first batch of a page, and the factor by which each further batch grows. */
const FIRST_DOCS = 10
const GROWTH = 4
/** The maximum number of characters in a batch. */
const BATCH_TEXT = 1_000_000
/** Milliseconds after which a page reads no further batch, since the reader may have disconnected. */
const FUNCTION_PAGE_MS = 100
/**
 * Milliseconds after which a page ends without the next batch. Then the function is slow, and the reader waits for
 * progress.
 */
const LATE_MS = 200
/** How many ancestors of a revision a function sees: CouchDB's default of `query_server_config/revs_limit`. */
const VISIBLE_ANCESTORS = 20

/**
 * Reads one page of a filtered feed. A page without rows still has an `end`: the position that the scan reached.
 * @throws the errors of the predicate; unauthorized, forbidden, before a function sees a document
 */
export async function functionRows(
  store: FeedReader,
  user: UserCtx,
  search: FeedSearch,
  predicate: FilterPredicate,
): Promise<FeedRows> {
  const startedAt = performance.now()
  const rows: Row[] = []
  const maxText = scanBytes(PAGE_TEXT)
  let text = 0
  let range = search.range
  let size = FIRST_DOCS
  for (let batch = await readBatch(store, user, search, range, size); ; ) {
    const isLast = !batch.more || text > maxText || performance.now() - startedAt > FUNCTION_PAGE_MS
    range = restOf(range, batch)
    size *= GROWTH
    const ahead = isLast ? null : readBatch(store, user, search, range, size)
    const [verdicts, next] = await Promise.all([predicate(docsOf(batch)), ahead])
    const { passed, used } = selectPassing(batch, verdicts, search.limit - rows.length)
    rows.push(...passed)
    text += passed.reduce((sum, { members }) => sum + members.length, 0)
    const isFull = rows.length >= search.limit || performance.now() - startedAt > LATE_MS
    if (next === null || isFull) return pageOf(rows, batch, used)
    batch = next
  }
}

function pageOf(rows: readonly Row[], { candidates, more, view }: Batch, used: number): FeedRows {
  const end = candidates[used - 1]?.parts.seq
  return { rows, view, more: more || used < candidates.length, ...(end !== undefined && { end }) }
}

async function readBatch(
  store: FeedReader,
  user: UserCtx,
  { options, limit }: FeedSearch,
  range: FeedRange,
  size: number,
): Promise<Batch> {
  const maxDocs = Math.min(size, MAX_DOCS, Math.max(MIN_DOCS, limit))
  const ancestry = options.style === 'all_docs' ? 'leaves' : 'winner'
  const readSet = { ...readSetOf(options), ...bodiesOf(options), branches: true, ancestry } as const
  const paging = { limit: maxDocs, chars: BATCH_TEXT, readSet }
  const page = await store.readChanges(range, paging, (doc) => candidateOf(doc, options))
  requireMember(user, page.view.security)
  const candidates = firstCandidates(page.rows, maxDocs)
  return { candidates, more: page.more || candidates.length < page.rows.length, view: page.view }
}

/** The first candidates, at least one, with at most as many revisions and characters as a batch may have. */
function firstCandidates(candidates: readonly Candidate[], maxDocs: number): readonly Candidate[] {
  let docs = 0
  let text = 0
  const last = candidates.findIndex((candidate) => {
    docs += candidate.docs.length
    text += candidate.parts.doc.length
    for (const { length } of candidate.docs) text += length
    return docs >= maxDocs || text > BATCH_TEXT
  })
  return last === -1 ? candidates : candidates.slice(0, last + 1)
}

function candidateOf(doc: DocState, options: ChangesOptions): Candidate {
  const hasBody = (rev: string) =>
    unlessDamaged(
      () => doc.body(rev) !== null,
      () => true,
    )
  const revs = listedRevs(doc, options).filter(hasBody)
  const docs = revs.map((rev) => visibleText(doc, rev, options))
  return { parts: readParts(doc, options), revs, docs }
}

/** A revision as functions see it, protocol.md 5.5: with its ancestors and, with `main_only`, its conflicts. */
function visibleText(doc: DocState, rev: string, { style }: ChangesOptions): string {
  const text = unlessDamaged(
    () => renderDocument(doc, rev, { conflicts: style === 'main_only' }),
    () => nameOnly(doc, rev),
  )
  const branch = findLeaf(doc.branches, parseRev(rev))
  if (branch === undefined) return text
  const revisions = { start: branch.pos, ids: branch.ids.slice(0, VISIBLE_ANCESTORS) }
  return `${text.slice(0, -1)},"_revisions":${JSON.stringify(revisions)}}`
}

function docsOf({ candidates }: Batch): readonly string[] {
  return candidates.flatMap(({ docs }) => docs)
}

/** The rest of a range after a batch. */
function restOf(range: FeedRange, { candidates }: Batch): FeedRange {
  const seq = candidates.at(-1)?.parts.seq
  if (seq === undefined) return range
  return range.descending ? { ...range, before: seq } : { ...range, since: seq }
}

/** The first rows of a batch with a passing revision. @returns also how many candidates were used for them */
function selectPassing(
  { candidates }: Batch,
  verdicts: readonly boolean[],
  maxRows: number,
): { passed: Row[]; used: number } {
  const passed: Row[] = []
  let used = 0
  let at = 0
  for (const { parts, revs } of candidates) {
    if (passed.length >= maxRows) break
    const passing = revs.filter((_rev, i) => verdicts[at + i])
    at += revs.length
    used += 1
    if (passing.length > 0) passed.push(makeRow(parts, passing))
  }
  return { passed, used }
}

/** Decides whether each document, given as JSON text, passes. Rejects with the errors of the sandbox. */
type FilterPredicate = (docs: readonly string[]) => Promise<readonly boolean[]>

/** The database whose design documents have the functions, and the sandbox that runs them. */
export interface FilterFunctionContext {
  readonly sandbox: Sandbox
  /** The name of the database. */
  readonly name: string
  readonly incarnation: number
}

interface Design {
  readonly rev: string
  /** The JSON text of the design document with its `_id` and `_rev`, as other functions have it. */
  readonly source: string
  readonly security: SecurityObject | null
}

/** The function of a filter, from its design document. */
interface FoundFunction extends Design {
  readonly path: readonly string[]
  /** The value at the path. */
  readonly value: unknown
}

/**
 * Finds the function of a filter. It is looked up for each page, so changes of the design document take effect.
 * @throws unauthorized, forbidden; not_found, deleted, with the texts of protocol.md 5.6; function_error
 */
export async function findFunction(
  store: FeedReader,
  user: UserCtx,
  filter: FunctionFilter,
): Promise<FoundFunction> {
  const design = await readDesign(store, user, filter.ddoc)
  const path = [filter.kind === 'view' ? 'views' : 'filters', filter.name]
  const members = JSON.parse(design.source) as Record<string, unknown>
  const value = valueOfKeys(members, path)
  requireJavascript(languageOf(members))
  return { ...design, path, value }
}

/** @param user the reader, whose name and roles filter functions see */
export function openPredicate(
  { rev, source, security, path }: FoundFunction,
  user: UserCtx,
  filter: FunctionFilter,
  { sandbox, name, incarnation }: FilterFunctionContext,
): FilterPredicate {
  const fn = { database: incarnation, ddoc: filter.ddoc, rev, source }
  if (filter.kind === 'view') {
    const map = { ...fn, path: [...path, 'map'] }
    return async (docs) => (docs.length === 0 ? [] : (await sandbox.map(map, docs)).map(hasEmitted))
  }
  const request = completeRequest(filter.request, name, user, security)
  return async (docs) => (docs.length === 0 ? [] : sandbox.filter({ ...fn, path }, docs, request))
}

async function readDesign(store: FeedReader, user: UserCtx, ddoc: string): Promise<Design> {
  const [design] = await store.readDocs(
    [ddoc],
    (doc, _id, { security }) => {
      requireMember(user, security)
      const body = doc?.body(doc.rev) ?? null
      if (doc === null || body === null) throw new CouchError('not_found')
      if (doc.deleted) throw new CouchError('deleted')
      const { rev } = doc
      return { rev, source: spliceDocument({ id: ddoc, rev, body }), security }
    },
    { body: true },
  )
  return design as Design
}

/** @throws not_found for the first missing key */
function valueOfKeys(members: Record<string, unknown>, path: readonly string[]): unknown {
  let value: unknown = members
  for (const key of path) {
    if (!isJsonObject(value)) {
      throw new CouchError('not_found', 'json_mismatch')
    }
    if (!Object.hasOwn(value, key)) throw new CouchError('not_found', `missing json key: ${key}`)
    value = value[key]
  }
  return value
}

function hasEmitted(emitted: string): boolean {
  return emitted !== '[]'
}
