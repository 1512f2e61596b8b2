/** Calls about a database as a whole; protocol.md 3.5, 4.4 to 4.6, 4.8. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import type { SecurityObject, UserCtx } from '../../core/types.ts'
import { ADMIN_ONLY } from '../../documents/security.ts'
import { databaseProperties } from '../../threads/database-properties.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { absoluteUrl, sendJson } from '../replies.ts'
import { pathParam, queryOf } from '../request-params.ts'
import { type Path, type Schema, shape } from '../route-table.ts'
import { LARGE_LIST_BODY, readSmallJson, requestSizeLimit, withBody } from '../transport/body-reader.ts'

const DELETE_QUERY: Schema = {
  type: 'object',
  properties: {
    rev: {
      type: 'null',
      refusal: [
        'bad_request',
        'You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?',
      ],
    },
  },
}

export const databaseRoutes: readonly Path[] = [
  {
    url: '/:db',
    allow: 'DELETE,GET,HEAD,POST',
    access: 'member',
    methods: {
      PUT: {
        handler: createDatabase,
        access: 'tenant',
        wrongCredentials: 'Name or password is incorrect. You are not a server admin.',
      },
      GET: { handler: info },
      DELETE: { handler: deleteDatabase, access: 'owner', query: DELETE_QUERY },
      POST: { handler: postDocument, json: true },
    },
  },
  {
    url: '/:db/_security',
    allow: 'PUT,GET',
    access: 'member',
    methods: { GET: { handler: security }, PUT: { handler: setSecurity, access: 'db admin' } },
  },
  {
    url: '/:db/_revs_limit',
    allow: 'PUT,GET',
    access: 'member',
    methods: { GET: { handler: revsLimit }, PUT: { handler: setRevsLimit, access: 'db admin' } },
  },
  {
    url: '/:db/_ensure_full_commit',
    allow: 'POST',
    access: 'member',
    methods: { POST: { handler: ensureFullCommit, json: true } },
  },
]

function nameOf(request: FastifyRequest): string {
  return pathParam(request, 'db')
}

async function createDatabase(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const name = nameOf(request)
  const { owner, ...params } = queryOf(request)
  const properties = databaseProperties(params)
  await request.server.services.policy.createDatabase(name, request.user, owner, properties)
  reply.header('Location', absoluteUrl(request, name))
  return sendJson(reply, 201, { ok: true })
}

async function info(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, await databaseOf(request).info(request.user))
}

async function deleteDatabase(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await request.server.services.policy.databases.delete(nameOf(request))
  return sendJson(reply, 200, { ok: true })
}

async function postDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const saved = await withBody(request, requestSizeLimit(request), (body) =>
    databaseOf(request).post(request.user, body),
  )
  // The write is complete: an early answer that may be untrue would save nothing.
  if (queryOf(request).batch === 'ok') return sendJson(reply, 202, { ok: true, id: saved.id })
  reply.header('Location', absoluteUrl(request, nameOf(request), saved.id))
  return sendJson(reply, 201, { ok: true, id: saved.id, rev: saved.rev })
}

/** The largest list of names or roles in a security object. */
const MAX_LISTED = 4000

const LIST: Schema = {
  type: 'object',
  properties: { names: strings('names'), roles: strings('roles') },
  refusal: ['bad_request', 'admins or members must be a JSON list of strings'],
}

const securityBody = shape<SecurityObject>({
  type: 'object',
  properties: { admins: LIST, members: LIST, readers: LIST },
  refusal: ['body_not_object', 'Request body must be a JSON object'],
})

function strings(name: string): Schema {
  const refusal = ['bad_request', `${name} must be a JSON list of strings`] as const
  const tooMany = ['bad_request', `${name} must be a list of no more than ${MAX_LISTED}`] as const
  return {
    type: 'array',
    allOf: [{ maxItems: MAX_LISTED, refusal: tooMany }],
    items: { type: 'string', refusal },
    refusal,
  }
}

async function security(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, (await databaseOf(request).security()) ?? ADMIN_ONLY)
}

async function setSecurity(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (request.identity.token !== null) refuseToken(request.user)
  const stated = securityBody(await readSmallJson(request, LARGE_LIST_BODY))
  await databaseOf(request).setSecurity(request.user, stated)
  return sendJson(reply, 200, { ok: true })
}

/** The finder of a lost phone must not admit somebody who stays when the token is revoked. */
function refuseToken(user: UserCtx): void {
  if (isServerAdmin(user)) return
  throw new CouchError(
    'forbidden',
    'A device token cannot change _security; log in with the password of the account.',
  )
}

async function revsLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, await databaseOf(request).revsLimit(request.user))
}

async function setRevsLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).setRevsLimit(request.user, await readSmallJson(request))
  return sendJson(reply, 200, { ok: true })
}

/** Does nothing, since answered writes are on the disk. The time must equal that of `GET /db` (protocol.md 4.6). */
async function ensureFullCommit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { instance_start_time } = await databaseOf(request).info(request.user)
  return sendJson(reply, 201, { ok: true, instance_start_time })
}
