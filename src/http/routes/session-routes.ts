/** Logging in and out with a cookie; protocol.md 11.3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Account, isAnonymous } from '../../auth/accounts.ts'
import { looksLikeSecret } from '../../auth/token-record.ts'
import { CouchError } from '../../core/errors.ts'
import { isTooDeep } from '../../core/json.ts'
import { networkOf } from '../../core/network.ts'
import { bytesOf } from '../../documents/body-collector.ts'
import { addressOfPath, sendJson } from '../replies.ts'
import { localPath, mediaType, queryOf, textParam } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { clearSession, setSession } from '../session-cookie.ts'
import { SMALL_BODY, withOptionalBody } from '../transport/body-reader.ts'

export const sessionRoutes: readonly Path[] = [
  {
    url: '/_session',
    allow: 'GET,HEAD,POST,DELETE',
    access: 'public',
    methods: {
      GET: { handler: showSession },
      POST: { handler: logIn, credentials: 'optional' },
      DELETE: { handler: logOut, credentials: 'optional' },
    },
  },
]

/** Enough for a name and a password or token. */
const BODY_LIMIT = { bytes: SMALL_BODY, key: 'the largest body of this call' }
const BAD_TYPE = "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'"

async function showSession(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { user, identity, server } = request
  if (isAnonymous(user) && textParam(queryOf(request), 'basic') === 'true') {
    throw new CouchError('unauthorized', 'Please login.')
  }
  const database = server.services.config.get('chttpd_auth', 'authentication_db')
  // A token is a Basic password; clients know no other name for that.
  const authenticated = identity.handler === 'token' ? 'default' : identity.handler
  return sendJson(reply, 200, {
    ok: true,
    userCtx: { name: user.name, roles: user.roles },
    info: {
      ...(database && { authentication_db: server.services.databases.usersDatabase }),
      authentication_handlers: server.handlers(),
      ...(authenticated !== null && { authenticated }),
    },
  })
}

async function logIn(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const next = pathParam(request, 'next')
  const fail = pathParam(request, 'fail')
  const login = await readLogin(request)
  const account = await accountOf(request, login)
  if (account === null) {
    clearSession(request, reply)
    if (fail === undefined) throw new CouchError('wrong_credentials')
    return redirect(request, reply, fail, new CouchError('wrong_credentials').toBody())
  }
  setSession(request, reply, await request.server.sessions.open(account, Date.now()))
  const answer = { ok: true, name: account.name, roles: account.roles }
  return next === undefined ? sendJson(reply, 200, answer) : redirect(request, reply, next, answer)
}

/** A device token opens no session, since a cookie would outlive its revocation. */
async function accountOf(request: FastifyRequest, { name, password }: Login): Promise<Account | null> {
  const { credentials, tokens } = request.server.services
  if (!looksLikeSecret(password)) return credentials.login(name, password, request)
  if ((await tokens.check(name, password, networkOf(request.address))) === null) {
    credentials.refusedToken(name, request)
    return null
  }
  throw new CouchError('wrong_credentials', 'A device token opens no session; send it as the Basic password.')
}

async function readLogin(request: FastifyRequest): Promise<Login> {
  const type = mediaType(request)
  const isForm = type === 'application/x-www-form-urlencoded'
  if (!isForm && type !== 'application/json') throw new CouchError('bad_content_type', BAD_TYPE)
  const bytes = await withOptionalBody(request, BODY_LIMIT, async (body) =>
    body === null ? new Uint8Array() : bytesOf(body),
  )
  return isForm ? loginOfForm(bytes) : loginOfJson(bytes)
}

async function logOut(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const next = pathParam(request, 'next')
  if (request.session !== null) await request.server.sessions.end(request.session, Date.now())
  clearSession(request, reply)
  return next === undefined
    ? sendJson(reply, 200, { ok: true })
    : redirect(request, reply, next, { ok: true })
}

/**
 * The path to redirect to afterwards.
 * @throws bad_request for anything but a path of this server: otherwise a link to this server could lead anywhere
 */
function pathParam(request: FastifyRequest, name: string): string | undefined {
  const text = textParam(queryOf(request), name)
  if (text === undefined) return undefined
  const path = localPath(text)
  if (path === null) throw new CouchError('bad_request', `${name} must be a path of this server.`)
  return path
}

function redirect(request: FastifyRequest, reply: FastifyReply, path: string, answer: unknown): FastifyReply {
  reply.header('Location', addressOfPath(request, path))
  return sendJson(reply, 302, answer)
}

interface Login {
  readonly name: string
  readonly password: string
}

/** @throws bad_request, invalid_json for bytes that are not UTF-8 */
function loginOfForm(bytes: Uint8Array): Login {
  const form = new URLSearchParams(textOf(bytes))
  return loginOf((name) => form.get(name) ?? undefined)
}

/** @throws invalid_json, too_deep, bad_request */
function loginOfJson(bytes: Uint8Array): Login {
  const value = parsed(textOf(bytes))
  if (isTooDeep(value)) throw new CouchError('too_deep')
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new CouchError('body_not_object')
  }
  const body = new Map<string, unknown>(Object.entries(value))
  return loginOf((name) => {
    const member = body.get(name)
    if (member === undefined || typeof member === 'string') return member
    throw new CouchError('bad_request', `${name} must be a string`)
  })
}

/** CouchDB's member is `name`; Cloudant's clients send `username`. */
function loginOf(read: (name: string) => string | undefined): Login {
  const name = read('name')
  const username = read('username')
  if (name !== undefined && username !== undefined && name !== username) {
    throw new CouchError('bad_request', 'request body contains different usernames')
  }
  const given = name ?? username
  if (given === undefined) throw new CouchError('bad_request', 'request body must contain a username')
  return { name: given, password: read('password') ?? '' }
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new CouchError('invalid_json')
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new CouchError('invalid_json')
  }
}
