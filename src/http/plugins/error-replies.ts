/**
 * Turns errors into answers: a status and `{"error","reason"}` (protocol.md 1.1). Refuses malformed requests,
 * and those of a connection beyond the limit.
 */
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { isAnonymous } from '../../auth/accounts.ts'
import type { Config } from '../../config/config.ts'
import { asCouchError, CouchError, type ErrorName } from '../../core/errors.ts'
import { HEADER_TEXT } from '../replies.ts'
import { BAD_QUERY } from '../request-params.ts'
import { refuseUnknownMethod } from '../route-table.ts'
import { MAX_HEADER_BYTES } from '../transport/client-errors.ts'
import { exceededLimit } from '../transport/connections.ts'
import { StreamResponse } from '../transport/http2-messages.ts'
import { needsNoSandbox } from '../transport/page-policy.ts'
import { answerAndClose, errorBody, rawAnswer } from '../transport/raw-answer.ts'
import { requiresUser } from './authentication.ts'
import { asScript, JSONP_TYPE, setCouchHeaders } from './couch-headers.ts'
import { pageOf, setCorsHeaders } from './cross-origin.ts'
import { causeOf, factsOf, levelOf } from './request-log.ts'
import { countAnswer } from './request-metrics.ts'

/** Errors of Fastify and its plugins, as rows of the error table. */
const TRANSLATIONS: Readonly<Record<string, ErrorName>> = {
  FST_ERR_BAD_URL: 'invalid_url',
  FST_ERR_MAX_PARAM_LENGTH: 'uri_too_long',
  FST_BASIC_AUTH_MISSING_OR_BAD_AUTHORIZATION_HEADER: 'wrong_credentials',
}

/** Statuses that end a body which is still arriving; its sender could go on for hours. */
const CLOSING: ReadonlySet<number> = new Set([408, 413, 507])

export const errors = fp(
  async (app) => {
    app.setErrorHandler(answerError)
    app.setNotFoundHandler(refuseUnknownMethod)
  },
  { name: 'errors' },
)

/** After how many seconds a client may try again when the store could not be reached. */
const RETRY_S = '5'

/** Answers a failed request, never in Fastify's own format, with HTML or with a stack. */
async function answerError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const error = await withReplacement(request, withExpiry(request, translated(thrown)))
  logFailure(error, request)
  if (error.status === 401) {
    setChallenge(request, reply)
    request.server.turns.noteAccount(request.raw, false)
  }
  if (error.code === 'store_unavailable') reply.header('Retry-After', RETRY_S)
  const payload = errorBody(error)
  reply.code(error.status).type('application/json')
  if (!request.raw.complete && (CLOSING.has(error.status) || request.isRevoked)) {
    needsNoSandbox(reply.raw)
    return answerAndClose(request, reply, payload)
  }
  // It is undefined for a request that was not routed.
  const callback = request.jsonp ?? null
  if (callback === null) {
    needsNoSandbox(reply.raw)
    return reply.send(payload)
  }
  return reply.type(JSONP_TYPE).send(asScript(callback, payload))
}

/**
 * Answers a request in place of its handler, which has not answered yet, and closes the connection: to the handler, the
 * client has left. The whole body must have arrived.
 */
export function answerInstead(error: CouchError, request: FastifyRequest, reply: FastifyReply): void {
  const raw: object = reply.raw
  if (error.status === 401) setChallenge(request, reply)
  const headers = Object.entries(reply.getHeaders()).filter(([name]) => !OF_ANOTHER_ANSWER.test(name))
  if (raw instanceof StreamResponse) {
    const body = errorBody(error)
    const own = { 'content-type': 'application/json', 'content-length': body.length }
    raw.answerInstead(error.status, { ...Object.fromEntries(headers), ...own }, body)
    return
  }
  const { socket } = reply.raw
  const lines = headers.map(([name, value]) => `${name}: ${String(value)}`)
  socket?.write(rawAnswer(error, lines, request.method === 'HEAD'))
  socket?.destroySoon()
}

/** Headers that belong to the answer which is not sent. */
const OF_ANOTHER_ANSWER = /^(?:content-|cache-control$|connection$|etag$)/

/** Answers requests that were not routed: the path has a broken escape, or is too long. */
export function answerFrameworkError(
  thrown: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  countAnswer(request, reply)
  setCouchHeaders(request, reply)
  setCorsHeaders(request, reply)
  void answerError(thrown, request, reply)
}

function translated(thrown: unknown): CouchError {
  const row = TRANSLATIONS[(thrown as Partial<FastifyError> | null)?.code ?? '']
  return row === undefined ? asCouchError(thrown) : new CouchError(row, undefined, { cause: thrown })
}

/**
 * A database that is there is not said to be missing. A restore, a repair of damage or a failover may have begun a new incarnation
 * of it while the request was under way, or another node has made another of its name. The request cannot go to the new one, whose
 * rights were not checked. Its client may try again.
 * @returns the fault of the store if it cannot say whether the database is there
 */
