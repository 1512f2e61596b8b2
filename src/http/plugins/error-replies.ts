/** The one place where an error becomes an answer: a status and `{"error","reason"}` (protocol.md 1.1). */
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { isAnonymous } from '../../auth/accounts.ts'
import type { Config } from '../../config/config.ts'
import { asCouchError, CouchError, type ErrorName } from '../../core/errors.ts'
import { requiresUser } from '../authentication-handlers.ts'
import { HEADER_TEXT } from '../replies.ts'
import { refuseUnknownMethod } from '../route-table.ts'
import { faultOfRequest } from '../transport/client-errors.ts'
import { StreamResponse } from '../transport/http2-messages.ts'
import { answerAndClose, errorBody, rawAnswer } from '../transport/raw-answer.ts'
import { asScript, JSONP_TYPE, setCouchHeaders } from './couch-headers.ts'
import { pageOf, setCorsHeaders } from './cross-origin.ts'
import { causeOf, factsOf, levelOf } from './request-log.ts'
import { countAnswer } from './request-metrics.ts'

/** What Fastify and its plugins call their own errors, as rows of the table. */
const TRANSLATIONS: Readonly<Record<string, ErrorName>> = {
  FST_ERR_BAD_URL: 'invalid_url',
  FST_ERR_MAX_PARAM_LENGTH: 'uri_too_long',
  FST_BASIC_AUTH_MISSING_OR_BAD_AUTHORIZATION_HEADER: 'wrong_credentials',
}

/** What ends a body that is still coming; whoever sent it may go on for hours. */
const CLOSING: ReadonlySet<number> = new Set([408, 413, 507])

/** Translates errors into answers, and refuses query strings with broken escapes before anything else happens. */
export const errors = fp(
  async (app) => {
    app.setErrorHandler(answerError)
    app.setNotFoundHandler(refuseUnknownMethod)
    app.addHook('onRequest', (request, reply, done) => done(faultOfRequest(request, reply)))
  },
  { name: 'errors', dependencies: ['couch-headers'] },
)

/** Answers a failed request; never with Fastify's own shape, HTML or a stack. */
async function answerError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const error = ofExpired(request, translated(thrown))
  logFault(error, request)
  if (error.status === 401) {
    challenge(request, reply)
    request.server.turns.settle(request.raw, false)
  }
  const payload = errorBody(error)
  reply.code(error.status).type('application/json')
  if (!request.raw.complete && (CLOSING.has(error.status) || request.isWithdrawn)) {
    return answerAndClose(request, reply, payload)
  }
  // What never came to a route has not been looked at for a callback.
  const callback = request.jsonp ?? null
  if (callback === null) return reply.send(payload)
  return reply.type(JSONP_TYPE).send(asScript(callback, payload))
}

/**
 * Answers a request whose own code has not come to an answer yet, and closes its connection: to that code the client
 * is gone. Nothing of the body may be still to come.
 */
export function answerInstead(error: CouchError, request: FastifyRequest, reply: FastifyReply): void {
  const raw: object = reply.raw
  if (error.status === 401) challenge(request, reply)
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

/** Headers that were set for the answer that is not sent. */
const OF_ANOTHER_ANSWER = /^(?:content-|cache-control$|connection$|etag$)/

/** For requests that never came to a route: a broken escape in the path, a path that is too long. */
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

/** A page whose session has run out must be able to tell that from a login that was wrong (clients.md, pain 22). */
function ofExpired(request: FastifyRequest, error: CouchError): CouchError {
  if (error.status !== 401 || error.code === 'wrong_credentials') return error
  if (!request.hasExpiredSession || !isAnonymous(request.user)) return error
  return new CouchError('session_expired', undefined, { cause: error })
}

function logFault(error: CouchError, request: FastifyRequest): void {
  if (error.status < 500) return
  request.server.services.logger[levelOf(error)](
    { ...causeOf(error), ...factsOf(request) },
    'a request failed',
  )
}

/**
 * Whether and how a 401 asks for credentials; protocol.md 11.6. A browser would show its own dialog over the page
 * whose script was refused; so a script gets what it asked for with `X-CouchDB-WWW-Authenticate`, and else nothing.
 */
function challenge(request: FastifyRequest, reply: FastifyReply): void {
  const asked = request.headers['x-couchdb-www-authenticate']
  const value = asked || (!isScript(request) && configuredChallenge(request.server.services.config))
  // A configured text may be any; Node would throw at what is none, and the refusal would be lost.
  if (typeof value === 'string' && HEADER_TEXT.test(value)) reply.header('WWW-Authenticate', value)
}

/** Of a page in a browser, as Fetch's headers or the older signs tell (clients.md, pain 17). */
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
