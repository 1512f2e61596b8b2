/** Feeds of changes: `_changes` (protocol.md 5) and `_db_updates` (protocol.md 4.9). */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { FeedRequest } from '../../changes/changes-feed.ts'
import { type FeedQuery, readFeedQuery } from '../../changes/changes-query.ts'
import { readUpdatesQuery, updatesDatabase } from '../../changes/db-updates.ts'
import { type FilterBody, type FilterOptions, isFunctionFilter, readFilter } from '../../changes/filters.ts'
import type { FeedHub } from '../../changes/hub.ts'
import { runsFunction } from '../../changes/rows.ts'
import type { FeedDatabase } from '../../changes/source.ts'
import { answerFeed, feedHub, feedTag, lastEventId } from '../feeds.ts'
import { functionRequest, jsonOrText } from '../function-requests.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { queryOf } from '../request-params.ts'
import { registerPaths } from '../route-table.ts'
import { tenantOf } from '../services.ts'
import { requestSizeLimit, withOptionalBody } from '../transport/body-reader.ts'

/** The routes of `_changes`. Their feeds share one hub. */
export async function changesRoutes(app: FastifyInstance): Promise<void> {
  const hub = feedHub(app)
  const handler = (request: FastifyRequest, reply: FastifyReply) => answerChanges(hub, request, reply)
  registerPaths(app, [
    {
      url: '/:db/_changes',
      allow: 'GET,POST,HEAD',
      access: 'lister',
      // changes/changes-query.ts reads the parameters: their names are case-insensitive, and each has its own errors.
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
    query: { ...feedRequest(query, filter), ...positionNotes(request, database.name, query, filter) },
    // The result of a function may depend on anything, so such answers have no validator.
    etagOf: (state) =>
      runsFunction(filter.filter) ? null : feedTag(request, [database.incarnation, state, filter]),
  })
}

/**
 * Notes the positions of a device that has a token. A feed that starts now, runs backwards or has only listed documents
 * does not show what a device lacks.
 */
function positionNotes(
  { identity: { token }, server }: FastifyRequest,
  database: string,
  { since, descending }: FeedQuery,
  { docIds }: FilterOptions,
): Pick<FeedRequest, 'onSent'> {
  if (token === null || since === 'now' || descending || docIds !== undefined) return {}
  const { tokens } = server.services
  return { onSent: (position) => tokens.notePosition(token, database, position) }
}

async function filterFrom(request: FastifyRequest, query: FeedQuery): Promise<FilterOptions> {
  const body = request.method === 'POST' ? await filterBody(request, isFunctionFilter(query)) : undefined
  return readFilter(query, body, () => functionRequest(request, { body: body?.text, json: jsonOrText }))
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

/** The route of `_db_updates`. Its feeds share one hub. */
export async function dbUpdatesRoutes(app: FastifyInstance): Promise<void> {
  const hub = feedHub(app)
  const all = updatesDatabase(app.services.databases)
  const { config } = app.services
  const handler = async (request: FastifyRequest, reply: FastifyReply) => {
    const maxWait = config.integer('chttpd', 'changes_timeout')
    const tenant = tenantOf(request)
    const database = tenant === null ? all : updatesOf(app, tenant)
    const query = readUpdatesQuery(queryOf(request), maxWait, lastEventId(request))
    return answerFeed(request, reply, { hub, database, query, etagOf: (state) => feedTag(request, [state]) })
  }
  registerPaths(app, [
    {
      url: '/_db_updates',
      allow: 'GET',
      access: 'tenant',
      // changes/db-updates.ts reads the parameters, which have errors of their own.
      methods: { GET: { handler } },
    },
  ])
}

/** What a tenant sees of them: its own databases. */
function updatesOf({ services }: FastifyInstance, tenant: string): FeedDatabase {
  return updatesDatabase(services.databases, services.policy.updatesOf(tenant))
}
