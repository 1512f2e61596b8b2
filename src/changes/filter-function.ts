/**
 * `filter=ddoc/name` and `filter=_view`: the feed is read through in batches, and functions of design documents say in
 * the sandbox what passes. While they are at work on one batch the next is read, and no more than these two are held.
 */

import { isHeldLong } from '../core/breath.ts'
import { scanBytes } from '../core/outgoing.ts'
import type { UserCtx } from '../core/types.ts'
import { renderDocument } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import type { Judge } from './filter-judge.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedRows,
  type FeedSearch,
  listedRevs,
  makeRow,
  PAGE_TEXT,
  type Row,
  type RowParts,
  readParts,
  touchesOf,
} from './rows.ts'

/** A document that may pass. */
interface Candidate {
  readonly parts: RowParts
  /** Its revisions that are judged. */
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
/** A page reads no further batch after so many milliseconds: its reader may have gone. */
const FUNCTION_PAGE_MS = 100
/** After so many it also gives up the one that is read: the function is slow, and a reader may wait for the position. */
const LATE_MS = 200
/** Ancestors of a revision that a function sees: CouchDB's default of `query_server_config/revs_limit`. */
const SEEN_ANCESTORS = 20

/**
 * One page of a filtered feed; it may have no rows, and yet an `end` behind what was looked through.
 * @throws as the judge does; unauthorized, forbidden, before a document is shown to a function
 */
export async function functionRows(
  store: DatabaseStore,
  user: UserCtx,
  search: FeedSearch,
  judge: Judge,
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
    const [verdicts, next] = await Promise.all([judge(docsOf(batch)), ahead])
    const { passed, used } = sift(batch, verdicts, search.limit - rows.length)
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
function sift(
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
