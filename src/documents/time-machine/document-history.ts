/** Reads the history of documents: the versions of one, and recent overwrites in all; docs/settee-api.md. */
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import type { UserCtx } from '../../core/types.ts'
import { formatRev, parseRev } from '../../revisions/rev.ts'
import type {
  DocHistory,
  HistoryReadSet,
  StoredVersion,
  StoreHorizon,
  VersionedStore,
  VersionRange,
} from '../../storage/history-store.ts'
import { inBytes } from '../open.ts'
import { filledPieces, pieceChunks } from '../pieces.ts'
import { renderInTexts } from '../render.ts'
import { requireDatabaseAdmin } from '../security.ts'
import { readContent } from '../stored-content.ts'
import { versionsAt, winnerAsOf } from './rewind-plan.ts'
import type { HistoryPage, OverwrittenQuery, VersionChoice } from './time-machine-calls.ts'

/** Maximum number of documents that one request examines. Then it answers with its results so far and a bookmark. */
const MAX_EXAMINED = 20_000
/** Bodies are not read: `chars` is there so that the time also ends a page ({@link Paging.chars}). */
const PAGE = { limit: 200, chars: 1024 }
/** Versions examined of one document of the list, and versions shown with it. */
const MAX_VERSIONS = 1000
const SHOWN_VERSIONS = 10
/** A clock may have been set back by this time without hiding versions in the order of the feed. */
const CLOCK_SLACK_MS = 24 * 60 * 60 * 1000

const BOOKMARK = /^\d{1,15}$/

/** The JSON of {@link TimeMachine.history}. */
export async function documentHistory(
  store: VersionedStore,
  user: UserCtx,
  id: string,
  { limit, bookmark }: HistoryPage,
): Promise<Uint8Array> {
  const before = placeOf(bookmark)
  const { whole } = await store.history.horizon()
  const range = { ...(before !== null && { before }), limit: limit + 1 }
  const [found] = await store.history.readDocs(
    [id],
    (doc, _id, view) => {
      requireDatabaseAdmin(user, view.security)
      if (doc === null) throw new CouchError('not_found')
      const versions = doc.versions(range)
      return { rev: doc.rev, deleted: doc.deleted, versions: versions.map((each) => ({ ...each })) }
    },
    { versions: range },
  )
  const { rev, deleted, versions } = found as NonNullable<typeof found>
  const shown = versions.slice(0, limit)
  const last = versions.length > limit ? shown.at(-1) : undefined
  return json({
    id,
    rev,
    deleted,
    versions: shown.map(versionFacts),
    bookmark: last === undefined ? null : String(last.place),
    known_since: timeText(whole),
  })
}

function placeOf(bookmark: string | undefined): number | null {
  if (bookmark === undefined) return null
  if (!BOOKMARK.test(bookmark)) throw new CouchError('bad_request', 'The bookmark is invalid.')
  return Number(bookmark)
}

function json(value: object): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}

function versionFacts({
  rev,
  deleted,
  storedAt,
  supersededAt,
  isRetained: kept,
  size,
  attachments,
}: StoredVersion) {
  return {
    rev,
    deleted,
    stored_at: timeText(storedAt),
    superseded_at: timeText(supersededAt),
    compacted: kept,
    size,
    attachments,
  }
}

function timeText(time: number | null): string | null {
  return time === null || time === 0 ? null : new Date(time).toISOString()
}

interface Examined {
  readonly seq: number
  readonly row: object | null
  /** Older than the requested time, as are all documents below it in the feed. */
  readonly isTooOld: boolean
}

