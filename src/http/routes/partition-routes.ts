/**
 * The partitions of a database; protocol.md 4.10. Below the address of a partition, some calls of a database answer for
 * the documents of that partition. As in CouchDB, they are the same calls with the parameter `partition`.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendJson } from '../replies.ts'
import { pathParam, queryOf } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import type { Handler } from '../services.ts'
import { allDocsPaths } from './all-docs-routes.ts'
import { findPaths } from './find-routes.ts'
import { viewPaths } from './view-routes.ts'

const PARTITION = '/:db/_partition/:partition'

export const partitionRoutes: readonly Path[] = [
  { url: '/:db/_partition', allow: 'GET', access: 'member', methods: allMethods(refuseUnnamed) },
  { url: PARTITION, allow: 'GET', access: 'member', methods: { GET: { handler: getInfo } } },
  ...[
    ...allDocsPaths(PARTITION),
    ...viewPaths(PARTITION),
    ...findPaths(PARTITION),
    { url: `${PARTITION}/*`, allow: 'GET', access: 'member' as const, methods: allMethods(refuseUnknown) },
  ].map(withinPartition),
]

function allMethods(handler: Handler): Path['methods'] {
  return { GET: { handler }, PUT: { handler }, POST: { handler }, DELETE: { handler }, COPY: { handler } }
}

/** Passes the partition of the address to the handlers of a path as the parameter of their query. */
function withinPartition(path: Path): Path {
  const methods = Object.entries(path.methods).map(([name, method]) => {
    const handler: Handler = async (request, reply) => {
      await enterPartition(request)
      return method.handler(request, reply)
    }
    return [name, { ...method, handler }]
  })
  return { ...path, methods: Object.fromEntries(methods) as Path['methods'] }
}

async function enterPartition(request: FastifyRequest): Promise<void> {
  const partition = pathParam(request, 'partition')
  const query = queryOf(request)
  await databaseOf(request).checkPartition(request.user, partition)
  if (query.partition !== undefined && query.partition !== partition) {
    throw new CouchError('bad_request', 'Conflicting value for `partition` in query string')
  }
  request.query = { ...query, partition }
}

async function getInfo(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const partition = pathParam(request, 'partition')
  if (partition === '') return refuseUnnamed()
  return sendJson(reply, 200, await databaseOf(request).partitionInfo(request.user, partition))
}

async function refuseUnnamed(): Promise<never> {
  throw new CouchError('bad_request', 'invalid_partition_req')
}

async function refuseUnknown(): Promise<never> {
  throw new CouchError('not_found')
}
