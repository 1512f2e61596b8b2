/**
 * GET, HEAD /_db_updates   server admin   protocol.md 4.9
 */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { readUpdatesQuery, updatesDatabase } from '../../changes/db-updates.ts'
import { answerFeed, feedHub, lastEventId } from '../feeds.ts'
import { queryOf } from '../query-params.ts'
import { registerPaths } from '../route-table.ts'

/** The route of `_db_updates`; its feeds wait together. */
export async function dbUpdatesRoutes(app: FastifyInstance): Promise<void> {
  const hub = feedHub(app)
  const database = updatesDatabase(app.services.databases)
  const { config } = app.services
  const handler = async (request: FastifyRequest, reply: FastifyReply) => {
    const maxWait = config.integer('chttpd', 'changes_timeout')
    const asked = readUpdatesQuery(queryOf(request), maxWait, lastEventId(request))
    return answerFeed(request, reply, { hub, database, asked, etagOf: (state) => etagOf(request, state) })
  }
  registerPaths(app, [
    {
      url: '/_db_updates',
      allow: 'GET',
      access: 'server admin',
      // Parameters are read by changes/db-updates.ts: they have refusals of their own.
      methods: { GET: { handler } },
    },
  ])
}

function etagOf(request: FastifyRequest, state: string): string {
  const [, search = ''] = request.url.split('?', 2)
  const facts = JSON.stringify([state, search])
  return `"${createHash('sha256').update(facts).digest('base64url').slice(0, 22)}"`
}