async function withReplacement(request: FastifyRequest, error: CouchError): Promise<CouchError> {
  const { database } = request
  const { databases } = request.server.services
  if (error.code !== 'no_database' || !database) return error
  try {
    const isThere = await databases.has(database.name)
    // Without a cause, since nothing is at fault.
    return isThere ? new CouchError('unavailable') : error
  } catch (fault) {
    return asCouchError(fault)
  }
}

/** A page must be able to tell an expired session from a wrong login (clients.md, pain 22). */
function withExpiry(request: FastifyRequest, error: CouchError): CouchError {
  if (error.status !== 401 || error.code === 'wrong_credentials') return error
  if (!request.hasExpiredSession || !isAnonymous(request.user)) return error
  return new CouchError('session_expired', undefined, { cause: error })
}

function logFailure(error: CouchError, request: FastifyRequest): void {
  if (error.status < 500) return
  request.server.services.logger[levelOf(error)](
    { ...causeOf(error), ...factsOf(request) },
    'a request failed',
  )
}

/**
 * Sets the challenge of a 401; protocol.md 11.6. A browser would show its own dialog over the page whose script was
 * refused, so a script gets the challenge that it asks for with `X-CouchDB-WWW-Authenticate`, or none.
 */
function setChallenge(request: FastifyRequest, reply: FastifyReply): void {
  const asked = request.headers['x-couchdb-www-authenticate']
  const value = asked || (!isScript(request) && configuredChallenge(request.server.services.config))
  // Node throws at text that is not a valid header value, and the refusal would be lost.
  if (typeof value === 'string' && HEADER_TEXT.test(value)) reply.header('WWW-Authenticate', value)
}

/** Whether the request is a script's in a browser, by the headers of Fetch or the older signs (clients.md, pain 17). */
function isScript(request: FastifyRequest): boolean {
  const { headers } = request
  const mode = headers['sec-fetch-mode']
  if (mode !== undefined) return mode !== 'navigate'
  return pageOf(request) !== undefined || headers['x-requested-with'] !== undefined
}

function configuredChallenge(config: Config): string | false {
  return (
    config.get('chttpd', 'WWW-Authenticate') ||
    config.get('httpd', 'WWW-Authenticate') ||
    (requiresUser(config) && 'Basic realm="server"')
  )
}

/**
 * Checks the connection and the head of a request. Sets `Connection: close` if the connection must not be used again.
 * @returns the refusal
 */
export function faultOfRequest(request: FastifyRequest, reply: FastifyReply): CouchError | undefined {
  const { raw, headers } = request
  // No protocol is upgraded here, but Node's parser discards what follows such a request.
  if (headers.upgrade !== undefined && /\bupgrade\b/i.test(headers.connection ?? '')) {
    reply.header('Connection', 'close')
  }
  const limit = exceededLimit(raw.socket)
  if (limit !== null) {
    reply.header('Connection', 'close')
    // A busy server is healthy, so `_up` is answered.
    if (request.routeOptions.config.credentials !== 'ignored') return tooMany(reply, limit)
  }
  return faultOfHead(request)
}

function tooMany(reply: FastifyReply, limit: string): CouchError {
  reply.header('Retry-After', '5')
  return new CouchError('unavailable', `There are too many connections (${limit}). Try again later.`)
}

/** Node's own check for `Host` is off (app.ts), since its refusal has no body. */
function faultOfHead({ query, headers, raw, server, originalUrl }: FastifyRequest): CouchError | undefined {
  // Over HTTP/1, Node's parser checks the length (client-errors.ts).
  if (raw.httpVersion === '2.0' && isTooLong(raw.rawHeaders)) return new CouchError('headers_too_large')
  if (originalUrl.length > server.services.config.bytes('chttpd', 'max_uri_length')) {
    return new CouchError('uri_too_long')
  }
  if (query === BAD_QUERY) return new CouchError('invalid_url')
  if (headers.host === undefined && raw.httpVersion !== '1.0') {
    return new CouchError('bad_request', 'The header Host is missing.')
  }
  // A proxy in front may have used either: RFC 9113 8.3.1.
  if (raw.httpVersion === '2.0' && (headers[':authority'] ?? headers.host) !== headers.host) {
    return new CouchError('bad_request', 'The header Host differs from :authority.')
  }
  if (hasTwoHosts(raw.rawHeaders)) return new CouchError('bad_request', 'There are two Host headers.')
  const coding = headers['transfer-encoding']
  if (coding !== undefined && coding !== 'chunked' && coding.toLowerCase() !== 'chunked') {
    return new CouchError('bad_request', 'The only supported Transfer-Encoding is chunked.')
  }
  return undefined
}

function isTooLong(headers: readonly string[]): boolean {
  let length = 0
  for (const text of headers) length += text.length
  return length > MAX_HEADER_BYTES
}

/** A proxy in front may have used the other one: RFC 9112 3.2. */
function hasTwoHosts(headers: readonly string[]): boolean {
  let count = 0
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at]!
    if (name.length === 4 && name.toLowerCase() === 'host') count += 1
  }
  return count > 1
}
