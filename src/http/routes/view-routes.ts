/** Views of design documents; protocol.md 9.3 and 9.5. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, streamJson } from '../replies.ts'
import { pathParam, queryOf } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { requestSizeLimit, withBody, withOptionalBody } from '../transport/body-reader.ts'

/** query/view-query.ts reads the parameters of the query and of the body. */
export const viewRoutes: readonly Path[] = [
  ...viewPaths('/:db'),
  {
    url: '/:db/_temp_view',
    allow: 'POST',
    access: 'member',
    methods: { POST: { handler: refuseTemporary } },
  },
]

/** @param base the address of a database or of a partition */
export function viewPaths(base: string): readonly Path[] {
  const view = `${base}/_design/:ddoc/_view/:view`
  return [
    {
      url: view,
      allow: 'GET,POST,HEAD',
      access: 'member',
      methods: { GET: { handler: getView }, POST: { handler: postView, json: true } },
    },
    {
      url: `${view}/queries`,
      allow: 'POST',
      access: 'member',
      methods: { POST: { handler: postQueries, json: true } },
    },
    {
      url: `${base}/_design/:ddoc/_info`,
      allow: 'GET',
      access: 'member',
      methods: { GET: { handler: getInfo } },
    },
  ]
}

function designOf(request: FastifyRequest): string {
  return DESIGN_PREFIX + pathParam(request, 'ddoc')
}

function viewOf(request: FastifyRequest): { ddoc: string; view: string } {
  return { ddoc: designOf(request), view: pathParam(request, 'view') }
}

async function getView(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { ddoc, view } = viewOf(request)
  const parameters = Object.entries(queryOf(request))
  return streamJson(request, reply, 200, databaseOf(request).view(request.user, ddoc, view, parameters, null))
}

async function postView(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { ddoc, view } = viewOf(request)
  const parameters = Object.entries(queryOf(request))
  return withOptionalBody(request, requestSizeLimit(request), (body) =>
    streamJson(request, reply, 200, databaseOf(request).view(request.user, ddoc, view, parameters, body)),
  )
}

async function postQueries(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { ddoc, view } = viewOf(request)
  const parameters = Object.entries(queryOf(request))
  return withBody(request, requestSizeLimit(request), (body) =>
    streamJson(
      request,
      reply,
      200,
      databaseOf(request).viewQueries(request.user, ddoc, view, body, parameters),
    ),
  )
}

async function getInfo(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const info = await databaseOf(request).viewInfo(request.user, designOf(request))
  return sendBytes(reply, 200, info)
}

async function refuseTemporary(): Promise<never> {
  throw new CouchError('gone')
}
