/** Mass deletions that were noticed; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { type Alarm, undoing } from '../../maintenance/alarms.ts'
import { sendJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf } from '../services.ts'

export const alarmRoutes: readonly Path[] = [
  {
    url: '/_settee/alarms',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: allAlarms } },
  },
  {
    url: '/_settee/alarms/:alarm',
    allow: 'DELETE',
    access: 'server admin',
    methods: { DELETE: { handler: dismissAny } },
  },
  {
    url: '/_settee/databases/:db/alarms',
    allow: 'GET,HEAD',
    access: 'db admin',
    methods: { GET: { handler: alarmsOfOne } },
  },
  {
    url: '/_settee/databases/:db/alarms/:alarm',
    allow: 'DELETE',
    access: 'db admin',
    methods: { DELETE: { handler: dismissOfOne } },
  },
]

async function allAlarms(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, { alarms: request.server.services.alarms.list().map(shown) })
}

async function alarmsOfOne(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { name } = databaseOf(request)
  return sendJson(reply, 200, { alarms: request.server.services.alarms.list(name).map(shown) })
}

async function dismissAny(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return dismiss(request, reply)
}

async function dismissOfOne(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return dismiss(request, reply, databaseOf(request).name)
}

async function dismiss(
  request: FastifyRequest,
  reply: FastifyReply,
  database?: string,
): Promise<FastifyReply> {
  const { alarm } = request.params as { alarm: string }
  if (await request.server.services.alarms.dismiss(alarm, database)) return sendJson(reply, 200, { ok: true })
  throw new CouchError('not_found', 'There is no such alarm.')
}

function shown(alarm: Alarm): object {
  const { id, database, deleted, of, since, until, account, device } = alarm
  return {
    id,
    database,
    deleted,
    of,
    since: new Date(since).toISOString(),
    until: new Date(until).toISOString(),
    account,
    device,
    undo: undoing(alarm),
  }
}
