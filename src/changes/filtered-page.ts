/** The pages of `_changes` that a database's thread makes: of all documents, listed ones, or those that a filter lets pass. */
import { scanBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { requireMember } from '../documents/security.ts'
import { type FilterFunctionContext, findFunction, functionRows, openPredicate } from './filter-function.ts'
import { openFilter, openPlain, scanFiltered } from './filter-scan.ts'
import { type ChangesPage, type ChangesRequest, type FindRows, pageOf, scanRows } from './page.ts'
import { fillRows } from './row-contents.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedReader,
  type FeedRows,
  type FeedSearch,
  PAGE_TEXT,
  type Row,
  readRow,
  readSetOf,
  runsFunction,
} from './rows.ts'

/**
 * Makes one page of a feed.
 * @param context null if functions of design documents are not allowed
 * @throws as {@link pageOf}; for filters invalid_filter, not_found, deleted, hosted_function and the errors of the sandbox
 */
export function changesPage(
  store: FeedReader,
  user: UserCtx,
  request: ChangesRequest,
  context: FilterFunctionContext | null,
): Promise<ChangesPage> {
  const { options } = request
  return pageOf(store, user, request, async () => {
    const find = await finderOf(store, user, options, context)
    if (!options.includeDocs || !options.attachments) return find
    return async (search) => {
      const found = await find(search)
      requireMember(user, found.view.security)
      return fillRows(store, found, options)
    }
  })
}

/**
 * Returns the function that finds the rows of a page. An invalid filter is refused here, even if no rows are requested.
 */
async function finderOf(
  store: FeedReader,
  user: UserCtx,
  { docIds, filter }: ChangesOptions,
  context: FilterFunctionContext | null,
): Promise<FindRows> {
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

async function refuseFunction(store: FeedReader, user: UserCtx): Promise<never> {
  requireMember(user, (await store.view()).security)
  throw new CouchError('hosted_function')
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
async function docIdRows(store: FeedReader, user: UserCtx, search: FeedSearch): Promise<FeedRows> {
  const view = await store.view()
  requireMember(user, view.security)
  const places = await findPlaces(store, search, view.updateSeq)
  const { rows, used } = await readPlaces(store, user, search, places)
  const end = places[used - 1]?.seq
  return { rows, view, more: used < places.length, ...(end === undefined ? {} : { end }) }
}

/** The positions of the listed documents within the range, in the order of the feed. */
async function findPlaces(store: FeedReader, { options, range }: FeedSearch, tip: number): Promise<Place[]> {
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
async function isShort(store: FeedReader, { since, descending }: FeedRange, ids: number): Promise<boolean> {
  return !descending && (await store.countChanges(since)) <= Math.min(ids, LOOKUPS_PER_TURN / 2)
}

async function placesInFeed(
  store: FeedReader,
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

async function placesOf(store: FeedReader, ids: readonly string[]): Promise<Place[]> {
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
  store: FeedReader,
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
  store: FeedReader,
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
    readSetOf(options),
  )
}
