import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { hostOf } from '../client-address.ts'
import { CorsPolicies, type CorsPolicy } from '../cors-policy.ts'
import { HEADER_TEXT } from '../replies.ts'

declare module 'fastify' {
  interface FastifyInstance {
    cors: CorsPolicies
  }
}

/**
 * CORS (protocol.md 13): what lets a page of another origin read answers, on every one of them, and answers to
 * preflights before anybody is asked who he is. Why not @fastify/cors: docs/decisions/0018.
 */
export const cors = fp(
  async (app) => {
    app.decorate('cors', new CorsPolicies(app.services.config))
    app.addHook('onRequest', (request, reply, done) => {
      if (setCorsHeaders(request, reply)) void reply.code(204).send()
      else done()
    })
  },
  { name: 'cors', dependencies: ['couch-headers'] },
)

/**
 * The origin of the page that a request comes from; undefined: it comes from no page. An empty `Origin` is no page's,
 * since browsers send an origin or `null` (RFC 6454 7.1): LiveSync sends it from outside of its page.
 */
export function pageOf({ headers }: Pick<FastifyRequest, 'headers'>): string | undefined {
  return headers.origin || undefined
}

/**
 * Sets the headers of CORS on the reply; the hook does not reach requests that no route was looked for.
 * @returns whether the request is a preflight that is allowed, so that this is the whole answer
 */
export function setCorsHeaders(request: FastifyRequest, reply: FastifyReply): boolean {
  const { cors } = request.server
  if (!cors.isOn) return false
  reply.header('Vary', 'Origin')
  const origin = pageOf(request)
  if (origin === undefined) return false
  const policy = cors.of(cors.dependOnHost ? hostOf(request) : undefined)
  // With `*` an origin is any text, and Node would throw at what is none.
  if (!policy.allows(origin) || !HEADER_TEXT.test(origin)) return false
  if (isPreflight(request)) return allowPreflight(request, reply, policy, origin)
  reply.header('Access-Control-Expose-Headers', policy.exposed)
  allowOrigin(reply, policy, origin)
  return false
}

function isPreflight({ method, headers }: FastifyRequest): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined
}

/** One that asks for too much gets no headers, and the answer that OPTIONS gets. */
function allowPreflight(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  policy: CorsPolicy,
  origin: string,
): boolean {
  const asked = headers['access-control-request-headers']?.trim() ?? ''
  if (!policy.allowsMethod(headers['access-control-request-method'] as string)) return false
  if (!policy.allowsHeaders(asked)) return false
  allowOrigin(reply, policy, origin)
  reply.headers({
    'Access-Control-Allow-Methods': policy.methods,
    'Access-Control-Max-Age': policy.maxAge,
  })
  if (HEADER_TEXT.test(asked)) reply.header('Access-Control-Allow-Headers', asked)
  return true
}

/** The origin as it came, never `*`: PouchDB always sends credentials, and then browsers take no `*`. */
function allowOrigin(reply: FastifyReply, policy: CorsPolicy, origin: string): void {
  reply.header('Access-Control-Allow-Origin', origin)
  if (policy.trusts(origin)) reply.header('Access-Control-Allow-Credentials', 'true')
}

/**
 * The same as lines, for an answer to what is no HTTP, of which only the bytes are there.
 * @param head as much of the request as came
 */
export function corsLines(cors: CorsPolicies, head: Buffer): string[] {
  if (!cors.isOn) return []
  const [, origin] = /\r\norigin:[ \t]*([\x21-\x7e]+)[ \t]*\r\n/i.exec(head.toString('latin1')) ?? []
  const policy = cors.of(undefined)
  if (origin === undefined || !policy.allows(origin)) return ['Vary: Origin']
  const trusted = policy.trusts(origin) ? ['Access-Control-Allow-Credentials: true'] : []
  return ['Vary: Origin', `Access-Control-Allow-Origin: ${origin}`, ...trusted]
}
