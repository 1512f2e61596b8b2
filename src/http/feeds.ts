/** Feeds over HTTP: what `_changes` and `_db_updates` share. */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../auth/accounts.ts'
import type { FeedSlot } from '../auth/policy.ts'
import { type Caller, Feed, type FeedRequest } from '../changes/changes-feed.ts'
import type { FeedKind } from '../changes/changes-query.ts'
import { FeedHub } from '../changes/hub.ts'
import { directSource, type FeedDatabase, type FeedSource } from '../changes/source.ts'
import { CouchError } from '../core/errors.ts'
import { authenticate } from './plugins/authentication.ts'
import { factsOf } from './plugins/request-log.ts'
import { onRevocation } from './plugins/revocation.ts'
import { refuseClosedAccount } from './plugins/tenancy.ts'
import { isKnownToClient, sendNotModified } from './replies.ts'
import { onRequestEnd, openStream, type StreamHead, sendShort } from './transport/json-stream.ts'

/** Makes a hub whose feeds check their callers' rights after a revocation, and end when the app closes. */
export function feedHub(app: FastifyInstance): FeedHub {
  const hub = new FeedHub()
  const stop = onRevocation(app, (accounts) => hub.recheckAccounts(accounts))
  app.addHook('preClose', async () => {
    stop()
    hub.close()
  })
  return hub
}

interface FeedAnswer {
  readonly hub: FeedHub
  readonly database: FeedDatabase
  readonly query: FeedRequest
  /** The validator of a normal feed, from the state that its first page reports; null: it has none. */
  etagOf(state: string): string | null
}

/**
 * Answers with a feed. A normal feed has a validator; the others wait for changes. Errors of the request are thrown before
 * the first byte.
 */
export async function answerFeed(
  request: FastifyRequest,
  reply: FastifyReply,
  { hub, database, query, etagOf }: FeedAnswer,
): Promise<unknown> {
  const { kind } = query
  const { requestTally } = request.server
  const waits = kind !== 'normal' && request.method !== 'HEAD'
  request.isWaitingFeed = waits
  const ended = { source: null as FeedSource | null }
  const slot = waits ? await takeFeedSlot(request, reply, () => ended.source?.interrupt()) : null
  const source = waits ? hub.join(database, request.user.name) : directSource(database)
  ended.source = source
  const feed = new Feed(source, callerOf(request, reply), query)
  try {
    const { state, unknownEpoch, lastToken, whole } = await feed.open()
    if (unknownEpoch)
      request.log.warn(
        factsOf(request),
        'a feed starts from the beginning: its token is not from this database',
      )
    const etag = kind === 'normal' ? etagOf(state) : null
    if (etag !== null && isKnownToClient(request, reply, etag)) return sendNotModified(reply)
    const head: StreamHead = {
      status: 200,
      type: kind === 'eventsource' ? 'text/event-stream' : 'application/json',
      headers: headersOf(kind),
      waits: kind !== 'normal',
      isOwn: true,
      isInChunks: true,
    }
    if (whole !== null && sendShort(request, reply, head, Buffer.concat(whole()))) {
      query.onSent?.(lastToken)
      return undefined
    }
    const stream = openStream(request, reply, head)
    if (request.method !== 'HEAD') await requestTally.whileOpen(kind, () => feed.run(stream))
    return undefined
  } finally {
    feed.close()
    slot?.release()
  }
}

/** The caller as the hooks found it; from the second call on, the request's credentials are checked again. */
function callerOf(request: FastifyRequest, reply: FastifyReply): Caller {
  let isKnown = false
  return async () => {
    if (isKnown) {
      await authenticate(request, reply)
      await refuseClosedAccount(request)
    }
    isKnown = true
    return request.user
  }
}

function headersOf(kind: FeedKind): Record<string, string> {
  return {
    'Cache-Control': kind === 'eventsource' ? 'no-cache, no-transform' : 'must-revalidate, no-transform',
    // Makes nginx pass on each line at once.
    'X-Accel-Buffering': 'no',
  }
}

/** A validator of the whole answer, in any encoding. @param facts what it depends on beside the query */
export function feedTag(request: FastifyRequest, facts: readonly unknown[]): string {
  const [, search = ''] = request.url.split('?', 2)
  const text = JSON.stringify([...facts, search])
  return `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`
}

/** The header Last-Event-ID. */
export function lastEventId({ headers }: FastifyRequest): string | undefined {
  const id = headers['last-event-id']
  return typeof id === 'string' ? id : undefined
}

// The slot of a feed that waits, where the policy limits feeds.

/** The age, in seconds, at which a feed may be ended for another. */
const RETRY_SECONDS = '20'

/**
 * Takes a slot, for which the feed may have to wait. It no longer counts as a request at the rate limiter.
 * @param end called when the feed must end for another
 * @returns null where feeds are not counted
 * @throws too_many_requests when too many feeds wait for slots already
 */
async function takeFeedSlot(
  request: FastifyRequest,
  reply: FastifyReply,
  end: () => void,
): Promise<FeedSlot | null> {
  const { limits } = request.server.services.policy
  const { user } = request
  if (limits === null || isServerAdmin(user)) return null
  request.leaveLimiter?.()
  const gone = new AbortController()
  const forget = onRequestEnd(request, reply, () => gone.abort())
  const slot = await limits.openFeed(user.name, request.address, end, gone.signal)
  forget()
  if (slot !== null) return slot
  reply.header('Retry-After', RETRY_SECONDS)
  throw new CouchError(
    'too_many_requests',
    `Too many feeds at once: ${await limits.maxFeeds(user.name)} are served.`,
  )
}
