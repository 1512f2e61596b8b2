/** Device tokens: secrets that a device uses in place of the password; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../../auth/accounts.ts'
import { lagsOf } from '../../auth/device-positions.ts'
import { UNUSED, type UsedToken } from '../../auth/token-record.ts'
import { CouchError } from '../../core/errors.ts'
import { reauthorize } from '../plugins/revocation.ts'
import { sendJson } from '../replies.ts'
import { pageLimit, pathParam, queryOf, textParam, viewBoolean } from '../request-params.ts'
import { COUNT, type Path, type Schema, shape, VIEW_BOOLEAN } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'

const ACCOUNT_QUERY: Schema = {
  type: 'object',
  properties: { account: { type: 'string', minLength: 1 } },
}
const LIST_QUERY: Schema = {
  type: 'object',
  properties: {
    ...ACCOUNT_QUERY.properties,
    all: VIEW_BOOLEAN,
    positions: VIEW_BOOLEAN,
    limit: COUNT,
    after: { type: 'string' },
  },
}
const PAGE = 100
const MAX_PAGE = 1000

const NO_TOKENS = { tokens: [], last: null }

export const tokenRoutes: readonly Path[] = [
  {
    url: '/_settee/tokens',
    allow: 'GET,HEAD,POST',
    access: 'user',
    methods: {
      GET: { handler: listTokens, query: LIST_QUERY },
      POST: { handler: makeToken, query: ACCOUNT_QUERY, json: true },
    },
  },
  {
    url: '/_settee/tokens/:id',
    allow: 'DELETE',
    access: 'user',
    methods: { DELETE: { handler: revokeToken } },
  },
]

interface TokenBody {
  readonly name: string
  readonly admin?: boolean
}

const tokenBody = shape<TokenBody>({
  allOf: [
    { type: 'object', refusal: ['body_not_object', 'Request body must be a JSON object'] },
    { required: ['name'], refusal: ['bad_request', '`name` member must exist.'] },
  ],
  properties: {
    name: { type: 'string', refusal: ['bad_request', '`name` member must be a string.'] },
    admin: { type: 'boolean', refusal: ['bad_request', '`admin` member must be true or false.'] },
  },
})

async function listTokens(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  refuseTokens(request)
  const query = queryOf(request)
  if (viewBoolean(query, 'all') === true) return listAllTokens(request, reply)
  const account = accountOf(request)
  const limit = pageLimit(query, MAX_PAGE, MAX_PAGE)
  const after = textParam(query, 'after') ?? ''
  const { tokens, last } =
    account === null ? NO_TOKENS : await request.server.services.tokens.list(account, after, limit)
  return sendJson(reply, 200, { tokens: await listed(request, tokens), next: last })
}

/** A page of the tokens of all accounts. */
async function listAllTokens(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (!isServerAdmin(request.user)) {
    throw new CouchError('forbidden', 'Only server admins may list the tokens of all accounts.')
  }
  const query = queryOf(request)
  if (textParam(query, 'account') !== undefined) {
    throw new CouchError('bad_request', 'The parameters `all` and `account` cannot be combined.')
  }
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  const { tokens, last } = await request.server.services.tokens.page(textParam(query, 'after') ?? '', limit)
  return sendJson(reply, 200, { tokens: await listed(request, tokens), next: last })
}

/** The tokens as an answer shows them, with the positions of their devices if the caller asks for them. */
async function listed(request: FastifyRequest, tokens: readonly UsedToken[]): Promise<object[]> {
  if (viewBoolean(queryOf(request), 'positions') !== true) return tokens.map(shown)
  const { services } = request.server
  const positions = tokens.map((token) => token.positions)
  const lags = await lagsOf(services.databases, request.user, positions)
  return tokens.map((token, at) => ({
    ...shown(token),
    positions: (lags[at] ?? []).map((lag) => ({ ...lag, time: timeText(lag.time) })),
  }))
}

async function makeToken(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  refuseTokens(request)
  const { accounts, tokens } = request.server.services
  const account = accountOf(request)
  if (account === null) {
    throw new CouchError('bad_request', 'A token belongs to an account, and you are not logged in.')
  }
  const { name, admin = false } = tokenBody(await readSmallJson(request))
  const owner = await accounts.find(account)
  if (owner === null) throw new CouchError('not_found', 'The account does not exist.')
  // The right may have been revoked while the body arrived.
  await reauthorize(request)
  accountOf(request)
  if (admin && !(isServerAdmin(request.user) && isServerAdmin(owner))) {
    throw new CouchError('forbidden', 'Only server admins may have tokens with the rights of a server admin.')
  }
  const { token, secret } = await tokens.make({ account, name, isAdmin: admin })
  reply.header('Cache-Control', 'no-store')
  return sendJson(reply, 201, { ...shown({ ...token, ...UNUSED }), token: secret })
}

/** A token may revoke only itself. For callers who are not server admins, other accounts' tokens do not exist. */
async function revokeToken(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = pathParam(request, 'id')
  if (request.identity.token !== id) refuseTokens(request)
  const { tokens } = request.server.services
  const token = await tokens.get(id)
  const isOwn = token !== null && token.account === request.user.name
  if (!(isOwn || isServerAdmin(request.user)) || !(await tokens.revoke(id, request.user.name ?? ''))) {
    throw new CouchError('not_found', 'The token does not exist.')
  }
  return sendJson(reply, 200, { ok: true })
}

/**
 * Whoever finds a lost phone must neither create a lasting token nor revoke those of other devices.
 * @throws forbidden for callers with a device token
 */
export function refuseTokens(request: FastifyRequest): void {
  if (request.identity.token !== null) {
    throw new CouchError(
      'forbidden',
      'A device token cannot manage tokens; log in with the password of the account.',
    )
  }
}

/** The account whose tokens the call is about; null: the caller is anonymous and names no account. */
function accountOf(request: FastifyRequest): string | null {
  const { name } = request.user
  const asked = textParam(queryOf(request), 'account')
  if (asked === undefined || asked === name) return name
  if (isServerAdmin(request.user)) return asked
  throw new CouchError('forbidden', 'Only server admins may name another account.')
}

function shown({
  id,
  account,
  name,
  isAdmin,
  created,
  lastUse,
}: UsedToken): Readonly<Record<string, unknown>> {
  return {
    id,
    account,
    name,
    admin: isAdmin,
    created: timeText(created),
    last_use: lastUse && { ...lastUse, time: timeText(lastUse.time) },
  }
}

function timeText(time: number): string {
  return new Date(time).toISOString()
}
