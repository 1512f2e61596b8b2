/** Answers that are feeds: what `_changes` and `_db_updates` share. */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Caller, Feed, type FeedRequest } from '../changes/feed.ts'
import { FeedHub } from '../changes/hub.ts'
import type { FeedKind } from '../changes/query.ts'
import { directSource, type FeedDatabase, type FeedSource } from '../changes/source.ts'
import { onDoubt } from './doubts.ts'
import { takeFeedPlace } from './feed-place.ts'
import { openStream } from './json-stream.ts'
import { authenticate } from './plugins/authentication.ts'
import { factsOf } from './plugins/request-log.ts'
import { refuseClosedAccount } from './plugins/tenancy.ts'
import { isKnownToClient, sendNotModified } from './replies.ts'

/** A hub whose feeds look at their callers' rights when something of those was withdrawn, and end when the app closes. */
export function feedHub(app: FastifyInstance): FeedHub {
  const hub = new FeedHub()
  const forget = onDoubt(app, (accounts) => hub.doubt(accounts))
  app.addHook('preClose', async () => {
    forget()
    hub.close()
  })
  return hub
}

export interface FeedAnswer {
  readonly hub: FeedHub
  readonly database: FeedDatabase
  readonly asked: FeedRequest
  /** The validator of a normal feed, of what its first page says of the state; null: it has none. */
  etagOf(state: string): string | null
}

/**
 * Answers with a feed: a normal one has a validator, the others wait. What is wrong with the request is thrown before
 * the first byte.
 */
export async function answerFeed(
  request: FastifyRequest,
  reply: FastifyReply,
  { hub, database, asked, etagOf }: FeedAnswer,
): Promise<unknown> {
  const { kind } = asked
  const { requestTally } = request.server
  const waits = kind !== 'normal' && request.method !== 'HEAD'
  request.isWaitingFeed = waits
  const ended = { source: null as FeedSource | null }
  const place = waits ? await takeFeedPlace(request, reply, () => ended.source?.interrupt()) : null
  const source = waits ? hub.join(database, request.user.name) : directSource(database)
  ended.source = source
  const feed = new Feed(source, callerOf(request, reply), asked)
  try {
    const { state, unknownEpoch } = await feed.open()
    if (unknownEpoch) request.log.warn(factsOf(request), 'a feed begins anew: its since is of another store')
    const etag = kind === 'normal' ? etagOf(state) : null
    if (etag !== null && isKnownToClient(request, reply, etag)) return sendNotModified(reply)
    const stream = openStream(request, reply, {
      status: 200,
      headers: headersOf(kind),
      waits: kind !== 'normal',
      isOwn: true,
    })
    if (request.method !== 'HEAD') await requestTally.whileOpen(kind, () => feed.run(stream))
    return undefined
  } finally {
    feed.close()
    place?.leave()
  }
}

/** The caller as the hooks found it, and from then on as the credentials that came with the request say. */
function callerOf(request: FastifyRequest, reply: FastifyReply): Caller {
  let isKnown = false
  return async () => {
    if (isKnown) {
      await authenticate(request, reply)
      refuseClosedAccount(request)
    }
    isKnown = true
    return request.user
  }
}

function headersOf(kind: FeedKind): Record<string, string> {
  const isEvents = kind === 'eventsource'
  return {
    'Content-Type': isEvents ? 'text/event-stream' : 'application/json',
    'Cache-Control': isEvents ? 'no-cache, no-transform' : 'must-revalidate, no-transform',
    // nginx passes lines on as they come.
    'X-Accel-Buffering': 'no',
  }
}

/** A validator of what the answer depends on beside the address; of the whole answer, whatever its encoding. */
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
