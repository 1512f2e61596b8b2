import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { headerParameter } from '../documents/multipart.ts'

const JSON_TYPE = 'application/json'

/**
 * The media type of the request's body in lower case, its parameters left out; empty when none is stated.
 */
export function mediaType(request: FastifyRequest): string {
  const header = request.headers['content-type'] ?? ''
  if (header === JSON_TYPE) return header
  const [type = ''] = header.split(';', 1)
  return type.trim().toLowerCase()
}

/** The boundary that the header of a multipart body states; empty, which is none, when it states none. */
export function multipartBoundary(request: FastifyRequest): string {
  return headerParameter(request.headers['content-type'] ?? '', 'boundary') ?? ''
}

/**
 * A hook for calls that demand JSON; protocol.md 1.3.
 * @throws bad_content_type
 */
export async function requireJsonType(request: FastifyRequest): Promise<void> {
  if (mediaType(request) !== JSON_TYPE) throw new CouchError('bad_content_type')
}
