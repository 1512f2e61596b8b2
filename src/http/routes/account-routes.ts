/** Accounts in hosted mode: tenants, their quotas and their usage; docs/settee-api.md. */
import type { FastifyRateLimitStore } from '@fastify/rate-limit'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { addressKey } from '../../core/network.ts'
import type { Hosted } from '../../hosted/hosted.ts'
import { readQuota } from '../../hosted/quota.ts'
import type { NewAccount } from '../../hosted/tenant-accounts.ts'
import { sendJson } from '../replies.ts'
import { pageLimit, pathParam, queryOf } from '../request-params.ts'
import { COUNT, type Path, registerPaths, type Schema, shape } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'

const LIST_QUERY: Schema = {
  type: 'object',
  properties: { limit: COUNT, after: { type: 'string' }, prefix: { type: 'string' } },
}
const PAGE = 100
const MAX_PAGE = 1000
/** How many accounts one address may create in a window. */
const SIGN_UPS = 5
const SIGN_UP_WINDOW_MS = 60 * 60 * 1000

type SignUpLimit = ReturnType<FastifyInstance['createRateLimit']>

const accountPaths = (signUp: Path['methods']): readonly Path[] => [
  {
    url: '/_settee/accounts',
    allow: 'GET,HEAD,POST',
    access: 'server admin',
    methods: {
      GET: { handler: listAccounts, query: LIST_QUERY },
      POST: { handler: makeAccount, json: true },
    },
  },
  {
    url: '/_settee/accounts/:name',
    allow: 'GET,HEAD,PUT,DELETE',
    access: 'server admin',
    methods: {
      GET: { handler: accountOf },
      PUT: { handler: changeAccount },
      DELETE: { handler: deleteAccount },
    },
  },
  {
    url: '/_settee/owners/:name',
    allow: 'GET,HEAD,PUT',
    access: 'server admin',
    methods: { GET: { handler: owner }, PUT: { handler: setOwner } },
  },
  { url: '/_settee/account', allow: 'GET,HEAD', access: 'user', methods: { GET: { handler: ownAccount } } },
  { url: '/_settee/sign-up', allow: 'POST', access: 'public', methods: signUp },
]

/** The routes of accounts. In single mode they answer 404. */
export async function accountRoutes(app: FastifyInstance): Promise<void> {
  const { hosted } = app.services
  const limit = hosted === null ? null : await signUpLimit(app, hosted)
  const handler = (request: FastifyRequest, reply: FastifyReply) => signUp(limit, request, reply)
  registerPaths(app, accountPaths({ POST: { handler, json: true } }))
}

/** Loads the library only in hosted mode. Its counts are records, since all nodes count together. */
async function signUpLimit(app: FastifyInstance, { signUps }: Hosted): Promise<SignUpLimit> {
  class SharedStore implements FastifyRateLimitStore {
    incr(address: string, answer: Parameters<FastifyRateLimitStore['incr']>[1]): void {
      signUps.add(address, SIGN_UP_WINDOW_MS, SIGN_UPS).then(
        (counted) => answer(null, counted),
        (error: unknown) => answer(error as Error),
      )
    }

    child(): SharedStore {
      return this
    }
  }
  await app.register(import('@fastify/rate-limit'), { global: false, store: SharedStore })
  return app.createRateLimit({
    max: SIGN_UPS,
    timeWindow: SIGN_UP_WINDOW_MS,
    keyGenerator: (request) => addressKey(request.address),
  })
}

/** @throws not_found in single mode */
function hostedOf(request: FastifyRequest): Hosted {
  const { hosted } = request.server.services
  if (hosted === null) throw new CouchError('not_found', 'This call exists in hosted mode only.')
  return hosted
}

function nameOf(request: FastifyRequest): string {
  return pathParam(request, 'name')
}

async function listAccounts(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const query = queryOf(request)
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  return sendJson(reply, 200, await hostedOf(request).accounts.list(query.after ?? '', limit, query.prefix))
}

