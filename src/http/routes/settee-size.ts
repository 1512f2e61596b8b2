/** Where the bytes of a database are; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { HOUSE } from '../../auth/users-feed.ts'
import { sendJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf } from '../services.ts'
import { isOwner } from '../tenant.ts'

export const sizeRoutes: readonly Path[] = [
  {
    url: '/_settee/databases/:db/size',
    allow: 'GET,HEAD',
    access: 'db admin or owner',
    methods: { GET: { handler: databaseSize } },
  },
]

async function databaseSize(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = databaseOf(request)
  // The database itself knows nothing of owners.
  const { file, views, ...parts } = await database.size(isOwner(request) ? HOUSE : request.user)
  return sendJson(reply, 200, { database: database.name, file, parts, views })
}
