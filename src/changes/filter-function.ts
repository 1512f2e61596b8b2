/**
 * `filter=ddoc/name` and `filter=_view`: the feed is read through in batches, and functions of design documents say in
 * the sandbox what passes. While they are at work on one batch the next is read, and no more than these two are held.
 */
import { scanBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { isHeldLong } from '../core/event-loop.ts'
import { isJsonObject } from '../core/json.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { languageOf, requireJavascript } from '../documents/design-docs.ts'
import { renderDocument } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { Sandbox } from '../sandbox/messages.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import { completeRequest } from './filters.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedRows,
  type FeedSearch,
  type FunctionFilter,
  listedRevs,
  makeRow,
  PAGE_TEXT,
  type Row,
  type RowParts,
  readParts,
  touchesOf,
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

/** Documents of a batch; a feed that wants fewer rows has smaller ones, down to the least. */
const MOST_DOCS = 400
const LEAST_DOCS = 100
/** Documents of a page's first batch, and how many times as many each batch has as the one before. */
const FIRST_DOCS = 10
const GROWTH = 4
/** Characters of a batch. */
const BATCH_TEXT = 1_000_000
/** Milliseconds after which a page reads no further batch, since the reader may have disconnected. */
const FUNCTION_PAGE_MS = 100
/** After so many it also gives up the one that is read: the function is slow, and a reader may wait for the position. */
const LATE_MS = 200
/** Ancestors of a revision that a function sees: CouchDB's default of `query_server_config/revs_limit`. */
const SEEN_ANCESTORS = 20

/**
 * One page of a filtered feed; it may have no rows, and yet an `end` behind what was looked through.
 * @throws what the predicate throws; unauthorized, forbidden, before a document is shown to a function
 */
export async function functionRows(
  store: DatabaseStore,
  user: UserCtx,
  search: FeedSearch,
  predicate: FilterPredicate,
): Promise<FeedRows> {
  const begun = performance.now()
  const rows: Row[] = []
  const mostText = scanBytes(PAGE_TEXT)
  let text = 0
  let range = search.range
  let size = FIRST_DOCS
  for (let batch = await readBatch(store, user, search, range, size); ; ) {
    const isLast = !batch.more || text > mostText || performance.now() - begun > FUNCTION_PAGE_MS
    range = behind(range, batch)
    size *= GROWTH
    const ahead = isLast ? null : readBatch(store, user, search, range, size)
    const [verdicts, next] = await Promise.all([predicate(docsOf(batch)), ahead])
    const { passed, used } = selectPassing(batch, verdicts, search.limit - rows.length)
    rows.push(...passed)
    text += passed.reduce((sum, { members }) => sum + members.length, 0)
    const isFull = rows.length >= search.limit || performance.now() - begun > LATE_MS
    if (next === null || isFull) return pageOf(rows, batch, used)
    batch = next
  }
}

function pageOf(rows: readonly Row[], { candidates, more, view }: Batch, used: number): FeedRows {
  const end = candidates[used - 1]?.parts.seq
  return { rows, view, more: more || used < candidates.length, ...(end !== undefined && { end }) }
}

async function readBatch(
  store: DatabaseStore,
  user: UserCtx,
  { options, limit }: FeedSearch,
  range: FeedRange,
  size: number,
): Promise<Batch> {
  const most = Math.min(size, MOST_DOCS, Math.max(LEAST_DOCS, limit))
  const touches = { ...touchesOf(options), body: true, branches: true }
  let docs = 0
  let text = 0
  let start: number | undefined
  const enough = () => docs >= most || text > BATCH_TEXT || isHeldLong(start ?? 0)
  const page = await store.readChanges(range, { limit: most, touches, enough }, (doc) => {
    start ??= performance.now()
    const candidate = candidateOf(doc, options)
    docs += candidate.docs.length
    text += candidate.parts.doc.length
    for (const { length } of candidate.docs) text += length
    return candidate
  })
  requireMember(user, page.view.security)
  return { candidates: page.rows, more: page.more, view: page.view }
}

function candidateOf(doc: DocState, options: ChangesOptions): Candidate {
  const revs = listedRevs(doc, options).filter((rev) => doc.body(rev) !== null)
  const docs = revs.map((rev) => seenText(doc, rev, options))
  return { parts: readParts(doc, options), revs, docs }
}

/** A revision as functions see it, protocol.md 5.5: with ancestors, and, where it stands for all, its conflicts. */
function seenText(doc: DocState, rev: string, { style }: ChangesOptions): string {
  const text = renderDocument(doc, rev, { conflicts: style === 'main_only' })
  const branch = findLeaf(doc.branches, parseRev(rev))
  if (branch === undefined) return text
  const revisions = { start: branch.pos, ids: branch.ids.slice(0, SEEN_ANCESTORS) }
  return `${text.slice(0, -1)},"_revisions":${JSON.stringify(revisions)}}`
}

function docsOf({ candidates }: Batch): readonly string[] {
  return candidates.flatMap(({ docs }) => docs)
}

/** What is left of a range behind a batch of it. */
function behind(range: FeedRange, { candidates }: Batch): FeedRange {
  const seq = candidates.at(-1)?.parts.seq
  if (seq === undefined) return range
  return range.descending ? { ...range, before: seq } : { ...range, since: seq }
}

/** The rows of a batch of which a revision passes, `most` at most; `used` is how many candidates it took. */
function selectPassing(
  { candidates }: Batch,
  verdicts: readonly boolean[],
  most: number,
): { passed: Row[]; used: number } {
  const passed: Row[] = []
  let used = 0
  let at = 0
  for (const { parts, revs } of candidates) {
    if (passed.length >= most) break
    const passing = revs.filter((_rev, i) => verdicts[at + i])
    at += revs.length
    used += 1
    if (passing.length > 0) passed.push(makeRow(parts, passing))
  }
  return { passed, used }
}

// What a function of a design document says of documents, for filters; protocol.md 5.5, 5.6.

/** Whether each document, given as JSON text, passes. Rejects as the sandbox does. */
type FilterPredicate = (docs: readonly string[]) => Promise<readonly boolean[]>

/** The database whose design documents hold the functions, and the sandbox that runs them. */
export interface FilterFunctionContext {
  readonly sandbox: Sandbox
  /** The database's name, and its incarnation. */
  readonly name: string
  readonly incarnation: number
}

interface Design {
  readonly rev: string
  /** JSON text of the design document's own members. */
  readonly source: string
  readonly security: SecurityObject | null
}

/** A function as its design document has it. */
interface FoundFunction extends Design {
  readonly path: readonly string[]
  /** What stands at the path. */
  readonly value: unknown
}

/**
 * Finds the function of a filter. It is looked up for every page, so that a change of its design document counts.
 * @throws unauthorized, forbidden; not_found, deleted, with the texts of protocol.md 5.6; function_error
 */
export async function findFunction(
  store: DatabaseStore,
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

/** @param user who asks: functions are told */
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

async function readDesign(store: DatabaseStore, user: UserCtx, ddoc: string): Promise<Design> {
  const [design] = await store.readDocs(
    [ddoc],
    (doc, _id, { security }) => {
      requireMember(user, security)
      const source = doc?.body(doc.rev) ?? null
      if (doc === null || source === null) throw new CouchError('not_found')
      if (doc.deleted) throw new CouchError('deleted')
      return { rev: doc.rev, source, security }
    },
    { body: true },
  )
  return design as Design
}

/** @throws not_found for the first key that is not there */
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