/** The JSON of {@link TimeMachine.overwritten}. */
export async function overwritten(
  store: VersionedStore,
  user: UserCtx,
  query: OverwrittenQuery,
): Promise<Uint8Array> {
  const { limit, bookmark, since } = query
  const { whole } = await store.history.horizon()
  const rows: object[] = []
  const yielder = new Yielder()
  let before = placeOf(bookmark) ?? Number.MAX_SAFE_INTEGER
  let more = true
  for (let count = 0; more && rows.length < limit && count < MAX_EXAMINED; ) {
    const readSet = { versions: rangeOf(query) }
    const page = await store.history.readNewest(before, { ...PAGE, readSet }, (doc, view): Examined => {
      requireDatabaseAdmin(user, view.security)
      return examine(doc, query)
    })
    requireDatabaseAdmin(user, page.view.security)
    const examined = upToRows(page.rows, limit - rows.length)
    rows.push(...examined.flatMap(({ row }) => row ?? []))
    count += examined.length
    before = examined.at(-1)?.seq ?? before
    const isEnd = since !== undefined && examined.some(({ isTooOld }) => isTooOld)
    more = !isEnd && (page.more || examined.length < page.rows.length)
    await yielder.yieldIfDue()
  }
  return json({ rows, bookmark: more ? String(before) : null, known_since: timeText(whole) })
}

/** The first documents, up to the one with which they have so many rows. */
function upToRows(examined: readonly Examined[], limit: number): readonly Examined[] {
  let left = limit
  const last = examined.findIndex(({ row }) => row !== null && --left === 0)
  return last === -1 ? examined : examined.slice(0, last + 1)
}

function rangeOf({ since = 0 }: OverwrittenQuery): VersionRange {
  return { leavesAfter: since - 1, limit: MAX_VERSIONS }
}

function examine(doc: DocHistory, query: OverwrittenQuery): Examined {
  const { since = 0, until = Number.MAX_SAFE_INTEGER, deleted: wantsDeleted = false } = query
  const { id, seq, rev, deleted } = doc
  if (wantsDeleted && !deleted) return { seq, row: null, isTooOld: false }
  const versions = doc.versions(rangeOf(query))
  const overwrites = versions.filter(({ supersededAt }) => supersededAt !== null && supersededAt <= until)
  const [newest] = overwrites
  const last = Math.max(0, ...versions.map(({ storedAt, supersededAt }) => supersededAt ?? storedAt ?? 0))
  const isTooOld = last < since - CLOCK_SLACK_MS
  if (newest === undefined) return { seq, row: null, isTooOld }
  const row = {
    id,
    rev,
    deleted,
    at: timeText(newest.supersededAt),
    overwritten: overwrites.length,
    versions: overwrites.slice(0, SHOWN_VERSIONS).map(versionFacts),
  }
  return { seq, row, isTooOld }
}

/** The JSON of {@link TimeMachine.version}, in chunks. */
export async function* readVersion(
  store: VersionedStore,
  user: UserCtx,
  id: string,
  choice: VersionChoice,
  { attachments, now }: { readonly attachments: boolean; readonly now: number },
): AsyncGenerator<Uint8Array> {
  const horizon = await store.history.horizon()
  if ('at' in choice && choice.at > now) throw new CouchError('bad_request', 'The time is in the future.')
  const readSet: HistoryReadSet =
    'rev' in choice
      ? { revs: [nameOf(choice.rev)] }
      : { body: true, branches: true, ancestry: 'leaves', versions: versionsAt(choice.at, horizon) }
  const [opened] = await store.history.readDocs(
    [id],
    (doc, _id, view) => {
      requireDatabaseAdmin(user, view.security)
      if (doc === null) throw new CouchError('not_found')
      return inBytes(null, renderInTexts(doc, chosenRev(doc, choice, horizon), 'data', { attachments }))
    },
    readSet,
  )
  if (opened === undefined) return
  yield* pieceChunks(filledPieces(opened), (content, start, end) => readContent(store, content, start, end))
}

/** @throws invalid_rev */
function nameOf(rev: string): string {
  const { pos, id } = parseRev(rev)
  return formatRev(pos, id)
}

function chosenRev(doc: DocHistory, choice: VersionChoice, horizon: StoreHorizon): string {
  if ('rev' in choice) return nameOf(choice.rev)
  const then = winnerAsOf(doc, choice.at, horizon)
  if (then.kind === 'version') return then.version.rev
  throw new CouchError(
    'not_found',
    then.kind === 'absent'
      ? 'The document did not exist at that time.'
      : 'The version of that time is no longer stored.',
  )
}
