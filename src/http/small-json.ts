import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { isTooDeep } from '../core/json-depth.ts'
import { type SizeLimit, withBody } from './body.ts'
import { bytesOf } from './body-collector.ts'

/** Bodies that are ours are small: security objects, configuration values, lists of names. */
const LIMIT: SizeLimit = { bytes: 1024 * 1024, key: 'the largest body of this call' }

/**
 * Reads a small JSON body here, on the HTTP thread: one that is about the server, and no document.
 * @throws invalid_json, too_deep, and as `withBody`
 */
export function readSmallJson(request: FastifyRequest): Promise<unknown> {
  return withBody(request, LIMIT, async (body) => parse(await bytesOf(body)))
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
