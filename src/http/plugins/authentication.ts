/** Finds out who sends a request, before anything else is decided (protocol.md 1.4, 11.2). */
import basicAuth from '@fastify/basic-auth'
import { parseCookie } from 'cookie'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { type Account, ANONYMOUS, isAnonymous } from '../../auth/accounts.ts'
import { isOpen } from '../../auth/admins.ts'
import { readProxyAuth } from '../../auth/credentials.ts'
import { JwtVerifier } from '../../auth/jwt.ts'
import { Sessions } from '../../auth/sessions.ts'
import { isOfEarlier, looksLikeSecret, userOfToken } from '../../auth/token-record.ts'
import type { Config } from '../../config/config.ts'
import { DEFAULT_HANDLERS, type HandlerName, parseHandlers } from '../../config/value-rules.ts'
import { CouchError } from '../../core/errors.ts'
import { networkOf } from '../../core/network.ts'
import { SYSTEM_USER, type UserCtx } from '../../core/types.ts'
import { clearSession, setSession } from '../session-cookie.ts'
import { Connection, type ConnectionLogin, isFromProxy } from '../transport/connection.ts'

/** How a caller was authenticated. */
interface Identity {
  /** CouchDB's name of the handler; `token`: Basic with a device token; null: the caller is anonymous. */
  readonly handler: HandlerName | 'token' | null
  /** The id of the caller's device token. */
  readonly token: string | null
  /** The name of that token. */
  readonly tokenName: string | null
}

declare module 'fastify' {
  interface FastifyInstance {
    sessions: Sessions
    jwt: JwtVerifier
    /** The names of the authentication handlers, in their order; follows the configuration. */
    handlers(): readonly HandlerName[]
  }
  interface FastifyRequest {
    /** The caller; set before any handler runs. */
    user: UserCtx
    identity: Identity
    /** The value of the caller's session cookie. */
    session: string | null
    /** There is a session cookie, which has expired. */
    hasExpiredSession: boolean
    /** When the credentials were first checked, in milliseconds since 1970; 0: not yet. */
    credentialsCheckedAt: number
    /** The credentials are being checked once more, after a revocation. */
    isReauthentication: boolean
    /** The count of `revocations` at the last check of the credentials. */
    revocationsSeen: number
  }
}

/** While no admin is configured, every caller is one, and credentials are ignored. */
export const authentication = fp(
  async (app) => {
    const { config, accounts, databases, logger } = app.services
    app.decorateRequest('user').decorateRequest('identity')
    app.decorateRequest('session', null).decorateRequest('hasExpiredSession', false)
    app.decorateRequest('credentialsCheckedAt', 0).decorateRequest('isReauthentication', false)
    app.decorateRequest('revocationsSeen', 0)
    const warn = (message: string) => logger.warn(message)
    const sessions = new Sessions({ config, accounts, records: databases, warn })
    app.decorate('sessions', sessions)
    app.addHook('onClose', () => sessions.close())
    app.decorate('handlers', handlersOf(config))
    decorateJwt(app)
    await app.register(basicAuth, { validate: checkCredentials, strictCredentials: false })
  },
  { name: 'authentication', dependencies: ['errors'] },
)

function decorateJwt(app: FastifyInstance): void {
  const jwt = new JwtVerifier(app.services.config)
  const stop = jwt.watch()
  app.decorate('jwt', jwt)
  app.addHook('onClose', async () => stop())
}

function handlersOf(config: Config): () => readonly HandlerName[] {
  let text = ''
  let handlers = DEFAULT_HANDLERS
  return () => {
    const now = config.get('chttpd', 'authentication_handlers') ?? ''
    if (now !== text) {
      handlers = parseHandlers(now) ?? DEFAULT_HANDLERS
      text = now
    }
    return handlers
  }
}

/**
 * Sets `request.user` and `request.identity` by the request's credentials. An open feed calls it again when accounts have
 * changed. Expiry is checked against the time of the first call: a feed outlives the cookie or token of its request, but
 * not the account, its password or the session.
 * @returns no promise if nothing had to be waited for
 * @throws wrong_credentials, invalid_base64_credentials, malformed_cookie, bad_token, account_locked, unauthorized,
 *   unavailable
 */
export function authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> | undefined {
  const { server } = request
  const { config } = server.services
  const { credentials, checksCredentials } = request.routeOptions.config
  request.revocationsSeen = server.revocations.count
  request.isReauthentication = request.credentialsCheckedAt !== 0
  if (!request.isReauthentication) request.credentialsCheckedAt = Date.now()
  request.user = ANONYMOUS
  request.identity = NO_IDENTITY
  if (credentials === 'ignored' && checksCredentials?.(request) !== true) return undefined
  if (isOpen(config)) {
    request.user = SYSTEM_USER
    return undefined
  }
  return askHandlers(request, reply, server.handlers())
}

