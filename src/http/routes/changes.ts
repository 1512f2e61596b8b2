/**
 * GET, HEAD, POST /:db/_changes   member   protocol.md 5
 */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Caller, Feed } from '../../changes/feed.ts'
import { filteredIds } from '../../changes/filters.ts'
import { FeedHub } from '../../changes/hub.ts'
import { type FeedKind, type FeedQuery, readFeedQuery } from '../../changes/query.ts'
import { directSource } from '../../changes/source.ts'
import { requestSizeLimit, withOptionalBody } from '../body.ts'
import { openStream } from '../json-stream.ts'
import { authenticate } from '../plugins/authentication.ts'
import { queryOf } from '../query-params.ts'
import { isKnownToClient, sendNotModified } from '../replies.ts'
import { registerPaths } from '../route-table.ts'
import { databaseOf } from '../services.ts'

/** The routes of `_changes`; their feeds share one hub, and look at their callers' rights when admins change. */
export async function changesRoutes(app: FastifyInstance): Promise<void> {
  const hub = new FeedHub()
  const forget = app.services.config.onChange((section) => {
    if (section === 'admins') hub.doubtAll()
  })
  app.addHook('preClose', async () => {
    forget()
    hub.close()
  })
  const handler = (request: FastifyRequest, reply: FastifyReply) => answerChanges(hub, request, reply)
  registerPaths(app, [
    {
      url: '/:db/_changes',
      allow: 'GET,POST,HEAD',
      access: 'member',
      // Parameters are read by changes/query.ts: their names count in any case, and each has refusals of its own.
      methods: { GET: { handler }, POST: { handler, json: true } },
    },
  ])
}

async function answerChanges(hub: FeedHub, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const query = queryFrom(request)
  const docIds = await docIdsFrom(request, query)
  const feed = makeFeed(hub, request, reply, query, docIds)
  try {
    const { state, unknownEpoch } = await feed.open()
    if (unknownEpoch)
      request.log.warn({ since: query.since }, 'a feed begins anew: its since is of another store')
    if (query.kind === 'normal') {
      if (isKnownToClient(request, reply, etagOf(request, state, docIds))) return sendNotModified(reply)
    }
    const head = { status: 200, headers: headersOf(query.kind), waits: query.kind !== 'normal' }
    const stream = openStream(request, reply, head)
    if (request.method !== 'HEAD') await feed.run(stream)
    return undefined
  } finally {
    feed.close()
  }
}

function queryFrom(request: FastifyRequest): FeedQuery {
  const maxWait = request.server.services.config.integer('chttpd', 'changes_timeout')
  const lastEventId = request.headers['last-event-id']
  const header = typeof lastEventId === 'string' ? lastEventId : undefined
  return readFeedQuery(Object.entries(queryOf(request)), maxWait, header)
}

function docIdsFrom(request: FastifyRequest, query: FeedQuery): Promise<readonly string[] | undefined> {
  if (request.method !== 'POST') return Promise.resolve(filteredIds(query, undefined, false))
  return withOptionalBody(request, requestSizeLimit(request), async (body) => {
    const posted = body === null ? undefined : await databaseOf(request).readDocIds(request.user, body)
    return filteredIds(query, posted, body !== null)
  })
}

function makeFeed(
  hub: FeedHub,
  request: FastifyRequest,
  reply: FastifyReply,
  query: FeedQuery,
  docIds: readonly string[] | undefined,
): Feed {
  const { kind, since, limit, heartbeat, timeout, style, descending } = query
  const { includeDocs, conflicts, attachments, seqInterval } = query
  const options = { style, descending, includeDocs, conflicts, attachments, seqInterval }
  const database = databaseOf(request)
  const waits = kind !== 'normal' && request.method !== 'HEAD'
  return new Feed(waits ? hub.join(database) : directSource(database), callerOf(request, reply), {
    kind,
    options: docIds === undefined ? options : { ...options, docIds },
    since,
    limit,
    heartbeat,
    timeout,
  })
}

/** The caller as the hooks found it, and from then on as the credentials that came with the request say. */
function callerOf(request: FastifyRequest, reply: FastifyReply): Caller {
  let isKnown = false
  return async () => {
    if (isKnown) await authenticate(request, reply)
    isKnown = true
    return request.user
  }
}

function headersOf(kind: FeedKind): Record<string, string> {
  const isEvents = kind === 'eventsource'
  return {
    'Content-Type': isEvents ? 'text/event-stream' : 'application/json',
    'Cache-Control': isEvents ? 'no-cache, no-transform' : 'must-revalidate, no-transform',
    'X-Accel-Buffering': 'no',
  }
}

/** Changes whenever the answer may; of the whole answer, whatever its encoding. */
function etagOf(request: FastifyRequest, state: string, docIds: readonly string[] | undefined): string {
  const [, search = ''] = request.url.split('?', 2)
  const facts = JSON.stringify([databaseOf(request).incarnation, state, search, docIds])
  return `"${createHash('sha256').update(facts).digest('base64url').slice(0, 22)}"`
}
