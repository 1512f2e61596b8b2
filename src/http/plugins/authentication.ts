import basicAuth from '@fastify/basic-auth'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { type AccountListener, ANONYMOUS, isAnonymous, PARTY_ADMIN } from '../../auth/accounts.ts'
import { isOpen } from '../../auth/admins.ts'
import { JwtVerifier } from '../../auth/jwt.ts'
import { Sessions } from '../../auth/sessions.ts'
import type { Config } from '../../config/config.ts'
import { DEFAULT_HANDLERS, type HandlerName, parseHandlers } from '../../config/value-rules.ts'
import { CouchError } from '../../core/errors.ts'
import type { UserCtx } from '../../core/types.ts'
import {
  checkCredentials,
  HANDLERS,
  type Identity,
  NOBODY,
  requiresUser,
} from '../authentication-handlers.ts'

declare module 'fastify' {
  interface FastifyInstance {
    sessions: Sessions
    jwt: JwtVerifier
    /** The ways in, in their order; follows the configuration. */
    handlers(): readonly HandlerName[]
    /** How often something has changed that may have taken rights from somebody. */
    readonly doubts: { count: number }
  }
  interface FastifyRequest {
    /** Who is asking; set before any handler runs. */
    user: UserCtx
    /** How he was let in. */
    identity: Identity
    /** The value of the cookie that let the caller in. */
    session: string | null
    /** It would have let him in, had its time not been over. */
    hasExpiredSession: boolean
    /** When the credentials were first looked at, in milliseconds since 1970; 0: not yet. */
    askedAt: number
    /** They are looked at once more, in the midst of a feed. */
    isAskedAgain: boolean
    /** The count of `doubts` when they were looked at last. */
    admittedAt: number
  }
}

/**
 * Says who is asking, before anything else is decided (protocol.md 1.4, 11.2). While no admin is configured
 * everybody is one, and credentials are not looked at.
 */
export const authentication = fp(
  async (app) => {
    const { config, accounts, logger } = app.services
    app.decorateRequest('user').decorateRequest('identity')
    app.decorateRequest('session', null).decorateRequest('hasExpiredSession', false)
    app.decorateRequest('askedAt', 0).decorateRequest('isAskedAgain', false)
    app.decorateRequest('admittedAt', 0)
    app.decorate('sessions', new Sessions({ config, accounts, warn: (message) => logger.warn(message) }))
    app.decorate('handlers', handlersOf(config))
    countDoubts(app)
    decorateJwt(app)
    await app.register(basicAuth, { validate: checkCredentials, strictCredentials: false })
    app.addHook('onRequest', authenticate)
    app.addHook('onRequest', (request, _reply, done) => {
      if (request.routeOptions.config.credentials !== 'ignored') {
        app.turns.settle(request.raw, !isAnonymous(request.user))
      }
      done()
    })
  },
  { name: 'authentication', dependencies: ['errors'] },
)

function countDoubts(app: FastifyInstance): void {
  const doubts = { count: 0 }
  app.decorate('doubts', doubts)
  const forget = onDoubt(app, () => {
    doubts.count += 1
  })
  app.addHook('onClose', async () => forget())
}

function decorateJwt(app: FastifyInstance): void {
  const jwt = new JwtVerifier(app.services.config)
  const forget = jwt.watch()
  app.decorate('jwt', jwt)
  app.addHook('onClose', async () => forget())
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
 * Finds `request.user` and `request.identity` by the credentials that came with the request; a feed that is open does
 * so again when accounts have changed. Times are held against the clock of when the request came: a feed outlives the
 * cookie or the token that it came with, but not the account, its password or the session.
 * @throws wrong_credentials, invalid_base64_credentials, malformed_cookie, bad_token, account_locked, unauthorized,
 *   unavailable
 */
export async function authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { server } = request
  const { config } = server.services
  const { credentials, heeds } = request.routeOptions.config
  request.admittedAt = server.doubts.count
  request.isAskedAgain = request.askedAt !== 0
  if (!request.isAskedAgain) request.askedAt = Date.now()
  request.user = ANONYMOUS
  request.identity = NOBODY
  if (credentials === 'ignored' && heeds?.(request) !== true) return
  if (isOpen(config)) {
    request.user = PARTY_ADMIN
    return
  }
  for (const name of server.handlers()) {
    const found = HANDLERS[name](request, reply)
    if (found === true || (found !== false && (await found))) return
  }
  if (credentials !== 'optional' && requiresUser(config)) {
    throw new CouchError('unauthorized', 'Authentication required.')
  }
}

// Whatever can take back what lets callers in, heard in one place.

/** Sections that hold keys which callers' tokens are signed with. */
const KEYS: ReadonlySet<string> = new Set(['jwt_auth', 'jwt_keys'])
/** What else of `[chttpd]` and `[chttpd_auth]` decides who is let in. */
const RULES: ReadonlySet<string> = new Set([
  'authentication_handlers',
  'require_valid_user',
  'require_valid_user_except_for_up',
  'secret',
  'proxy_use_secret',
])
const RULE_SECTIONS: ReadonlySet<string> = new Set(['chttpd', 'chttpd_auth', 'couch_httpd_auth'])

/**
 * Calls `listener` with the names of accounts that may have lost something: the account itself, its password, its
 * roles, one of its device tokens or sessions; with `all` where keys or rules have changed. That a cookie's or a
 * token's time is over is no such thing: what began in time goes on.
 * @returns what ends the calls
 */
export function onDoubt(app: FastifyInstance, listener: AccountListener): () => void {
  const { accounts, config, tokens } = app.services
  const forget = [accounts, tokens, app.sessions].map((source) => source.onChange(listener))
  forget.push(
    config.onChange((section, key) => {
      if (KEYS.has(section) || (RULE_SECTIONS.has(section) && RULES.has(key))) listener('all')
    }),
  )
  return () => {
    for (const each of forget) each()
  }
}

/** Notes of each request that a device token let in what sent it, for the list of the account's tokens. */
export const tokenUse = fp(
  async (app) => {
    const { tokens } = app.services
    app.addHook('onRequest', (request, _reply, done) => {
      const { token } = request.identity
      if (token !== null) tokens.noteUse(token, request.headers['user-agent'], request.address)
      done()
    })
  },
  { name: 'token-use', dependencies: ['authentication'] },
)
