/** Queries by selectors; protocol.md 10. The index of all ids is the only one so far: docs/compatibility.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { MAX_FIND_BYTES } from '../../query/find.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, streamJson } from '../replies.ts'
import { queryOf } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { requestSizeLimit, type SizeLimit, withBody } from '../transport/body-reader.ts'

export const findRoutes: readonly Path[] = [
  {
    url: '/:db/_find',
    allow: 'POST',
    access: 'member',
    methods: { POST: { handler: postFind, json: true } },
  },
  {
    url: '/:db/_explain',
    allow: 'POST',
    access: 'member',
    methods: { POST: { handler: postExplain, json: true } },
  },
  {
    url: '/:db/_index',
    allow: 'GET',
    access: 'member',
    methods: { GET: { handler: getIndexes } },
  },
]

/** Larger bodies are refused before they are read. */
function sizeLimit(request: FastifyRequest): SizeLimit {
  const whole = requestSizeLimit(request)
  if (whole.bytes <= MAX_FIND_BYTES) return whole
  const reason = `the request entity is too large: the limit of this call is ${MAX_FIND_BYTES} bytes`
  return { bytes: MAX_FIND_BYTES, key: '', refusal: () => new CouchError('too_large', reason) }
}

async function postFind(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return withBody(request, sizeLimit(request), (body) =>
    streamJson(request, reply, 200, databaseOf(request).find(request.user, body)),
  )
}

async function postExplain(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return withBody(request, sizeLimit(request), async (body) =>
    sendBytes(reply, 200, await databaseOf(request).explain(request.user, body)),
  )
}

async function getIndexes(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { skip, limit } = queryOf(request)
  const from = skip === undefined ? 0 : listParameter(skip, 0)
  const most = limit === undefined ? undefined : listParameter(limit, 1)
  return sendBytes(reply, 200, await databaseOf(request).indexes(request.user, from, most))
}

function listParameter(text: string, least: number): number {
  const value = Number(text)
  if (/^[+-]?\d+$/.test(text) && Number.isSafeInteger(value) && value >= least) return value
  throw new CouchError('invalid_list_index_params')
}
