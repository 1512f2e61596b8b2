/**
 * `_db_updates`, protocol.md 4.9: a feed of the databases that are created, updated and deleted. {@link
 * updatesDatabase} presents it as a database that only server admins may read, so the feed loop and the hub of
 * `_changes` also serve it. A policy can give each account its own view.
 */
import { CouchError } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { ADMIN_ONLY, requireMember } from '../documents/security.ts'
import type { CatalogUpdate, CatalogUpdates, UpdatesRange } from '../storage/catalog.ts'
import { readSequence, sequenceTokens } from '../storage/sequence.ts'
import type { FeedRequest } from './changes-feed.ts'
import { bytesOf, type FeedKind } from './changes-query.ts'
import type { ChangesPage, ChangesRequest } from './page.ts'
import { type Framing, PAGE_ROWS, PLAIN_CHANGES } from './rows.ts'
import type { FeedDatabase } from './source.ts'

/** The source of updates, implemented by threads/databases.ts. */
interface UpdatesSource {
  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /** Calls `listener` when there may be new updates, until the returned function is called. */
  watchUpdates(listener: () => void): () => void
}

/** The updates that a user may see. */
export interface UpdatesView {
  /** Unique among all databases and views. */
  readonly incarnation: number
  /** Decides who may read the view. */
  readonly security: SecurityObject
  /**
   * The names of the databases that the view shows; null for all. It is called for each page, and waits for a database
   * that is being created, so the page includes all earlier updates of these databases.
   */
  readonly names: (() => Promise<readonly string[]>) | null
  /** Makes a token opaque: a user who sees only some databases must not learn how much happens in the others. */
  encode(token: string): string
  /** Reverses {@link UpdatesView.encode}; null for any other text. */
  decode(token: string): string | null
}

/** All updates, for server admins. No database's incarnation is 0. */
const ALL_UPDATES: UpdatesView = {
  incarnation: 0,
  security: ADMIN_ONLY,
  names: null,
  encode: (token) => token,
  decode: (token) => token,
}

/** The updates as a database that a feed can read. */
export function updatesDatabase(source: UpdatesSource, view: UpdatesView = ALL_UPDATES): FeedDatabase {
  return {
    incarnation: view.incarnation,
    changes: (user, request) => updatesPage(source, view, user, request),
    securityCopy: async () => view.security,
    watch: (listener) =>
      source.watchUpdates(() => {
        source.updates({ since: 0 }, 0).then(
          ({ lastSeq }) => listener({ type: 'committed', updateSeq: lastSeq }),
          // The feeds end, and their clients reconnect.
          () => listener({ type: 'closed' }),
        )
      }),
  }
}

async function updatesPage(
  source: UpdatesSource,
  view: UpdatesView,
  user: UserCtx,
  { options, since, limit }: ChangesRequest,
): Promise<ChangesPage> {
  requireMember(user, view.security)
  const { range, unknownEpoch } = await locate(source, view, since, options.descending)
  const wanted = Math.max(0, Math.min(limit, PAGE_ROWS))
  const { rows, lastSeq: newest, epochs, names } = await readUpdates(source, view, range, wanted)
  const atTip = rows.length < wanted
  const empty = options.descending ? (range.before ?? newest) : range.since
  const lastSeq = atTip && !options.descending ? newest : (rows.at(-1)?.seq ?? empty)
  const tokenOf = sequenceTokens(epochs)
  const token = (seq: number) => view.encode(tokenOf(seq))
  return {
    bytes: bytesOf(frameUpdates(rows, token, options.framing)),
    rows: rows.length,
    lastSeq,
    lastToken: token(await newestSeen(source, names, rows, lastSeq)),
    pending: null,
    atTip,
    state: token(await newestSeen(source, names, [], newest)),
    security: view.security,
    unknownEpoch,
  }
}

/** In a view of some databases, the page ends with the last update from before the names were listed. */
async function readUpdates(
  source: UpdatesSource,
  view: UpdatesView,
  range: UpdatesRange,
  limit: number,
): Promise<CatalogUpdates & { readonly names: readonly string[] | null }> {
  if (view.names === null) return { ...(await source.updates(range, limit)), names: null }
  const { lastSeq } = await source.updates({ since: 0 }, 0)
  const names = await view.names()
  const before = Math.min(range.before ?? Infinity, lastSeq + 1)
  return { ...(await source.updates({ ...range, before, names }, limit)), lastSeq, names }
}

/** The newest visible row up to a sequence number, since tokens must not reveal rows that the view hides. */
async function newestSeen(
  source: UpdatesSource,
  names: readonly string[] | null,
  rows: readonly CatalogUpdate[],
  upTo: number,
): Promise<number> {
  const last = rows.at(-1)
  if (names === null) return upTo
  if (last !== undefined) return last.seq
  const found = await source.updates({ since: 0, descending: true, before: upTo + 1, names }, 1)
  return found.rows[0]?.seq ?? 0
}

/** As in `_changes`, a number continues a page, and a token is ignored with `descending`. */
async function locate(
  source: UpdatesSource,
  view: UpdatesView,
  since: ChangesRequest['since'],
  descending: boolean,
): Promise<{ range: UpdatesRange; unknownEpoch: boolean }> {
  if (descending) {
    const before = typeof since === 'number' ? { before: since } : {}
    return { range: { since: 0, descending, ...before }, unknownEpoch: false }
  }
  if (typeof since === 'number') return { range: { since }, unknownEpoch: false }
  const { lastSeq, epochs } = await source.updates({ since: 0 }, 0)
  if (since === 'now') return { range: { since: lastSeq }, unknownEpoch: false }
  // The text is read even if it cannot be decoded, since a malformed token is refused.
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
 * Reads the parameters of `_db_updates`. Unlike those of `_changes`, their names are case-sensitive.
 * @param maxWait `chttpd/changes_timeout` in milliseconds, the maximum of `heartbeat` and `timeout`
 * @param lastEventId the header Last-Event-ID, which overrides `since` for an eventsource feed
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
  // CouchDB accepts 0 and sends heartbeats as fast as it can.
  if (value === undefined || value === 0) throw new CouchError('bad_request', 'invalid_integer')
  return Math.min(value, maxWait)
}

function countOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\+?\d+$/.test(text)) throw new CouchError('bad_request', 'invalid_integer')
  return Number(text)
}
