/** The state of a standby, and what it copies of its primary beside databases; docs/settee-api.md. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import { isOpen } from '../../auth/admins.ts'
import type { UsedToken } from '../../auth/token-record.ts'
import { CouchError } from '../../core/errors.ts'
import { copiedSettings } from '../../standby/settings-copy.ts'
import { sendJson } from '../replies.ts'
import { queryOf, textParam } from '../request-params.ts'
import type { Path } from '../route-table.ts'

export const standbyRoutes: readonly Path[] = [
  {
    url: '/_settee/standby',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: state } },
  },
  {
    url: '/_settee/standby/settings',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: settings } },
  },
  {
    url: '/_settee/standby/tokens',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: {
      GET: {
        handler: tokens,
        query: { type: 'object', properties: { start_key: { type: 'string', minLength: 1 } } },
      },
    },
  },
]

const PAGE = 500

async function state(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  requireSingleMode(request)
  const { standby, config } = request.server.services
  if (standby === undefined) throw new CouchError('not_found', 'This server cannot be a standby.')
  const {
    first: primary,
    lagSeconds,
    databases,
    waiting,
    refused,
    reason,
    failures,
    ...report
  } = standby.report()
  const followers = standby.followers.list(Date.now())
  return sendJson(reply, 200, {
    role: report.state !== 'none' ? 'standby' : followers.length > 0 ? 'first' : 'none',
    state: report.state,
    first: primary,
    lag: lagSeconds,
    max_lag: config.integer('settee', 'standby_max_lag'),
    databases,
    waiting,
    refused,
    reason,
    failures: failures.map(({ database, reason }) => ({ database, reason })),
    followers: followers.map(({ address, lastSeen }) => ({
      address,
      last_seen: new Date(lastSeen).toISOString(),
    })),
  })
}

/**
 * What a standby reads once a minute: the settings, and the documents that it may send back since they are damaged here. With
 * the secret of session cookies and the key of credentials in `_replicator`, so only for callers with an admin's password.
 */
async function settings(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  requirePassword(request)
  reply.header('Cache-Control', 'no-store')
  const { config, sealingKey, standby, healing } = request.server.services
  standby?.followers.note(request.address, Date.now())
  const damaged = Object.fromEntries((await healing?.damaged()) ?? [])
  return sendJson(reply, 200, { settings: copiedSettings(config), sealing_key: sealingKey.value, damaged })
}

/** In the order of their ids, in pages. */
async function tokens(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  requirePassword(request)
  const start = textParam(queryOf(request), 'start_key') ?? ''
  const page = await request.server.services.tokens.page(start, PAGE)
  reply.header('Cache-Control', 'no-store')
  return sendJson(reply, 200, { tokens: page.tokens.map(copied), next: page.last })
}

function copied({ hash, positions: _, ...token }: UsedToken): object {
  return { ...token, hash: hash.toString('base64url') }
}

/**
 * What these calls show outlives a cookie and a token, which a page or a lost device may have.
 * @throws not_found in hosted mode, which has no standby; forbidden for anything but an admin's name and password,
 *   unless the server has no admin
 */
function requirePassword(request: FastifyRequest): void {
  requireSingleMode(request)
  if (isOpen(request.server.services.config)) return
  if (request.identity.handler !== 'default') {
    throw new CouchError('forbidden', "What a standby copies is shown for an admin's name and password only.")
  }
}

/** @throws not_found */
function requireSingleMode({ server }: FastifyRequest): void {
  if (server.services.config.isHosted)
    throw new CouchError('not_found', 'A server in hosted mode has no standby.')
}
