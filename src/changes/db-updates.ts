/**
 * `_db_updates`, protocol.md 4.9: what happens to databases, as a feed. To the loop and the hub that serve
 * `_changes` it is one more database, which only server admins may read. A policy can show each account a view of its own.
 */
import { CouchError } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { ADMIN_ONLY, requireMember } from '../documents/security.ts'
import type { CatalogUpdate, CatalogUpdates, UpdatesRange } from '../storage/catalog.ts'
import { readSequence, sequenceToken } from '../storage/sequence.ts'
import type { FeedRequest } from './changes-feed.ts'
import { bytesOf, type FeedKind } from './changes-query.ts'
import type { ChangesPage, ChangesRequest } from './page.ts'
import { type Framing, PAGE_ROWS, PLAIN_CHANGES } from './rows.ts'
import type { FeedDatabase } from './source.ts'

/** Where updates come from; threads/databases.ts has it. */
interface UpdatesOrigin {
  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /** Calls `listener` when there may be further updates, until the returned function is called. */
  watchUpdates(listener: () => void): () => void
}

/** What of the updates somebody sees. */
export interface UpdatesView {
  /** That of no database, and of no other view. */
  readonly incarnation: number
  /** Who may see it. */
  readonly security: SecurityObject
  /**
   * The databases it tells of; null: all. Asked for with each page: what was noted before of one of them belongs to
   * the page, and so one that is being made is waited for.
   */
  readonly names: (() => Promise<readonly string[]>) | null
  /** A token as it is told: who sees a part only must not read from it how much else goes on. */
  encode(token: string): string
  /** The token that was told so; null: it is none of ours. */
  decode(told: string): string | null
}

/** All updates, for server admins. No database's incarnation is 0. */
const ALL_UPDATES: UpdatesView = {
  incarnation: 0,
  security: ADMIN_ONLY,
  names: null,
  encode: (token) => token,
  decode: (told) => told,
}

/** The updates as a feed's database. */
export function updatesDatabase(origin: UpdatesOrigin, view: UpdatesView = ALL_UPDATES): FeedDatabase {
  return {
    incarnation: view.incarnation,
    changes: (user, request) => updatesPage(origin, view, user, request),
    securityCopy: async () => view.security,
    watch: (listener) =>
      origin.watchUpdates(() => {
        origin.updates({ since: 0 }, 0).then(
          ({ lastSeq }) => listener({ type: 'committed', updateSeq: lastSeq }),
          // Its clients come back.
          () => listener({ type: 'gone' }),
        )
      }),
  }
}

async function updatesPage(
  origin: UpdatesOrigin,
  view: UpdatesView,
  user: UserCtx,
  { options, since, limit }: ChangesRequest,
): Promise<ChangesPage> {
  requireMember(user, view.security)
  const { range, unknownEpoch } = await locate(origin, view, since, options.descending)
  const wanted = Math.max(0, Math.min(limit, PAGE_ROWS))
  const { rows, lastSeq: newest, epochs, names } = await readUpdates(origin, view, range, wanted)
  const atTip = rows.length < wanted
  const empty = options.descending ? (range.before ?? newest) : range.since
  const lastSeq = atTip && !options.descending ? newest : (rows.at(-1)?.seq ?? empty)
  const token = (seq: number) => view.encode(sequenceToken(epochs, seq))
  return {
    bytes: bytesOf(frameUpdates(rows, token, options.framing)),
    rows: rows.length,
    lastSeq,
    lastToken: token(await newestSeen(origin, names, rows, lastSeq)),
    pending: null,
    atTip,
    state: token(await newestSeen(origin, names, [], newest)),
    security: view.security,
    unknownEpoch,
  }
}

/** Where not all is seen, nothing is read from beyond the moment in which the names were asked for. */
async function readUpdates(
  origin: UpdatesOrigin,
  view: UpdatesView,
  range: UpdatesRange,
  limit: number,
): Promise<CatalogUpdates & { readonly names: readonly string[] | null }> {
  if (view.names === null) return { ...(await origin.updates(range, limit)), names: null }
  const { lastSeq } = await origin.updates({ since: 0 }, 0)
  const names = await view.names()
  const before = Math.min(range.before ?? Infinity, lastSeq + 1)
  return { ...(await origin.updates({ ...range, before, names }, limit)), lastSeq, names }
}

