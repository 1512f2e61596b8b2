/** One page of `_changes` as bytes; protocol.md 5. */
import { scanBytes } from '../core/bytes.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { Body } from '../documents/database.ts'
import { requireMember } from '../documents/security.ts'
import { LostUpdates } from '../storage/checkpoints.ts'
import type { StoreView } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import type { FilterBody } from './filters.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedReader,
  type FeedRows,
  type FeedSearch,
  firstRows,
  frameRows,
  PAGE_ROWS,
  PAGE_TEXT,
  readRow,
  readSetOf,
} from './rows.ts'
import { readSince } from './since.ts'

/** The start of a page: a token of the client, `now`, or the sequence number at which the previous page ended. */
export type Since = string | number

export interface ChangesRequest {
  readonly options: ChangesOptions
  readonly since: Since
  /** How many rows the feed still needs; Infinity for no limit. */
  readonly limit: number
}

export interface ChangesPage {
  /** The framed rows; empty without rows. `json` rows have separators between them, but none before the first. */
  readonly bytes: Uint8Array
  readonly rows: number
  /** Where the next page begins; with `descending`, the sequence number of the last row. */
  readonly lastSeq: number
  /** `lastSeq` as a token, for `last_seq`. */
  readonly lastToken: string
  /** The number of rows after `lastSeq`, before filtering; null if the feed does not count them. */
  readonly pending: number | null
  /** Whether the page reaches the end of the feed, so no other page follows before the next write. */
  readonly atTip: boolean
  /** Changes whenever the content of the feed changes, for ETags. */
  readonly state: string
  /** The security object when the page was made. A user who shares the page must also be a member. */
  readonly security: SecurityObject | null
  /** Whether the token is neither of this database nor older than a remembered one, so the feed starts from 0. */
  readonly unknownEpoch: boolean
}

export interface ChangesSource {
  /**
   * @throws bad_request for a malformed token; unauthorized, forbidden; invalid_filter; the errors of filter functions
   */
  changes(user: UserCtx, request: ChangesRequest): Promise<ChangesPage>
  /**
   * Reads the members of a POST body that filters use.
   * @throws invalid_json, body_not_object, too_large, invalid_filter
   */
  readFilterBody(user: UserCtx, body: Body, withText: boolean): Promise<FilterBody>
}

/** Makes one page of a feed that shows each document, without contents of attachments. @throws as {@link pageOf} */
export function plainPage(store: FeedReader, user: UserCtx, request: ChangesRequest): Promise<ChangesPage> {
  return pageOf(store, user, request, async () => (search) => scanRows(store, search))
}

/**
 * Makes one page of a feed. The rights of the caller are checked in the same snapshot from which the rows are read.
 * @param request a number as `since` continues the previous page: upwards, or downwards with `descending`. A token is
 *   ignored with `descending` (protocol.md 5.1)
 * @param open returns the function that finds the rows
 * @throws unauthorized, forbidden; bad_request for a malformed token; LostUpdates for a token that proves that updates are
 *   lost; what `open` and its function throw
 */
export async function pageOf(
  store: FeedReader,
  user: UserCtx,
  request: ChangesRequest,
  open: () => Promise<FindRows>,
): Promise<ChangesPage> {
  const { range, unknownEpoch } = await locate(store, user, request)
  const { options, limit } = request
  const find = await open()
  const found =
    limit <= 0 ? { rows: [], more: true, view: await store.view() } : await find({ options, limit, range })
  requireMember(user, found.view.security)
  const bytes = frameRows(found, options, limit)
  return { ...(await position(store, range, found, request)), bytes, unknownEpoch }
}

/** Finds the rows of a page. */
export type FindRows = (search: FeedSearch) => Promise<FeedRows>

/** Turns `since` into a range of the feed. A token is read only after the user is known to be a member. */
async function locate(
  store: FeedReader,
  user: UserCtx,
  { since, options: { descending } }: ChangesRequest,
): Promise<{ range: FeedRange; unknownEpoch: boolean }> {
  if (typeof since === 'number') {
    const range = descending ? { since: 0, descending, before: since } : { since, descending }
    return { range, unknownEpoch: false }
  }
  const view = await store.view()
  requireMember(user, view.security)
  if (descending) return { range: { since: 0, descending }, unknownEpoch: false }
  if (since === 'now') return { range: { since: view.updateSeq, descending }, unknownEpoch: false }
  const { seq, unknownEpoch, isLost } = await readSince(store, view, since)
  if (isLost) throw new LostUpdates()
  return { range: { since: seq, descending }, unknownEpoch }
}

/** The rows of all documents of the range, up to the length of a page. */
export async function scanRows(store: FeedReader, { options, limit, range }: FeedSearch): Promise<FeedRows> {
  const chars = scanBytes(PAGE_TEXT)
  const paging = { limit: Math.min(limit, PAGE_ROWS), chars, readSet: readSetOf(options) }
  const page = await store.readChanges(range, paging, (doc) => readRow(doc, options))
  // Only rows with many leaves are much longer than their bodies.
  const rows = firstRows(page.rows, 2 * chars)
  return rows === page.rows ? page : { ...page, rows, more: true }
}

/** Where the page ended and how many rows follow: protocol.md 5.3. */
async function position(
  store: FeedReader,
  range: FeedRange,
  found: FeedRows,
  { limit }: ChangesRequest,
): Promise<Omit<ChangesPage, 'bytes' | 'unknownEpoch'>> {
  const { rows, view } = found
  const lastSeq = limit <= 0 ? emptyEnd(range, view) : endOf(range, found)
  const pending = found.more ? await countAfter(store, range, lastSeq, limit) : 0
  return {
    rows: rows.length,
    lastSeq,
    lastToken: sequenceToken(view.epochs, lastSeq),
    pending,
    atTip: !found.more || pending === 0,
    state: `${sequenceToken(view.epochs, view.updateSeq)}.${view.docCount}.${view.deletedCount}`,
    security: view.security,
  }
}

function emptyEnd(range: FeedRange, view: StoreView): number {
  return range.descending ? (range.before ?? view.updateSeq) : range.since
}

function endOf(range: FeedRange, { rows, more, view, end }: FeedRows): number {
  const last = end ?? rows.at(-1)?.seq
  if (range.descending) return last ?? emptyEnd(range, view)
  return more ? (last ?? range.since) : Math.max(view.updateSeq, last ?? 0)
}

async function countAfter(
  store: FeedReader,
  range: FeedRange,
  lastSeq: number,
  limit: number,
): Promise<number> {
  if (!range.descending) return store.countChanges(lastSeq)
  const firstSent = limit <= 0 && range.before === undefined ? Infinity : lastSeq
  const [all, sent] = await Promise.all([
    store.countChanges(0),
    firstSent === Infinity ? 0 : store.countChanges(firstSent - 1),
  ])
  return Math.max(0, all - sent)
}
