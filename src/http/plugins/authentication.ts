import basicAuth from '@fastify/basic-auth'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ANONYMOUS, isServerAdmin, PARTY_ADMIN } from '../../auth/access.ts'
import { isOpen } from '../../auth/admins.ts'
import { userOfToken } from '../../auth/token-record.ts'
import { CouchError } from '../../core/errors.ts'
import type { UserCtx } from '../../core/types.ts'

const BASIC = /^basic +(.*)$/i
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/

declare module 'fastify' {
  interface FastifyRequest {
    /** Who is asking; set before any handler runs. */
    user: UserCtx
    /** What let the caller in. */
    identity: Identity
  }
}

export interface Identity {
  readonly handler: 'cookie' | 'default' | 'token' | 'proxy' | 'jwt' | null
  /** The id of the device token. */
  readonly token: string | null
}

const NOTHING: Identity = { handler: null, token: null }
const PASSWORD: Identity = { handler: 'default', token: null }

/**
 * Says who is asking, before anything else is decided (protocol.md 1.4, 11.2). While no admin is configured
 * everybody is one, and credentials are not looked at.
 */
export const authentication = fp(
  async (app) => {
    app.decorateRequest('user')
    app.decorateRequest('identity')
    await app.register(basicAuth, { validate: checkCredentials, strictCredentials: false })
    app.addHook('onRequest', authenticate)
  },
  { name: 'authentication', dependencies: ['errors'] },
)

/**
 * Finds `request.user` by the credentials that came with the request; a feed that is open does so again when accounts
 * have changed.
 * @throws wrong_credentials, invalid_base64_credentials, unauthorized
 */
export async function authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { config } = request.server.services
  request.user = ANONYMOUS
  request.identity = NOTHING
  if (request.routeOptions.config.credentials === 'ignored') return
  if (isOpen(config)) request.user = PARTY_ADMIN
  else if (bringsCredentials(request.headers.authorization)) await readBasic(request, reply)
  if (isAnonymous(request.user) && config.boolean('chttpd', 'require_valid_user')) {
    throw new CouchError('unauthorized', 'Authentication required.')
  }
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

/** Runs the plugin's parser, which calls {@link checkCredentials}. */
function readBasic(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return new Promise((resolve, reject) => {
    request.server.basicAuth.call(request.server, request, reply, (error?: Error) => {
      if (error) reject(error)
      else resolve()
    })
  })
}

async function checkCredentials(name: string, password: string, request: FastifyRequest): Promise<void> {
  const { credentials, tokens } = request.server.services
  const isToken = tokens.looksLike(password)
  const user = isToken ? await checkToken(name, password, request) : await credentials.check(name, password)
  if (user === null) {
    throw new CouchError('wrong_credentials', request.routeOptions.config.wrongCredentials)
  }
  request.user = user
  if (!isToken) request.identity = PASSWORD
}

/** A token that is revoked costs no hash, however often the device comes back with it. */
async function checkToken(name: string, secret: string, request: FastifyRequest): Promise<UserCtx | null> {
  const { accounts, tokens } = request.server.services
  const grant = tokens.check(name, secret)
  const account = grant && (await accounts.find(name))
  if (!grant || !account) return null
  request.identity = { handler: 'token', token: grant.id }
  return userOfToken(account, grant)
}

function isAnonymous(user: UserCtx): boolean {
  return user.name === null && !isServerAdmin(user)
}
