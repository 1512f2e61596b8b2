/**
 * GET, HEAD, POST /:db/_changes   member   protocol.md 5
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { FeedRequest } from '../../changes/feed.ts'
import type { FilterBody } from '../../changes/filter-body.ts'
import { runsFunction } from '../../changes/filter-kinds.ts'
import { asksForFunction, type FilterOptions, readFilter } from '../../changes/filters.ts'
import type { FeedHub } from '../../changes/hub.ts'
import { type FeedQuery, readFeedQuery } from '../../changes/query.ts'
import { requestSizeLimit, withOptionalBody } from '../body.ts'
import { answerFeed, feedHub, feedTag, lastEventId } from '../feeds.ts'
import { filterRequest } from '../filter-request.ts'
import { queryOf } from '../query-params.ts'
import { registerPaths } from '../route-table.ts'
import { databaseOf } from '../services.ts'

/** The routes of `_changes`; their feeds share one hub, and look at their callers' rights when admins change. */
export async function changesRoutes(app: FastifyInstance): Promise<void> {
  const hub = feedHub(app)
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
  const maxWait = request.server.services.config.integer('chttpd', 'changes_timeout')
  const query = readFeedQuery(Object.entries(queryOf(request)), maxWait, lastEventId(request))
  const filter = await filterFrom(request, query)
  const database = databaseOf(request)
  return answerFeed(request, reply, {
    hub,
    database,
    asked: feedRequest(query, filter),
    // What a function says may depend on anything, so its answers have no validator.
    etagOf: (state) =>
      runsFunction(filter.filter) ? null : feedTag(request, [database.incarnation, state, filter]),
  })
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

function feedRequest(query: FeedQuery, filter: FilterOptions): FeedRequest {
  const { kind, since, limit, heartbeat, timeout, style, descending } = query
  const { includeDocs, conflicts, attachments, attEncodingInfo, seqInterval } = query
  const content = { includeDocs, conflicts, attachments, attEncodingInfo }
  return {
    kind,
    options: { style, descending, ...content, seqInterval, ...filter },
    since,
    limit,
    heartbeat,
    timeout,
  }
}
