/**
 * `_db_updates`, protocol.md 4.9: what happens to databases, as a feed. To the loop and the hub that serve
 * `_changes` it is one more database, which only server admins may read.
 */
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { ADMIN_ONLY, requireMember } from '../documents/security.ts'
import type { CatalogUpdate, CatalogUpdates, UpdatesRange } from '../storage/catalog.ts'
import { type Epochs, readSequence, sequenceToken } from '../storage/sequence.ts'
import type { FeedRequest } from './feed.ts'
import { bytesOf } from './framing.ts'
import type { ChangesPage, ChangesRequest } from './page.ts'
import type { FeedKind } from './query.ts'
import { type Framing, PAGE_ROWS } from './rows.ts'
import type { FeedDatabase } from './source.ts'

/** Where updates come from; threads/databases.ts has it. */
export interface UpdatesOrigin {
  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /** Calls `listener` when there may be further updates, until the returned function is called. */
  watchUpdates(listener: () => void): () => void
}

/** No database's incarnation is 0. */
const INCARNATION = 0

/** The updates as a feed's database. */
export function updatesDatabase(origin: UpdatesOrigin): FeedDatabase {
  return {
    incarnation: INCARNATION,
    changes: (user, request) => updatesPage(origin, user, request),
    securityCopy: async () => ADMIN_ONLY,
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
  user: UserCtx,
  { options, since, limit }: ChangesRequest,
): Promise<ChangesPage> {
  requireMember(user, ADMIN_ONLY)
  const { range, unknownEpoch } = await locate(origin, since, options.descending)
  const wanted = Math.max(0, Math.min(limit, PAGE_ROWS))
  const { rows, lastSeq: newest, epochs } = await origin.updates(range, wanted)
  const atTip = rows.length < wanted
  const empty = options.descending ? (range.before ?? newest) : range.since
  const lastSeq = atTip && !options.descending ? newest : (rows.at(-1)?.seq ?? empty)
  return {
    bytes: bytesOf(frameUpdates(rows, epochs, options.framing)),
    rows: rows.length,
    lastSeq,
    lastToken: sequenceToken(epochs, lastSeq),
    pending: null,
    atTip,
    state: sequenceToken(epochs, newest),
    security: ADMIN_ONLY,
    unknownEpoch,
  }
}

/** As for `_changes`: a number continues a page, and a token is ignored with `descending`. */
async function locate(
  origin: UpdatesOrigin,
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
  const { seq, unknownEpoch } = readSequence(epochs, lastSeq, since)
  return { range: { since: seq }, unknownEpoch }
}

function frameUpdates(rows: readonly CatalogUpdate[], epochs: Epochs, framing: Framing): string {
  const framed = rows.map(({ seq, name, type }) => {
    const token = sequenceToken(epochs, seq)
    const json = JSON.stringify({ db_name: name, type, seq: token })
    if (framing === 'json') return json
    return framing === 'lines' ? `${json}\n` : `data: ${json}\nid: "${token}"\n\n`
  })
  return framed.join(framing === 'json' ? ',\r\n' : '')
}

const KINDS: readonly FeedKind[] = ['normal', 'continuous', 'longpoll', 'eventsource']
/** What `heartbeat=true` means, and the time-out of who asks for none, before the server's cap. */
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
    options: { ...PLAIN, descending: query.descending === 'true' },
    since: since.replace(/^"(.*)"$/, '$1'),
    limit: countOf(query.limit) ?? Infinity,
    heartbeat: heartbeatOf(query.heartbeat, maxWait),
    timeout: Math.min(countOf(query.timeout) ?? DEFAULT_WAIT, maxWait),
  }
}

const PLAIN = {
  style: 'main_only',
  descending: false,
  includeDocs: false,
  conflicts: false,
  attachments: false,
  attEncodingInfo: false,
  seqInterval: 1,
} as const

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
