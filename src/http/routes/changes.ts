/**
 * GET, HEAD, POST /:db/_changes   member   protocol.md 5
 */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Caller, Feed } from '../../changes/feed.ts'
import type { FilterBody } from '../../changes/filter-body.ts'
import { runsFunction } from '../../changes/filter-kinds.ts'
import { asksForFunction, type FilterOptions, readFilter } from '../../changes/filters.ts'
import { FeedHub } from '../../changes/hub.ts'
import { type FeedKind, type FeedQuery, readFeedQuery } from '../../changes/query.ts'
import { directSource } from '../../changes/source.ts'
import { requestSizeLimit, withOptionalBody } from '../body.ts'
import { filterRequest } from '../filter-request.ts'
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
  const filter = await filterFrom(request, query)
  const feed = makeFeed(hub, request, reply, query, filter)
  try {
    const { state, unknownEpoch } = await feed.open()
    if (unknownEpoch)
      request.log.warn({ since: query.since }, 'a feed begins anew: its since is of another store')
    // What a function says may depend on anything, so its answers have no validator.
    if (query.kind === 'normal' && !runsFunction(filter.filter)) {
      if (isKnownToClient(request, reply, etagOf(request, state, filter))) return sendNotModified(reply)
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

async function filterFrom(request: FastifyRequest, query: FeedQuery): Promise<FilterOptions> {
  const body = request.method === 'POST' ? await filterBody(request, asksForFunction(query)) : undefined
  return readFilter(query, body, async () =>
    filterRequest(request, await databaseOf(request).info(request.user), body?.text),
  )
}

function filterBody(request: FastifyRequest, withText: boolean): Promise<FilterBody | undefined> {
  return withOptionalBody(request, requestSizeLimit(request), async (body) =>
    body === null ? undefined : databaseOf(request).readFilterBody(request.user, body, withText),
  )
}

function makeFeed(
  hub: FeedHub,
  request: FastifyRequest,
  reply: FastifyReply,
  query: FeedQuery,
  filter: FilterOptions,
): Feed {
  const { kind, since, limit, heartbeat, timeout, style, descending } = query
  const { includeDocs, conflicts, attachments, attEncodingInfo, seqInterval } = query
  const content = { includeDocs, conflicts, attachments, attEncodingInfo }
  const database = databaseOf(request)
  const waits = kind !== 'normal' && request.method !== 'HEAD'
  return new Feed(waits ? hub.join(database) : directSource(database), callerOf(request, reply), {
    kind,
    options: { style, descending, ...content, seqInterval, ...filter },
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
function etagOf(request: FastifyRequest, state: string, filter: FilterOptions): string {
  const [, search = ''] = request.url.split('?', 2)
  const facts = JSON.stringify([databaseOf(request).incarnation, state, search, filter])
  return `"${createHash('sha256').update(facts).digest('base64url').slice(0, 22)}"`
}
