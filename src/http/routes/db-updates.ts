/**
 * GET, HEAD /_db_updates   tenant   protocol.md 4.9
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { readUpdatesQuery, updatesDatabase } from '../../changes/db-updates.ts'
import type { FeedDatabase } from '../../changes/source.ts'
import { answerFeed, feedHub, feedTag, lastEventId } from '../feeds.ts'
import { queryOf } from '../query-params.ts'
import { registerPaths } from '../route-table.ts'
import { tenantOf } from '../tenant.ts'

/** The route of `_db_updates`; its feeds wait together. */
export async function dbUpdatesRoutes(app: FastifyInstance): Promise<void> {
  const hub = feedHub(app)
  const all = updatesDatabase(app.services.databases)
  const { config } = app.services
  const handler = async (request: FastifyRequest, reply: FastifyReply) => {
    const maxWait = config.integer('chttpd', 'changes_timeout')
    const tenant = tenantOf(request)
    const database = tenant === null ? all : updatesOf(app, tenant)
    const asked = readUpdatesQuery(queryOf(request), maxWait, lastEventId(request))
    return answerFeed(request, reply, { hub, database, asked, etagOf: (state) => feedTag(request, [state]) })
  }
  registerPaths(app, [
    {
      url: '/_db_updates',
      allow: 'GET',
      access: 'tenant',
      // Parameters are read by changes/db-updates.ts: they have refusals of their own.
      methods: { GET: { handler } },
    },
  ])
}

/** What a tenant sees of them: its own databases. */
function updatesOf({ services }: FastifyInstance, tenant: string): FeedDatabase {
  return updatesDatabase(services.databases, services.hosted?.updates.of(tenant))
}
