/** One page of `_changes` as bytes, made on the thread that owns the database; protocol.md 5. */
import { scanBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { Body } from '../documents/database.ts'
import { requireMember } from '../documents/security.ts'
import { LostUpdates } from '../storage/checkpoints.ts'
import type { DatabaseStore, StoreView } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import { type FilterFunctionContext, findFunction, functionRows, openPredicate } from './filter-function.ts'
import { openFilter, openPlain, scanFiltered } from './filter-scan.ts'
import type { FilterBody } from './filters.ts'
import { fillRows } from './row-contents.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedRows,
  type FeedSearch,
  firstRows,
  frameRows,
  PAGE_ROWS,
  PAGE_TEXT,
  type Row,
  readRow,
  runsFunction,
  touchesOf,
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

/**
 * Makes one page of a feed. The rights of the caller are checked in the same snapshot from which the rows are read.
 *
 * @param request a number as `since` continues the previous page: upwards, or downwards with `descending`. A token is
 *   ignored with `descending` (protocol.md 5.1)
 * @param context null if functions of design documents are not allowed
 * @throws unauthorized, forbidden; bad_request for a malformed token; for filters invalid_filter, not_found, deleted,
 *   hosted_function and the errors of the sandbox; LostUpdates for a token that proves that updates are lost
 */
export async function changesPage(
  store: DatabaseStore,
  user: UserCtx,
  request: ChangesRequest,
  context: FilterFunctionContext | null,
): Promise<ChangesPage> {
  const { range, unknownEpoch } = await locate(store, user, request)
  const { options, limit } = request
  const find = await finderOf(store, user, options, context)
  const found =
    limit <= 0 ? { rows: [], more: true, view: await store.view() } : await find({ options, limit, range })
  requireMember(user, found.view.security)
  const whole = options.includeDocs && options.attachments ? await fillRows(store, found, options) : found
  const bytes = frameRows(whole, options, limit)
  return { ...(await position(store, range, whole, request)), bytes, unknownEpoch }
}

/** Turns `since` into a range of the feed. A token is read only after the user is known to be a member. */
async function locate(
  store: DatabaseStore,
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

/**
 * Returns the function that finds the rows of a page. An invalid filter is refused here, even if no rows are requested.
 */
async function finderOf(
  store: DatabaseStore,
  user: UserCtx,
  { docIds, filter }: ChangesOptions,
  context: FilterFunctionContext | null,
): Promise<(search: FeedSearch) => Promise<FeedRows>> {
  if (docIds !== undefined) return (search) => docIdRows(store, user, search)
  if (filter === undefined) return (search) => scanRows(store, search)
  if (runsFunction(filter)) {
    if (context === null) return refuseFunction(store, user)
    const found = await findFunction(store, user, filter)
    const plain = filter.kind === 'function' ? openPlain(found.value) : null
    if (plain !== null) return (search) => scanFiltered(store, search, plain)
    const predicate = openPredicate(found, user, filter, context)
    return (search) => functionRows(store, user, search, predicate)
  }
  const filterFactory = openFilter(filter)
  return (search) => scanFiltered(store, search, filterFactory)
}

async function refuseFunction(store: DatabaseStore, user: UserCtx): Promise<never> {
  requireMember(user, (await store.view()).security)
  throw new CouchError('hosted_function')
}

async function scanRows(store: DatabaseStore, { options, limit, range }: FeedSearch): Promise<FeedRows> {
  const chars = scanBytes(PAGE_TEXT)
  const paging = { limit: Math.min(limit, PAGE_ROWS), chars, touches: touchesOf(options) }
  const page = await store.readChanges(range, paging, (doc) => readRow(doc, options))
  // Only rows with many leaves are much longer than their bodies.
  const rows = firstRows(page.rows, 2 * chars)
  return rows === page.rows ? page : { ...page, rows, more: true }
}

/** Where the page ended and how many rows follow: protocol.md 5.3. */
async function position(
  store: DatabaseStore,
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
  store: DatabaseStore,
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

/** The position of a document in the feed. */
interface Place {
  readonly id: string
  readonly seq: number
}

/** How many positions are looked up, or rows with bodies read, in one turn of the database thread. */
const LOOKUPS_PER_TURN = 500
const BODIES_PER_TURN = 20
/**
 * The maximum number of rows in such a page. Each page looks up the whole list, so these pages are longer than others.
 */
const MAX_LISTED_ROWS = 5000

/**
 * The rows of listed documents (`filter=_doc_ids`), in the order of the feed. The documents are looked up, so the feed
 * is not scanned. A document that is written in the meantime is left for the next page.
 * @throws unauthorized, forbidden
 */
async function docIdRows(store: DatabaseStore, user: UserCtx, search: FeedSearch): Promise<FeedRows> {
  const view = await store.view()
  requireMember(user, view.security)
  const places = await findPlaces(store, search, view.updateSeq)
  const { rows, used } = await readPlaces(store, user, search, places)
  const end = places[used - 1]?.seq
  return { rows, view, more: used < places.length, ...(end === undefined ? {} : { end }) }
}

/** The positions of the listed documents within the range, in the order of the feed. */
async function findPlaces(
  store: DatabaseStore,
  { options, range }: FeedSearch,
  tip: number,
): Promise<Place[]> {
  const ids = [...new Set(options.docIds)]
  const places = await ((await isShort(store, range, ids.length))
    ? placesInFeed(store, range, new Set(ids))
    : placesOf(store, ids))
  const { since, before = Infinity } = range
  return places
    .filter(({ seq }) => seq > since && seq < before && seq <= tip)
    .sort((a, b) => (range.descending ? b.seq - a.seq : a.seq - b.seq))
}

/** Whether the range is shorter than the list, as it usually is when a feed wakes up. */
async function isShort(
  store: DatabaseStore,
  { since, descending }: FeedRange,
  ids: number,
): Promise<boolean> {
  return !descending && (await store.countChanges(since)) <= Math.min(ids, LOOKUPS_PER_TURN / 2)
}

async function placesInFeed(
  store: DatabaseStore,
  range: FeedRange,
  requested: ReadonlySet<string>,
): Promise<Place[]> {
  const places: Place[] = []
  for (let from = range.since, more = true; more; ) {
    const paging = { limit: LOOKUPS_PER_TURN }
    const page = await store.readChanges({ ...range, since: from }, paging, ({ id, seq }) => ({ id, seq }))
    for (const place of page.rows) if (requested.has(place.id)) places.push(place)
    from = page.rows.at(-1)?.seq ?? from
    more = page.more
  }
  return places
}

async function placesOf(store: DatabaseStore, ids: readonly string[]): Promise<Place[]> {
  const places: Place[] = []
  for (let at = 0; at < ids.length; at += LOOKUPS_PER_TURN) {
    const found = await store.readDocs(ids.slice(at, at + LOOKUPS_PER_TURN), placeOf)
    for (const place of found) if (place !== null) places.push(place)
  }
  return places
}

function placeOf(doc: Place | null): Place | null {
  return doc && { id: doc.id, seq: doc.seq }
}

/** Reads rows from the first position on until the page is full. @returns the rows, and how many positions they used */
async function readPlaces(
  store: DatabaseStore,
  user: UserCtx,
  { options, limit }: FeedSearch,
  places: readonly Place[],
): Promise<{ rows: Row[]; used: number }> {
  const rows: Row[] = []
  const maxRows = Math.min(limit, MAX_LISTED_ROWS)
  const maxText = scanBytes(PAGE_TEXT)
  let text = 0
  let used = 0
  while (used < places.length && rows.length < maxRows && text <= maxText) {
    const turn = options.includeDocs ? BODIES_PER_TURN : LOOKUPS_PER_TURN
    const part = places.slice(used, used + Math.min(turn, maxRows - rows.length))
    used += part.length
    for (const row of await readPart(store, user, options, part)) {
      if (row === null) continue
      rows.push(row)
      text += row.members.length
    }
  }
  return { rows, used }
}

function readPart(
  store: DatabaseStore,
  user: UserCtx,
  options: ChangesOptions,
  part: readonly Place[],
): Promise<(Row | null)[]> {
  const seqs = new Map(part.map(({ id, seq }) => [id, seq]))
  return store.readDocs(
    part.map(({ id }) => id),
    (doc, id, view) => {
      requireMember(user, view.security)
      return doc?.seq === seqs.get(id) ? readRow(doc as NonNullable<typeof doc>, options) : null
    },
    touchesOf(options),
  )
}
