/** Queries by selectors; protocol.md 10. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { MAX_FIND_BYTES } from '../../query/find.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, streamJson } from '../replies.ts'
import { queryOf } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { requestSizeLimit, type SizeLimit, withBody } from '../transport/body-reader.ts'

export const findRoutes: readonly Path[] = [...findPaths('/:db')]

/** @param base the address of a database or of a partition */
export function findPaths(base: string): readonly Path[] {
  return [
    {
      url: `${base}/_find`,
      allow: 'POST',
      access: 'member',
      methods: { POST: { handler: postFind, json: true } },
    },
    {
      url: `${base}/_explain`,
      allow: 'POST',
      access: 'member',
      methods: { POST: { handler: postExplain, json: true } },
    },
  ]
}

/** The limit of the body of a query or an index. Larger bodies are refused before they are read. */
export function smallBody(request: FastifyRequest): SizeLimit {
  const whole = requestSizeLimit(request)
  if (whole.bytes <= MAX_FIND_BYTES) return whole
  const reason = `the request entity is too large: the limit of this call is ${MAX_FIND_BYTES} bytes`
  return { bytes: MAX_FIND_BYTES, key: '', refusal: () => new CouchError('too_large', reason) }
}

async function postFind(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return withBody(request, smallBody(request), (body) =>
    streamJson(request, reply, 200, databaseOf(request).find(request.user, body, queryOf(request).partition)),
  )
}

async function postExplain(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return withBody(request, smallBody(request), async (body) =>
    sendBytes(reply, 200, await databaseOf(request).explain(request.user, body, queryOf(request).partition)),
  )
}
