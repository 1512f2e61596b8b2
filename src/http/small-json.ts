import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { isTooDeep } from '../core/json-depth.ts'
import { withBody } from './body.ts'
import { bytesOf } from './body-collector.ts'

/**
 * The largest body of a call about the server, in bytes: a name, a password, a value. It is parsed in one turn of the
 * HTTP thread, so that its size bounds that turn.
 */
export const SMALL_BODY = 8 * 1024
/** The largest list of names: a hundred of 238 characters, each with its quotes, have 25 kB. */
export const LIST_BODY = 32 * 1024
/** The largest list of anything: the security object, the documents of a rewind. Parsing takes a millisecond or two. */
export const LARGE_LIST_BODY = 64 * 1024

/**
 * Reads a small JSON body here, on the HTTP thread: one that is about the server, and no document.
 * @param bytes the largest that the call takes
 * @throws invalid_json, too_deep, and as `withBody`
 */
export function readSmallJson(request: FastifyRequest, bytes = SMALL_BODY): Promise<unknown> {
  const limit = { bytes, key: 'the largest body of this call' }
  return withBody(request, limit, async (body) => parse(await bytesOf(body)))
}

function parse(bytes: Uint8Array): unknown {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) as unknown
  } catch {
    throw new CouchError('invalid_json')
  }
  if (isTooDeep(value)) throw new CouchError('too_deep')
  return value
}
