/** The indexes of queries; protocol.md 10.4. They are design documents of the language `query`. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, sendJson } from '../replies.ts'
import { pageLimit, pathParam, queryOf, textParam } from '../request-params.ts'
import { COUNT, type Path } from '../route-table.ts'
import { isOwner, tenantOf } from '../services.ts'
import { withBody } from '../transport/body-reader.ts'
import { smallBody } from './find-routes.ts'

export const indexRoutes: readonly Path[] = [
  {
    url: '/:db/_index',
    allow: 'GET,POST',
    access: 'member',
    methods: {
      GET: { handler: getIndexes },
      POST: { handler: postIndex, access: 'db admin', json: true },
    },
  },
  {
    url: '/:db/_index/_bulk_delete',
    allow: 'POST',
    access: 'member',
    methods: { POST: { handler: deleteMany, access: 'db admin', json: true } },
  },
  {
    url: '/_settee/databases/:db/indexes',
    allow: 'GET,HEAD',
    access: 'member',
    methods: {
      GET: { handler: reportIndexes, query: { type: 'object', properties: { limit: COUNT } } },
    },
  },
  indexPath('/:db/_index/:ddoc/:type/:name', (request) => pathParam(request, 'ddoc')),
  indexPath('/:db/_index/_design/:ddoc/:type/:name', (request) => DESIGN_PREFIX + pathParam(request, 'ddoc')),
]

/** @param ddocOf the design document that the address names */
function indexPath(url: string, ddocOf: (request: FastifyRequest) => string): Path {
  const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    await requireOwner(request)
    const [type, name] = [pathParam(request, 'type'), pathParam(request, 'name')]
    await databaseOf(request).deleteIndex(request.user, ddocOf(request), type, name)
    return sendJson(reply, 200, { ok: true })
  }
  return { url, allow: 'DELETE', access: 'member', methods: { DELETE: { handler, access: 'db admin' } } }
}

async function getIndexes(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { skip, limit } = queryOf(request)
  const from = skip === undefined ? 0 : listParameter(skip, 0)
  const most = limit === undefined ? undefined : listParameter(limit, 1)
  return sendBytes(reply, 200, await databaseOf(request).indexes(request.user, from, most))
}

const PAGE = 20
const MAX_PAGE = 50

/** With sizes and progress; docs/settee-api.md. */
async function reportIndexes(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const query = queryOf(request)
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  const after = textParam(query, 'after')
  const page = { limit, ...(after !== undefined && { after }) }
  return sendBytes(reply, 200, await databaseOf(request).indexReport(request.user, page))
}

function listParameter(text: string, least: number): number {
  const value = Number(text)
  if (/^[+-]?\d+$/.test(text) && Number.isSafeInteger(value) && value >= least) return value
  throw new CouchError('invalid_list_index_params')
}

async function postIndex(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await requireOwner(request)
  return withBody(request, smallBody(request), async (body) =>
    sendBytes(reply, 200, await databaseOf(request).createIndex(request.user, body)),
  )
}

async function deleteMany(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await requireOwner(request)
  return withBody(request, smallBody(request), async (body) =>
    sendBytes(reply, 200, await databaseOf(request).deleteIndexes(request.user, body)),
  )
}

/** In hosted mode, where indexes count in the owner's quota, other admins of the database may not change them. */
async function requireOwner(request: FastifyRequest): Promise<void> {
  if (request.server.services.policy.documents.designDocs || tenantOf(request) === null) return
  if (await isOwner(request)) return
  throw new CouchError('forbidden', 'Only the owner of this database may change its indexes.')
}