/** Tells those who wait for it who has sent a request, when {@link authenticate} has let it pass. */
export function noteCaller(request: FastifyRequest): void {
  const { server, identity, raw, headers } = request
  if (request.routeOptions.config.credentials !== 'ignored')
    server.turns.noteAccount(raw, !isAnonymous(request.user))
  // For the list of the account's tokens.
  if (identity.token !== null)
    server.services.tokens.noteUse(identity.token, headers['user-agent'], request.address)
}

/** Asks the handlers in their order until one finds valid credentials. */
function askHandlers(
  request: FastifyRequest,
  reply: FastifyReply,
  handlers: readonly HandlerName[],
): Promise<void> | undefined {
  if (repeatsLogin(request)) return undefined
  return askEach(request, reply, handlers)
}

function askEach(
  request: FastifyRequest,
  reply: FastifyReply,
  handlers: readonly HandlerName[],
): Promise<void> | undefined {
  for (const [at, name] of handlers.entries()) {
    const found = HANDLERS[name](request, reply)
    if (found === true) return undefined
    if (found === false) continue
    const others = handlers.slice(at + 1)
    return found.then((isFound) => (isFound ? undefined : askEach(request, reply, others)))
  }
  if (
    request.routeOptions.config.credentials !== 'optional' &&
    requiresUser(request.server.services.config)
  ) {
    throw new CouchError('unauthorized', 'Authentication required.')
  }
  return undefined
}

/** @returns whether anonymous callers are refused. Either key counts, since `_up` is open in any case (clients.md, pain 17) */
export function requiresUser(config: Config): boolean {
  return (
    config.boolean('chttpd', 'require_valid_user') ||
    config.boolean('chttpd', 'require_valid_user_except_for_up')
  )
}

const BASIC = /^basic +(.*)$/i
/** With its padding, as CouchDB demands. */
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/
const BEARER = /^bearer +(.*)$/i

/** @returns whether the request has valid credentials of the handler's kind; no promise if it has none */
type Handler = (request: FastifyRequest, reply: FastifyReply) => boolean | Promise<boolean>

const HANDLERS: Readonly<Record<HandlerName, Handler>> = {
  cookie: (request, reply) =>
    request.headers.cookie?.includes('AuthSession') ? readSession(request, reply) : false,
  default: (request, reply) =>
    hasBasicCredentials(request.headers.authorization) ? readBasic(request, reply) : false,
  proxy: (request) => {
    const { config } = request.server.services
    const claimed = readProxyAuth(config, request.headers, () => isFromProxy(request))
    return claimed === null ? false : acceptClaimed(request, claimed, 'proxy')
  },
  jwt: (request) => {
    const token = BEARER.exec(request.headers.authorization ?? '')?.[1]
    return token === undefined ? false : readToken(request, token.trim())
  },
}

const identityOf = (handler: HandlerName | null): Identity =>
  Object.freeze({ handler, token: null, tokenName: null })

const NO_IDENTITY = identityOf(null)

/** Shared by all requests of a handler, so that a request allocates none. */
const IDENTITIES: Readonly<Record<HandlerName, Identity>> = {
  cookie: identityOf('cookie'),
  default: identityOf('default'),
  proxy: identityOf('proxy'),
  jwt: identityOf('jwt'),
}

function accept(request: FastifyRequest, user: UserCtx, handler: HandlerName): true {
  request.user = user
  request.identity = IDENTITIES[handler]
  return true
}

/**
 * Of two session cookies the first counts: RFC 6265 5.4 puts the more specific path first.
 * @throws malformed_cookie, and clears the cookie, since a page cannot: it does not see it
 */
async function readSession(request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
  const value = parseCookie(request.headers.cookie ?? '').AuthSession
  if (!value) return false
  const state = await request.server.sessions.read(value, request.credentialsCheckedAt)
  if (state === 'malformed') {
    clearSession(request, reply)
    throw new CouchError('malformed_cookie')
  }
  if (state === 'expired') request.hasExpiredSession = true
  if (state === 'expired' || state === null) return false
  const { account, renewal, until, isOpen: isCurrent } = state
  request.session = value
  accept(request, { name: account.name, roles: account.roles }, 'cookie')
  if (renewal === null) rememberLogin(request, { until, isCurrent })
  else if (!request.isReauthentication) setSession(request, reply, renewal)
  return true
}

/**
 * Whether the header holds a name and a password. Other schemes are ignored. So are text without a colon and the pair
 * `_`:`_`, which means logged out.
 * @throws invalid_base64_credentials
 */