const TEXT = (name: string): Schema => ({
  type: 'string',
  refusal: ['bad_request', `\`${name}\` must be a string.`],
})
const CREDENTIALS: Schema = {
  type: 'object',
  properties: { name: TEXT('name'), password: TEXT('password') },
  required: ['name', 'password'],
  refusal: ['bad_request', 'The body must be a JSON object with `name` and `password`.'],
}
const NO_ROLES = ['bad_request', '`roles` must be a list of strings.'] as const

const credentialsBody = shape<{ name: string; password: string }>(CREDENTIALS)
const newAccountBody = shape<Pick<NewAccount, 'name' | 'password'> & { roles?: string[]; quota?: unknown }>({
  ...CREDENTIALS,
  properties: {
    ...CREDENTIALS.properties,
    roles: { type: 'array', items: { type: 'string', refusal: NO_ROLES }, refusal: NO_ROLES },
  },
})

async function makeAccount(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { accounts } = hostedOf(request)
  const { name, password, roles = [], quota = {} } = newAccountBody(await readSmallJson(request))
  await accounts.create({ name, password, roles, quota: readQuota(quota) })
  return sendJson(reply, 201, { ok: true, name })
}

async function accountOf(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const account = await hostedOf(request).accounts.describe(nameOf(request))
  if (account === null) throw new CouchError('not_found', 'There is no account with this name.')
  return sendJson(reply, 200, account)
}

async function ownAccount(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { accounts } = hostedOf(request)
  const { name } = request.user
  const account = name === null ? null : await accounts.describe(name)
  if (account === null) throw new CouchError('not_found', 'You have no account here.')
  return sendJson(reply, 200, account)
}

const changeBody = shape<{ quota?: unknown; suspended?: boolean }>({
  type: 'object',
  properties: {
    suspended: { type: 'boolean', refusal: ['bad_request', '`suspended` must be true or false.'] },
  },
  refusal: ['body_not_object', 'Request body must be a JSON object'],
})

async function changeAccount(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { accounts } = hostedOf(request)
  const { quota, suspended } = changeBody(await readSmallJson(request))
  await accounts.change(nameOf(request), {
    ...(quota !== undefined && { quota: readQuota(quota) }),
    ...(suspended !== undefined && { isSuspended: suspended }),
  })
  return sendJson(reply, 200, (await accounts.describe(nameOf(request))) ?? { ok: true })
}

async function deleteAccount(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const name = nameOf(request)
  const deleted = await hostedOf(request).accounts.delete(name)
  // Each backup contains `_users`, and so the account.
  const backups = (await request.server.services.backups?.list()) ?? []
  const kept = backups.map(({ id }) => ({ backup: id }))
  return sendJson(reply, 200, { ok: true, name, deleted, kept })
}

async function owner(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { owners } = hostedOf(request)
  const name = nameOf(request)
  await request.server.services.databases.get(name)
  return sendJson(reply, 200, { database: name, owner: (await owners.ownerOf(name)) ?? null })
}

const ownerBody = shape<{ owner: string | null }>({
  type: 'object',
  required: ['owner'],
  refusal: ['bad_request', 'The body must be a JSON object with `owner`, the name of an account or null.'],
})

async function setOwner(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { accounts, databases } = hostedOf(request)
  const { owner: account } = ownerBody(await readSmallJson(request))
  if (account !== null && typeof account !== 'string') {
    throw new CouchError('bad_request', '`owner` must be the name of an account, or null.')
  }
  if (account !== null) await accounts.checkExists(account)
  await databases.assign(nameOf(request), account)
  return sendJson(reply, 200, { ok: true })
}

async function signUp(
  limit: SignUpLimit | null,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { accounts } = hostedOf(request)
  if (!request.server.services.config.boolean('settee', 'sign_up')) {
    throw new CouchError('forbidden', 'Only an admin creates accounts on this server.')
  }
  // Checked before the body is read.
  const found = await limit?.(request)
  if (found?.isAllowed === false && found.isExceeded) {
    reply.header('Retry-After', String(found.ttlInSeconds))
    throw new CouchError('too_many_requests', 'Too many accounts were created from this address.')
  }
  const { name, password } = credentialsBody(await readSmallJson(request))
  await accounts.signUp(name, password)
  return sendJson(reply, 201, { ok: true, name })
}
