/** `filter=_doc_ids`: the documents are looked up, and the feed is never read through for them. */
import { scanBytes } from '../core/outgoing.ts'
import type { UserCtx } from '../core/types.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import {
  type ChangesOptions,
  type FeedRange,
  type FeedRows,
  type FeedSearch,
  PAGE_TEXT,
  type Row,
  readRow,
  touchesOf,
} from './rows.ts'

interface Place {
  readonly id: string
  readonly seq: number
}

/** Places looked up, and rows read, in one turn of the database's thread. */
const LOOKUPS_A_TURN = 500
const BODIES_A_TURN = 20
/** Every page looks the whole list up, so these pages are longer than those of the whole feed. */
const MOST_ROWS = 5000

/**
 * The rows of listed documents, in the feed's order. A document that moves up the feed between two turns is left
 * to the next page: the rows are those of the view with which the search began.
 * @throws unauthorized, forbidden
 */
export async function docIdRows(store: DatabaseStore, user: UserCtx, search: FeedSearch): Promise<FeedRows> {
  const view = await store.view()
  requireMember(user, view.security)
  const places = await findPlaces(store, search, view.updateSeq)
  const { rows, used } = await readPlaces(store, user, search, places)
  const end = places[used - 1]?.seq
  return { rows, view, more: used < places.length, ...(end === undefined ? {} : { end }) }
}

/** Where the listed documents stand within the range, in the order asked for. */
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

/** Whether the range itself is shorter than the list, as it is for a feed that was just woken. */
async function isShort(
  store: DatabaseStore,
  { since, descending }: FeedRange,
  ids: number,
): Promise<boolean> {
  return !descending && (await store.countChanges(since)) <= Math.min(ids, LOOKUPS_A_TURN / 2)
}

async function placesInFeed(
  store: DatabaseStore,
  range: FeedRange,
  wanted: ReadonlySet<string>,
): Promise<Place[]> {
  const places: Place[] = []
  for (let from = range.since, more = true; more; ) {
    const paging = { limit: LOOKUPS_A_TURN }
    const page = await store.readChanges({ ...range, since: from }, paging, ({ id, seq }) => ({ id, seq }))
    for (const place of page.rows) if (wanted.has(place.id)) places.push(place)
    from = page.rows.at(-1)?.seq ?? from
    more = page.more
  }
  return places
}

async function placesOf(store: DatabaseStore, ids: readonly string[]): Promise<Place[]> {
  const places: Place[] = []
  for (let at = 0; at < ids.length; at += LOOKUPS_A_TURN) {
    const found = await store.readDocs(ids.slice(at, at + LOOKUPS_A_TURN), placeOf)
    for (const place of found) if (place !== null) places.push(place)
  }
  return places
}

function placeOf(doc: Place | null): Place | null {
  return doc && { id: doc.id, seq: doc.seq }
}

/** Reads rows from the first place on until the page is full; `used` is how many places it took. */
async function readPlaces(
  store: DatabaseStore,
  user: UserCtx,
  { options, limit }: FeedSearch,
  places: readonly Place[],
): Promise<{ rows: Row[]; used: number }> {
  const rows: Row[] = []
  const most = Math.min(limit, MOST_ROWS)
  const mostText = scanBytes(PAGE_TEXT)
  let text = 0
  let used = 0
  while (used < places.length && rows.length < most && text <= mostText) {
    const turn = options.includeDocs ? BODIES_A_TURN : LOOKUPS_A_TURN
    const part = places.slice(used, used + Math.min(turn, most - rows.length))
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
