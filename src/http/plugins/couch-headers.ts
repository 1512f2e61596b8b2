import type { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { CouchError } from '../../core/errors.ts'
import { queryOf, textParam } from '../request-params.ts'

/** The version of CouchDB that settee follows; clients read it in the header `Server` (clients.md R1). */
export const COUCHDB_VERSION = '3.5.0'

const REQUEST_ID = /^[A-Za-z0-9_-]{1,36}$/
const FIVE_HEX_DIGITS = 2 ** 20

/** Sets the headers of every answer; protocol.md 1.1. (`Date` is Node's.) */
export function setCouchHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.headers({
    // CouchDB comes first for clients that look for it at the beginning; docs/decisions/0045.
    Server: `CouchDB/${COUCHDB_VERSION} (settee/${request.server.services.version})`,
    'Cache-Control': 'must-revalidate',
    'X-Couch-Request-ID': request.id,
    'X-CouchDB-Body-Time': '0',
  })
  request.setBodyTime = (ms) => {
    reply.header('X-CouchDB-Body-Time', String(ms))
  }
}

/** The id of a request: the client's own if it is well formed, else ten hex digits (protocol.md 1.1). */
export function requestId(request: IncomingMessage): string {
  const sent = request.headers['x-couch-request-id']
  if (typeof sent === 'string' && REQUEST_ID.test(sent)) return sent
  return fiveHexDigits() + fiveHexDigits()
}

/** V8 formats two small integers five times as fast as one number of forty bits. */
function fiveHexDigits(): string {
  const number = FIVE_HEX_DIGITS + Math.floor(Math.random() * FIVE_HEX_DIGITS)
  return number.toString(16).slice(1)
}

/**
 * Headers that are always kept: those without which an answer would be misread, and those for proxies. CouchDB adds the
 * headers of CORS after its reduction (chttpd.erl).
 */
const NEEDED =
  /^(?:content-encoding|set-cookie|x-accel-buffering|connection|keep-alive|date|access-control-.*)$/

/**
 * `Prefer: return=minimal` (RFC 7240 4.2; protocol.md 1.1): answers have only the headers that `chttpd/prefer_minimal`
 * lists. Answers that are sent past Fastify call {@link reduceHeaders} themselves.
 */
export const preferMinimal = fp(
  async (app) => {
    app.addHook('onSend', (request, reply, _payload, done) => {
      reduceHeaders(request, reply)
      done()
    })
  },
  { name: 'prefer-minimal' },
)

/** Removes the headers that the client does not want, of those set so far. */
export function reduceHeaders(request: FastifyRequest, reply: FastifyReply): void {
  if (!prefersMinimal(request.headers.prefer)) return
  const listed = request.server.services.config.get('chttpd', 'prefer_minimal') ?? ''
  const kept = new Set(listed.toLowerCase().split(/\s*,\s*/))
  for (const name of Object.keys(reply.getHeaders())) {
    if (!kept.has(name) && !NEEDED.test(name)) reply.removeHeader(name)
  }
}

function prefersMinimal(header: string | string[] | undefined): boolean {
  const preferences = String(header ?? '')
    .toLowerCase()
    .split(/[,;]/)
  return preferences.some((each) => /^\s*return\s*=\s*"?minimal"?\s*$/.test(each))
}

/** Every method whose request may come with a body. */
const WITH_BODY = ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'COPY']

/**
 * Adds COPY, and makes Fastify read no bodies: body-reader.ts reads them from the socket. Fastify would refuse media types
 * that CouchDB ignores (protocol.md 1.3), and would not stream.
 */
export const methods = fp(
  async (app) => {
    for (const method of WITH_BODY) app.addHttpMethod(method, { hasBody: false, overrideExisting: true })
  },
  { name: 'methods' },
)

// JSONP for scripts of other origins: `chttpd/allow_jsonp` (couch_httpd; protocol.md 1.1). Off by default.

declare module 'fastify' {
  interface FastifyRequest {
    /** The function that is called with the answer's JSON; null: the answer is plain JSON. */
    jsonp: string | null
  }
}

export const JSONP_TYPE = 'application/javascript'

/** The characters that CouchDB allows in a callback; CouchDB does not limit its length. */
const CALLBACK = /^[a-zA-Z0-9._[\]]{1,256}$/

/** settee's own calls are never scripts: one of them shows what signs sessions, to which no web page may come. */
const OWN_CALLS = /^\/_settee\//

/**
 * The callback of a GET if the configuration allows it.
 * @throws bad_request for a callback that is more than a name
 */
export function callbackOf(request: FastifyRequest): string | null {
  if (request.method !== 'GET' && request.method !== 'HEAD') return null
  if (!request.server.services.config.boolean('chttpd', 'allow_jsonp')) return null
  if (OWN_CALLS.test(request.routeOptions.url ?? '')) return null
  const callback = textParam(queryOf(request), 'callback')
  if (callback === undefined || callback === '') return null
  if (!CALLBACK.test(callback)) throw new CouchError('bad_request', 'invalid_callback')
  return callback
}

/** The text before and after the JSON of an answer. */
export function jsonpFrame(callback: string): readonly [before: Buffer, after: Buffer] {
  return [Buffer.from(`/* CouchDB */${callback}(`), Buffer.from(');\n')]
}

/** A whole answer as a script. @param json ends with a newline, which moves to the end of the script */
export function asScript(callback: string, json: Uint8Array): Buffer {
  const [before, after] = jsonpFrame(callback)
  return Buffer.concat([before, json.subarray(0, -1), after])
}
