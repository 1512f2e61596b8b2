/** The cookie `AuthSession` in answers; protocol.md 11.3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isSecure } from './client-address.ts'

const DOMAIN = /^[A-Za-z0-9.-]+$/
const LONG_AGO = 'Thu, 01 Jan 1970 00:00:00 GMT'

/**
 * Has the answer set the cookie, in place of one that it was to set before. The attributes stand in CouchDB's order:
 * a client of Cloudant's finds `Expires` and `Max-Age` only where another follows (clients.md 1.6).
 */
export function setSession(request: FastifyRequest, reply: FastifyReply, value: string): void {
  const { config } = request.server.services
  const seconds = config.integer('chttpd_auth', 'timeout')
  const isKept = config.get('chttpd_auth', 'allow_persistent_cookies') !== 'false'
  const expires = new Date(Date.now() + seconds * 1000).toUTCString()
  put(request, reply, value, isKept ? `; Expires=${expires}; Max-Age=${seconds}` : '')
}

/** Has the answer clear the cookie. */
export function clearSession(request: FastifyRequest, reply: FastifyReply): void {
  put(request, reply, '', `; Expires=${LONG_AGO}; Max-Age=0`)
}

function put(request: FastifyRequest, reply: FastifyReply, value: string, lifetime: string): void {
  const { config } = request.server.services
  const secure = isSecure(request)
  const domain = config.get('chttpd_auth', 'cookie_domain') ?? ''
  const where = DOMAIN.test(domain) ? `; Domain=${domain}` : ''
  const how = `${secure ? '; Secure' : ''}${where}; SameSite=${sameSite(config.get('chttpd_auth', 'same_site'), secure)}`
  // Fastify would set both.
  reply.removeHeader('set-cookie')
  reply.header('Set-Cookie', `AuthSession=${value}; Version=1${lifetime}; Path=/; HttpOnly${how}`)
}

/**
 * CouchDB sends none unless it is configured, and each browser then does what it likes. Browsers drop cookies with
 * `None` that are not `Secure`.
 */
function sameSite(configured: string | undefined, secure: boolean): string {
  switch (configured?.toLowerCase()) {
    case 'strict':
      return 'Strict'
    case 'none':
      return secure ? 'None' : 'Lax'
    default:
      return 'Lax'
  }
}
