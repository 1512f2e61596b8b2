/** Whether the server is well: `_up` for whoever asks, and in depth for those who watch over it; protocol.md 4.4. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { requireMetricsReader } from '../../auth/access.ts'
import { databaseHealth, gatherFacts } from '../../maintenance/health.ts'
import { queryOf } from '../query-params.ts'
import { sendJson } from '../replies.ts'
import type { Path } from '../route-table.ts'

export const upRoutes: readonly Path[] = [
  {
    url: '/_up',
    allow: 'GET,HEAD',
    access: 'public',
    methods: { GET: { handler: up, credentials: 'ignored', heeds: isDeep } },
  },
]

/** Any other value is passed over, as CouchDB does with what it does not know. */
function isDeep(request: FastifyRequest): boolean {
  const deep = queryOf(request).deep
  return deep === '1' || deep === 'true'
}

async function up(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (!isDeep(request)) return sendJson(reply, 200, { status: 'ok', seeds: {} })
  requireMetricsReader(request.user)
  const { databases, health = [] } = request.server.services
  const facts = await gatherFacts([databaseHealth(databases), ...health])
  const isWell = facts.every(({ ok }) => ok)
  return sendJson(reply, isWell ? 200 : 503, { status: isWell ? 'ok' : 'failing', seeds: {}, facts })
}
