/** The ways in, each thin: what came with the request, handed to the room auth; protocol.md 11.2. */
import { parseCookie } from 'cookie'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Account } from '../auth/accounts.ts'
import { readProxyAuth } from '../auth/credentials.ts'
import { userOfToken } from '../auth/token-record.ts'
import type { Config } from '../config/config.ts'
import type { HandlerName } from '../config/value-rules.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { isFromProxy, isSecure } from './transport/client-address.ts'

const BASIC = /^basic +(.*)$/i
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/
const BEARER = /^bearer +(.*)$/i

/** @returns whether the request's credentials are of the handler's kind, and good; at once where there are none */
type Handler = (request: FastifyRequest, reply: FastifyReply) => boolean | Promise<boolean>

export const HANDLERS: Readonly<Record<HandlerName, Handler>> = {
  cookie: (request, reply) =>
    request.headers.cookie?.includes('AuthSession') ? readSession(request, reply) : false,
  default: (request, reply) =>
    bringsCredentials(request.headers.authorization) ? readBasic(request, reply) : false,
  proxy: (request) => {
    const { config } = request.server.services
    const claimed = readProxyAuth(config, request.headers, () => isFromProxy(request))
    return claimed === null ? false : admitClaimed(request, claimed, 'proxy')
  },
  jwt: (request) => {
    const token = BEARER.exec(request.headers.authorization ?? '')?.[1]
    return token === undefined ? false : readToken(request, token.trim())
  },
}

function admit(request: FastifyRequest, user: UserCtx, handler: HandlerName): true {
  request.user = user
  request.identity = IDENTITIES[handler]
  return true
}

/**
 * Of a cookie that is there twice the first counts: RFC 6265 5.4 puts the more specific path first.
 * @throws malformed_cookie, and clears it: a page cannot, since it cannot see it
 */
async function readSession(request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
  const value = parseCookie(request.headers.cookie ?? '').AuthSession
  if (!value) return false
  const state = await request.server.sessions.read(value, request.askedAt)
  if (state === 'malformed') {
    clearSession(request, reply)
    throw new CouchError('malformed_cookie')
  }
  if (state === 'expired') request.hasExpiredSession = true
  if (state === 'expired' || state === null) return false
  const { account, renewal } = state
  request.session = value
  if (renewal !== null && !request.isAskedAgain) setSession(request, reply, renewal)
  return admit(request, { name: account.name, roles: account.roles }, 'cookie')
}

/**
 * Whether the header holds a name and a password. Other schemes, text without a colon, and the pair `_`:`_`,
 * which means logged out, are passed over.
 * @throws invalid_base64_credentials
 */
function bringsCredentials(header: string | undefined): boolean {
  const encoded = BASIC.exec(header ?? '')?.[1]?.trim()
  if (encoded === undefined) return false
  if (!BASE64.test(encoded)) throw new CouchError('invalid_base64_credentials')
  const text = Buffer.from(encoded, 'base64').toString()
  return text.includes(':') && text !== '_:_'
}

/** Runs the parser of `@fastify/basic-auth`, which calls {@link checkCredentials}. */
function readBasic(request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
  return new Promise((resolve, reject) => {
    request.server.basicAuth.call(request.server, request, reply, (error?: Error) => {
      if (error) reject(error)
      else resolve(true)
    })
  })
}

/**
 * Lets in who has the right password, or a device token in its place. That a password is wrong which was right when
 * the request came is nobody's guess, and counts as no failure.
 * @throws wrong_credentials, account_locked, unavailable
 */
export async function checkCredentials(
  name: string,
  password: string,
  request: FastifyRequest,
): Promise<void> {
  const { credentials, tokens } = request.server.services
  if (tokens.looksLike(password)) return checkToken(name, password, request)
  const user = await credentials.check(name, password, request.isAskedAgain ? null : request)
  if (user === null) throw wrongCredentials(request)
  admit(request, user, 'default')
}

/** A lockout does not hold up tokens: nobody guesses one, and one lost device must not lock out the others. */
async function checkToken(name: string, password: string, request: FastifyRequest): Promise<void> {
  const { accounts, credentials, tokens } = request.server.services
  const token = tokens.check(name, password)
  const account = token === null ? null : await accounts.find(name)
  if (token === null || account === null) {
    if (!request.isAskedAgain) credentials.refusedToken(name, request)
    throw wrongCredentials(request)
  }
  request.user = userOfToken(account, token)
  request.identity = { handler: 'token', token: token.id }
}

function wrongCredentials(request: FastifyRequest): CouchError {
  return new CouchError('wrong_credentials', request.routeOptions.config.wrongCredentials)
}

async function readToken(request: FastifyRequest, token: string): Promise<boolean> {
  const { name, roles } = await request.server.jwt.verify(token, request.askedAt, request.address)
  if (await admitClaimed(request, { name, roles }, 'jwt')) return true
  throw new CouchError('unauthorized', 'The sub claim names no account of this server.')
}

/** Lets in whom a token or a proxy names, as far as the server grants what they say. */
async function admitClaimed(
  request: FastifyRequest,
  claimed: UserCtx,
  handler: 'jwt' | 'proxy',
): Promise<boolean> {
  const { accounts, config, policy } = request.server.services
  const { accountsOnly } = policy
  const account = accountsOnly && claimed.name !== null ? await accounts.find(claimed.name) : null
  // A proxy is the operator's own; tokens are made by whoever has a key.
  const systemRoles = handler === 'proxy' || config.boolean('settee', 'jwt_admin')
  const user = grantedUser(claimed, account, { accountsOnly, systemRoles })
  return user !== null && admit(request, user, handler)
}

/** What the server makes of what others say of a caller. */
interface Grants {
  /** Roles that begin with `_`, such as `_admin`, count as well (`settee/jwt_admin`). */
  readonly systemRoles: boolean
  /** As {@link Policy.accountsOnly}. */
  readonly accountsOnly: boolean
}

/**
 * What somebody else's word (a token, a proxy) makes a caller: no more than the server grants. Whoever holds a key can
 * put any role into a token, and clients for notes always claim `_admin` (clients.md 1.2).
 * @param account of that name, where there is one
 * @returns null when there must be an account, and is none
 */
function grantedUser(claimed: UserCtx, account: Account | null, grants: Grants): UserCtx | null {
  if (grants.accountsOnly && account === null) return null
  const roles = claimed.roles.filter((role) => {
    if (grants.accountsOnly && !account?.roles.includes(role)) return false
    return grants.systemRoles || !role.startsWith('_')
  })
  return { name: claimed.name, roles }
}

/** How a caller was let in. */
export interface Identity {
  /** CouchDB's name of the handler, or `token`: by Basic, with a device token; null for nobody in particular. */
  readonly handler: HandlerName | 'token' | null
  /** The id of the device token that let him in. */
  readonly token: string | null
}

const identity = (handler: HandlerName | null): Identity => Object.freeze({ handler, token: null })

export const NOBODY = identity(null)

/** One for all requests of a kind: a request makes none. */
const IDENTITIES: Readonly<Record<HandlerName, Identity>> = {
  cookie: identity('cookie'),
  default: identity('default'),
  proxy: identity('proxy'),
  jwt: identity('jwt'),
}

// The cookie `AuthSession` in answers; protocol.md 11.3.

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

/** @returns whether nobody is served unless he says who he is. Either key counts, since `_up` is open in any case (clients.md, pain 17) */
export function requiresUser(config: Config): boolean {
  return (
    config.boolean('chttpd', 'require_valid_user') ||
    config.boolean('chttpd', 'require_valid_user_except_for_up')
  )
}
