import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'

/**
 * The media type of the request's body in lower case, its parameters left out; empty when none is stated.
 */
export function mediaType(request: FastifyRequest): string {
  const [type = ''] = (request.headers['content-type'] ?? '').split(';', 1)
  return type.trim().toLowerCase()
}

/**
 * A hook for calls that demand JSON; protocol.md 1.3.
 * @throws bad_content_type
 */
export async function requireJsonType(request: FastifyRequest): Promise<void> {
  if (mediaType(request) !== 'application/json') throw new CouchError('bad_content_type')
}
