/** Compaction and purging, protocol.md 4.6, 4.7, and the list of nodes. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import type { DatabaseHandle } from '../../threads/databases.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, sendJson } from '../replies.ts'
import { pathParam } from '../request-params.ts'
import { nodeName, type Path } from '../route-table.ts'
import { readSmallJson, requestSizeLimit, withBody } from '../transport/body-reader.ts'

export const maintenanceRoutes: readonly Path[] = [
  {
    url: '/:db/_compact',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: compact, json: true } },
  },
  {
    url: '/:db/_compact/:ddoc',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: compactViews, json: true } },
  },
  {
    url: '/:db/_view_cleanup',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: cleanUpViews } },
  },
  {
    url: '/:db/_purge',
    allow: 'POST',
    access: 'server admin',
    methods: { POST: { handler: purge, json: true } },
  },
  {
    url: '/:db/_purged_infos',
    allow: 'GET',
    access: 'member',
    methods: { GET: { handler: purgedInfos } },
  },
  {
    url: '/:db/_purged_infos_limit',
    allow: 'GET,PUT',
    access: 'server admin',
    methods: { GET: { handler: purgedInfosLimit }, PUT: { handler: setPurgedInfosLimit } },
  },
  {
    url: '/_membership',
    allow: 'GET',
    access: 'server admin',
    methods: { GET: { handler: membership } },
  },
]

/** The database of a route for server admins, which access-rules.ts does not open. @throws no_database */
function namedDatabase(request: FastifyRequest): Promise<DatabaseHandle> {
  const db = pathParam(request, 'db')
  return request.server.services.databases.get(db)
}

async function compact(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).compact(request.user)
  return sendJson(reply, 202, { ok: true })
}

/** Gives free space of a design document's indexes back. @throws not_found, deleted */
async function compactViews(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).compactViews(request.user, DESIGN_PREFIX + pathParam(request, 'ddoc'))
  return sendJson(reply, 202, { ok: true })
}

/** Removes the indexes that no design document uses. */
async function cleanUpViews(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).cleanUpViews(request.user)
  return sendJson(reply, 202, { ok: true })
}

async function purge(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = await namedDatabase(request)
  const answer = await withBody(request, requestSizeLimit(request), (body) =>
    database.purge(request.user, body),
  )
  return sendBytes(reply, 201, answer)
}

async function purgedInfos(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendBytes(reply, 200, await databaseOf(request).purgedInfos(request.user))
}

async function purgedInfosLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, await (await namedDatabase(request)).purgedInfosLimit(request.user))
}

async function setPurgedInfosLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = await namedDatabase(request)
  await database.setPurgedInfosLimit(request.user, await readSmallJson(request))
  return sendJson(reply, 200, { ok: true })
}

async function membership(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const nodes = [nodeName(request.server.services.config)]
  return sendJson(reply, 200, { all_nodes: nodes, cluster_nodes: nodes })
}
