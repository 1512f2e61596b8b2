/** JSON for scripts of pages of elsewhere: `chttpd/allow_jsonp` (couch_httpd; protocol.md 1.1). Off by default. */
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { CouchError } from '../../core/errors.ts'
import { queryOf, textParam } from '../query-params.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The function that the JSON of the answer is handed to; null: the answer is JSON. */
    jsonp: string | null
  }
}

export const JSONP_TYPE = 'application/javascript'

/** What CouchDB lets a callback be made of; it sets no limit to its length. */
const CALLBACK = /^[a-zA-Z0-9._[\]]{1,256}$/

/** Reads the callback of a GET, where the configuration allows it. */
export const jsonp = fp(
  async (app) => {
    app.decorateRequest('jsonp', null)
    app.addHook('onRequest', async (request) => {
      request.jsonp = callbackOf(request)
    })
  },
  { name: 'jsonp' },
)

/** @throws bad_request for a callback that could be more than a name */
function callbackOf(request: FastifyRequest): string | null {
  if (request.method !== 'GET' && request.method !== 'HEAD') return null
  if (!request.server.services.config.boolean('chttpd', 'allow_jsonp')) return null
  const callback = textParam(queryOf(request), 'callback')
  if (callback === undefined || callback === '') return null
  if (!CALLBACK.test(callback)) throw new CouchError('bad_request', 'invalid_callback')
  return callback
}

/** What stands before the JSON of an answer, and behind it. */
export function jsonpFrame(callback: string): readonly [before: Buffer, after: Buffer] {
  return [Buffer.from(`/* CouchDB */${callback}(`), Buffer.from(');\n')]
}

/** A whole answer as a script. @param json ends with a newline, which then ends the script */
export function asScript(callback: string, json: Uint8Array): Buffer {
  const [before, after] = jsonpFrame(callback)
  return Buffer.concat([before, json.subarray(0, -1), after])
}