function hasBasicCredentials(header: string | undefined): boolean {
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

/** How long a connection may repeat a login without a check, in milliseconds. */
const REPEAT_MS = 5000

/**
 * Accepts the headers that the last request of the connection had, if they were right and no account, rule, lockout, token
 * or session has changed since. A check takes up to a third of the CPU time of a GET: a tenth for a remembered password.
 */
function repeatsLogin(request: FastifyRequest): boolean {
  const login = Connection.of(request.raw.socket)?.login
  const { authorization, cookie } = request.headers
  if (!login || login.authorization !== authorization || login.cookie !== cookie) return false
  const { revocations, services } = request.server
  const isOver = login.revocations !== revocations.count || request.credentialsCheckedAt >= login.until
  if (isOver || request.isReauthentication || !services.accounts.isUpToDate() || !login.isCurrent())
    return false
  const { user, identity, session } = login.caller
  request.user = user
  request.identity = identity
  request.session = session
  if (identity.handler === 'default') services.credentials.countRepeated()
  return true
}

/** @param until when the credentials expire, in milliseconds since 1970 */
function rememberLogin(
  request: FastifyRequest,
  { until = Infinity, isCurrent }: Pick<ConnectionLogin, 'isCurrent'> & { readonly until?: number },
): void {
  const connection = Connection.of(request.raw.socket)
  // A trusted proxy has many clients.
  if (connection === undefined || connection.isProxy || request.isReauthentication) return
  const { user, identity, session, revocationsSeen: revocations, credentialsCheckedAt } = request
  const { authorization, cookie } = request.headers
  connection.login = {
    authorization,
    cookie,
    caller: { user, identity, session },
    revocations,
    until: Math.min(until, credentialsCheckedAt + REPEAT_MS),
    isCurrent,
  }
}

/**
 * Accepts the account's password, or one of its device tokens in place of it. A password that was right when the request
 * arrived does not count as a failure, even if it has changed since.
 * @throws wrong_credentials, account_locked, unavailable
 */
async function checkCredentials(name: string, password: string, request: FastifyRequest): Promise<void> {
  const { credentials } = request.server.services
  if (looksLikeSecret(password)) return checkToken(name, password, request)
  const user = await credentials.check(name, password, request.isReauthentication ? null : request)
  if (user === null) throw wrongCredentials(request)
  accept(request, user, 'default')
  rememberLogin(request, { isCurrent: () => !credentials.isWatching })
}

/** A lockout does not apply to tokens: they cannot be guessed, and one lost device must not lock out the others. */
async function checkToken(name: string, password: string, request: FastifyRequest): Promise<void> {
  const { accounts, credentials, tokens } = request.server.services
  const found = tokens.check(name, password, networkOf(request.address))
  const token = found instanceof Promise ? await found : found
  const account = token === null ? null : await accounts.find(name)
  if (token === null || account === null || isOfEarlier(account, token)) {
    if (!request.isReauthentication) credentials.refusedToken(name, request)
    throw wrongCredentials(request)
  }
  request.user = userOfToken(account, token)
  request.identity = { handler: 'token', token: token.id, tokenName: token.name }
  rememberLogin(request, { isCurrent: () => tokens.isKnown(name, token.id) })
}

function wrongCredentials(request: FastifyRequest): CouchError {
  const { isHosted } = request.server.services.config
  return new CouchError(
    'wrong_credentials',
    isHosted ? undefined : request.routeOptions.config.wrongCredentials,
  )
}

async function readToken(request: FastifyRequest, token: string): Promise<boolean> {
  const { server, credentialsCheckedAt, address } = request
  const { name, roles } = await server.jwt.verify(token, credentialsCheckedAt, address)
  if (await acceptClaimed(request, { name, roles }, 'jwt')) return true
  throw new CouchError('unauthorized', 'The sub claim names no account of this server.')
}

/** Accepts the user that a token or a proxy names, with the roles that the server grants. */
async function acceptClaimed(
  request: FastifyRequest,
  claimed: UserCtx,
  handler: 'jwt' | 'proxy',
): Promise<boolean> {
  const { accounts, config, policy } = request.server.services
  const { accountsOnly } = policy
  const account = accountsOnly && claimed.name !== null ? await accounts.find(claimed.name) : null
  // The proxy belongs to the operator; anybody with a key makes tokens.
  const systemRoles = handler === 'proxy' || config.boolean('settee', 'jwt_admin')
  const user = grantedUser(claimed, account, { accountsOnly, systemRoles })
  return user !== null && accept(request, user, handler)
}

interface Grants {
  /** Roles that begin with `_`, such as `_admin`, count as well (`settee/jwt_admin`). */
  readonly systemRoles: boolean
  /** As {@link Policy.accountsOnly}. */
  readonly accountsOnly: boolean
}

/**
 * The user that a token or a proxy claims, reduced to what the server grants. A holder of a key can put any role into a
 * token, and clients for notes always claim `_admin` (clients.md 1.2).
 * @param account the account with that name, if there is one
 * @returns null if an account is required and missing
 */
function grantedUser(claimed: UserCtx, account: Account | null, grants: Grants): UserCtx | null {
  if (grants.accountsOnly && account === null) return null
  const roles = claimed.roles.filter((role) => {
    if (grants.accountsOnly && !account?.roles.includes(role)) return false
    return grants.systemRoles || !role.startsWith('_')
  })
  return { name: claimed.name, roles }
}
