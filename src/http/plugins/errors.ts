/** The one place where an error becomes an answer: a status and `{"error","reason"}` (protocol.md 1.1). */
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { asCouchError, CouchError, type ErrorName } from '../../core/errors.ts'
import { faultOfRequest } from '../head-faults.ts'
import { answerAndClose } from '../lingering-close.ts'
import { errorBody, rawAnswer } from '../raw-answer.ts'
import { HEADER_TEXT } from '../replies.ts'
import { refuseUnknownMethod } from '../route-table.ts'
import { setCorsHeaders } from './cors.ts'
import { setCouchHeaders } from './couch-headers.ts'
import { causeOf, factsOf } from './request-log.ts'

/** What Fastify and its plugins call their own errors, as rows of the table. */
const TRANSLATIONS: Readonly<Record<string, ErrorName>> = {
  FST_ERR_BAD_URL: 'invalid_url',
  FST_ERR_MAX_PARAM_LENGTH: 'uri_too_long',
  FST_BASIC_AUTH_MISSING_OR_BAD_AUTHORIZATION_HEADER: 'wrong_credentials',
}

/** What ends a body that is still coming; whoever sent it may go on for hours. */
const CLOSING: ReadonlySet<number> = new Set([408, 413])

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
export async function answerError(
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<unknown> {
  const error = translated(thrown)
  logFault(error, request)
  if (error.status === 401) challenge(request, reply)
  const payload = errorBody(error)
  reply.code(error.status).type('application/json')
  if (!request.raw.complete && (CLOSING.has(error.status) || request.isWithdrawn)) {
    return answerAndClose(request, reply, payload)
  }
  return reply.send(payload)
}

/**
 * Answers a request whose own code has not come to an answer yet, and closes its connection: to that code the client
 * is gone. Nothing of the body may be still to come.
 */
export function answerInstead(error: CouchError, request: FastifyRequest, reply: FastifyReply): void {
  const { socket } = reply.raw
  if (error.status === 401) challenge(request, reply)
  const lines = Object.entries(reply.getHeaders())
    .filter(([name]) => !/^(?:content-|cache-control$|connection$|etag$)/.test(name))
    .map(([name, value]) => `${name}: ${String(value)}`)
  socket?.write(rawAnswer(error, lines, request.method === 'HEAD'))
  socket?.destroySoon()
}

/** For requests that never came to a route: a broken escape in the path, a path that is too long. */
export function answerFrameworkError(
  thrown: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  setCouchHeaders(request, reply)
  setCorsHeaders(request, reply)
  void answerError(thrown, request, reply)
}

function translated(thrown: unknown): CouchError {
  const row = TRANSLATIONS[(thrown as Partial<FastifyError> | null)?.code ?? '']
  return row === undefined ? asCouchError(thrown) : new CouchError(row, undefined, { cause: thrown })
}

function logFault(error: CouchError, request: FastifyRequest): void {
  if (error.status < 500) return
  request.server.services.logger.error({ ...causeOf(error), ...factsOf(request) }, 'a request failed')
}

/** Whether and how a 401 asks for credentials; protocol.md 11.6. */
function challenge(request: FastifyRequest, reply: FastifyReply): void {
  const { config } = request.server.services
  const value =
    request.headers['x-couchdb-www-authenticate'] ||
    config.get('chttpd', 'WWW-Authenticate') ||
    config.get('httpd', 'WWW-Authenticate') ||
    (config.boolean('chttpd', 'require_valid_user') && 'Basic realm="server"')
  // A configured text may be any; Node would throw at what is none, and the refusal would be lost.
  if (typeof value === 'string' && HEADER_TEXT.test(value)) reply.header('WWW-Authenticate', value)
}