/** Up to a number the newest row that is seen: what is behind it is not told of. */
async function newestSeen(
  origin: UpdatesOrigin,
  names: readonly string[] | null,
  rows: readonly CatalogUpdate[],
  upTo: number,
): Promise<number> {
  const last = rows.at(-1)
  if (names === null) return upTo
  if (last !== undefined) return last.seq
  const found = await origin.updates({ since: 0, descending: true, before: upTo + 1, names }, 1)
  return found.rows[0]?.seq ?? 0
}

/** As for `_changes`: a number continues a page, and a token is ignored with `descending`. */
async function locate(
  origin: UpdatesOrigin,
  view: UpdatesView,
  since: ChangesRequest['since'],
  descending: boolean,
): Promise<{ range: UpdatesRange; unknownEpoch: boolean }> {
  if (descending) {
    const before = typeof since === 'number' ? { before: since } : {}
    return { range: { since: 0, descending, ...before }, unknownEpoch: false }
  }
  if (typeof since === 'number') return { range: { since }, unknownEpoch: false }
  const { lastSeq, epochs } = await origin.updates({ since: 0 }, 0)
  if (since === 'now') return { range: { since: lastSeq }, unknownEpoch: false }
  // What is no token at all is refused either way.
  const { seq, unknownEpoch } = readSequence(epochs, lastSeq, view.decode(since) ?? since)
  if (view.decode(since) === null) return { range: { since: 0 }, unknownEpoch: since !== '0' }
  return { range: { since: seq }, unknownEpoch }
}

function frameUpdates(
  rows: readonly CatalogUpdate[],
  tokenOf: (seq: number) => string,
  framing: Framing,
): string {
  const framed = rows.map(({ seq, name, type }) => {
    const token = tokenOf(seq)
    const json = JSON.stringify({ db_name: name, type, seq: token })
    if (framing === 'json') return json
    return framing === 'lines' ? `${json}\n` : `data: ${json}\nid: "${token}"\n\n`
  })
  return framed.join(framing === 'json' ? ',\r\n' : '')
}

const KINDS: readonly FeedKind[] = ['normal', 'continuous', 'longpoll', 'eventsource']
/** The interval of `heartbeat=true`, and the default timeout, before the server limits them. */
const DEFAULT_WAIT = 60_000

/**
 * Reads the parameters of `_db_updates`. Unlike those of `_changes` their names count as they are written.
 * @param maxWait `chttpd/changes_timeout` in milliseconds: caps heartbeat and timeout
 * @param lastEventId the header Last-Event-ID, which wins over `since` where the feed is an eventsource
 * @throws bad_request with CouchDB's texts (global_changes_httpd.erl)
 */
export function readUpdatesQuery(
  query: Readonly<Record<string, string>>,
  maxWait: number,
  lastEventId?: string,
): FeedRequest {
  const kind = KINDS.find((each) => each === (query.feed ?? 'normal'))
  if (kind === undefined) {
    throw new CouchError('bad_request', 'Supported `feed` types: normal, continuous, longpoll, eventsource')
  }
  const since = (kind === 'eventsource' ? lastEventId : undefined) ?? query.since ?? '0'
  return {
    kind,
    options: { ...PLAIN_CHANGES, descending: query.descending === 'true' },
    since: since.replace(/^"(.*)"$/, '$1'),
    limit: countOf(query.limit) ?? Infinity,
    heartbeat: heartbeatOf(query.heartbeat, maxWait),
    timeout: Math.min(countOf(query.timeout) ?? DEFAULT_WAIT, maxWait),
  }
}

function heartbeatOf(text: string | undefined, maxWait: number): number | null {
  if (text === undefined || text === 'false') return null
  const value = text === 'true' ? DEFAULT_WAIT : countOf(text)
  // CouchDB takes 0 and sends as fast as it can.
  if (value === undefined || value === 0) throw new CouchError('bad_request', 'invalid_integer')
  return Math.min(value, maxWait)
}

function countOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\+?\d+$/.test(text)) throw new CouchError('bad_request', 'invalid_integer')
  return Number(text)
}
