/** Lists of documents; protocol.md 8. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { addressQuery } from '../../documents/all-docs-query.ts'
import type { AllDocsKind, Body } from '../../documents/database.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { streamJson } from '../replies.ts'
import { queryOf } from '../request-params.ts'
import type { Access, Path } from '../route-table.ts'
import type { Handler } from '../services.ts'
import { requestSizeLimit, withBody } from '../transport/body-reader.ts'

export const allDocsRoutes: readonly Path[] = [
  ...allDocsPaths('/:db'),
  ...listPaths('/:db/_design_docs', 'design'),
  ...listPaths('/:db/_local_docs', 'local'),
]

/** @param base the address of a database or of a partition */
export function allDocsPaths(base: string): readonly Path[] {
  return listPaths(`${base}/_all_docs`, 'all', 'lister')
}

function listPaths(url: string, kind: AllDocsKind, access: Access = 'member'): readonly Path[] {
  return [
    {
      url,
      allow: 'GET,HEAD,POST',
      access,
      methods: {
        GET: { handler: listing(kind) },
        POST: { handler: listingOfBody(kind), json: true },
      },
    },
    {
      url: `${url}/queries`,
      allow: 'POST',
      access,
      methods: { POST: { handler: listings(kind) } },
    },
  ]
}

function listing(kind: AllDocsKind): Handler {
  return (request, reply) => sendList(request, reply, kind, null)
}

function listingOfBody(kind: AllDocsKind): Handler {
  return (request, reply) =>
    withBody(request, requestSizeLimit(request), (body) => sendList(request, reply, kind, body))
}

function listings(kind: AllDocsKind): Handler {
  return (request, reply) =>
    withBody(request, requestSizeLimit(request), (body) => {
      const query = addressQuery(Object.entries(queryOf(request)), false)
      const lists = databaseOf(request).allDocsQueries(request.user, kind, query, body)
      return streamJson(request, reply, 200, lists)
    })
}

async function sendList(
  request: FastifyRequest,
  reply: FastifyReply,
  kind: AllDocsKind,
  body: Body | null,
): Promise<void> {
  const query = addressQuery(Object.entries(queryOf(request)), body === null)
  return streamJson(request, reply, 200, databaseOf(request).allDocs(request.user, kind, query, body))
}
