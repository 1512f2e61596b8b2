/** The cookie `AuthSession` in answers; protocol.md 11.3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isSecure } from './transport/connection.ts'

const DOMAIN = /^[A-Za-z0-9.-]+$/
const LONG_AGO = 'Thu, 01 Jan 1970 00:00:00 GMT'

/**
 * Sets the cookie on the answer, in place of an earlier one. The attributes are in CouchDB's order: a client of Cloudant
 * finds `Expires` and `Max-Age` only if another attribute follows (clients.md 1.6).
 */
export function setSession(request: FastifyRequest, reply: FastifyReply, value: string): void {
  const { config } = request.server.services
  const seconds = config.integer('chttpd_auth', 'timeout')
  const isPersistent = config.get('chttpd_auth', 'allow_persistent_cookies') !== 'false'
  const expires = new Date(Date.now() + seconds * 1000).toUTCString()
  put(request, reply, value, isPersistent ? `; Expires=${expires}; Max-Age=${seconds}` : '')
}

/** Clears the cookie on the answer. */
export function clearSession(request: FastifyRequest, reply: FastifyReply): void {
  put(request, reply, '', `; Expires=${LONG_AGO}; Max-Age=0`)
}

function put(request: FastifyRequest, reply: FastifyReply, value: string, lifetime: string): void {
  const { config } = request.server.services
  const secure = isSecure(request)
  const domain = config.get('chttpd_auth', 'cookie_domain') ?? ''
  const scope = DOMAIN.test(domain) ? `; Domain=${domain}` : ''
  const flags = `${secure ? '; Secure' : ''}${scope}; SameSite=${sameSite(config.get('chttpd_auth', 'same_site'), secure)}`
  // Fastify would send both.
  reply.removeHeader('set-cookie')
  reply.header('Set-Cookie', `AuthSession=${value}; Version=1${lifetime}; Path=/; HttpOnly${flags}`)
}

/**
 * CouchDB sends `SameSite` only if it is configured, and browsers then differ. They drop cookies with `None` that are not
 * `Secure`.
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
