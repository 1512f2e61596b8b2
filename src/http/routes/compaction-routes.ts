/** Compaction, purging, and active tasks; protocol.md 4.6, 4.7, 15. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Backups, BackupTask } from '../../backup/backups.ts'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import { isUnderWay } from '../../move/move-runs.ts'
import type { Scrub } from '../../scrub/scrub.ts'
import type { CompactionTask, DatabaseHandle } from '../../threads/databases.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, sendJson } from '../replies.ts'
import { pathParam } from '../request-params.ts'
import { nodeName, type Path } from '../route-table.ts'
import { isVisible, tenantOf } from '../services.ts'
import { readSmallJson, requestSizeLimit, withBody } from '../transport/body-reader.ts'
import { moveTask } from './move-routes.ts'
import { replicationTasks } from './replication-routes.ts'

export const maintenanceRoutes: readonly Path[] = [
  {
    url: '/:db/_compact',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: compact, json: true } },
  },
  {
    url: '/:db/_compact/:ddoc',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: compactViews, json: true } },
  },
  {
    url: '/:db/_view_cleanup',
    allow: 'POST',
    access: 'maintainer',
    methods: { POST: { handler: cleanUpViews } },
  },
  {
    url: '/:db/_purge',
    allow: 'POST',
    access: 'server admin',
    methods: { POST: { handler: purge, json: true } },
  },
  {
    url: '/:db/_purged_infos',
    allow: 'GET',
    access: 'member',
    methods: { GET: { handler: purgedInfos } },
  },
  {
    url: '/:db/_purged_infos_limit',
    allow: 'GET,PUT',
    access: 'server admin',
    methods: { GET: { handler: purgedInfosLimit }, PUT: { handler: setPurgedInfosLimit } },
  },
  {
    url: '/_active_tasks',
    allow: 'GET,HEAD',
    access: 'tenant',
    methods: { GET: { handler: activeTasks } },
  },
  {
    url: '/_membership',
    allow: 'GET',
    access: 'server admin',
    methods: { GET: { handler: membership } },
  },
]

/** The database of a route for server admins, which access-rules.ts does not open. @throws no_database */
function namedDatabase(request: FastifyRequest): Promise<DatabaseHandle> {
  const db = pathParam(request, 'db')
  return request.server.services.databases.get(db)
}

async function compact(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).compact(request.user)
  return sendJson(reply, 202, { ok: true })
}

/** Gives free space of a design document's indexes back. @throws not_found, deleted */
async function compactViews(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).compactViews(request.user, DESIGN_PREFIX + pathParam(request, 'ddoc'))
  return sendJson(reply, 202, { ok: true })
}

/** Removes the indexes that no design document uses. */
async function cleanUpViews(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await databaseOf(request).cleanUpViews(request.user)
  return sendJson(reply, 202, { ok: true })
}

async function purge(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = await namedDatabase(request)
  const answer = await withBody(request, requestSizeLimit(request), (body) =>
    database.purge(request.user, body),
  )
  return sendBytes(reply, 201, answer)
}

async function purgedInfos(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendBytes(reply, 200, await databaseOf(request).purgedInfos(request.user))
}

async function purgedInfosLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, await (await namedDatabase(request)).purgedInfosLimit(request.user))
}

async function setPurgedInfosLimit(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = await namedDatabase(request)
  await database.setPurgedInfosLimit(request.user, await readSmallJson(request))
  return sendJson(reply, 200, { ok: true })
}

async function activeTasks(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { config, databases, rewinds, backups, scrub, moveRuns, replicator } = request.server.services
  const node = nodeName(config)
  const tasks: Task[] = [
    ...databases.tasks().map((task) => ({ ...task, type: 'database_compaction' })),
    ...rewinds.tasks().map((task) => ({ ...task, type: 'database_rewind' })),
  ]
  if (tenantOf(request) === null) {
    const backup = backups?.task ?? null
    const move = moveRuns?.last ?? null
    return sendJson(reply, 200, [
      ...tasks.map((task) => activeTask(node, task)),
      ...(backup === null ? [] : [backupTask(node, backup)]),
      ...verificationTasks(node, backups),
      ...scrubTasks(node, scrub),
      ...(move === null || !isUnderWay(move) ? [] : [moveTask(node, move)]),
      ...replicationTasks(node, replicator.jobs()),
    ])
  }
  const visible = await Promise.all(tasks.map(({ database }) => isVisible(request, database)))
  const own = tasks.filter((_, at) => visible[at])
  // Incarnations would show how many databases all tenants have.
  const shown = own.map((task, at) => activeTask(node, { ...task, incarnation: at + 1 }))
  return sendJson(reply, 200, shown)
}

interface Task extends CompactionTask {
  readonly type: string
}

/** A task with the members of CouchDB's compactions. The pid has Erlang's form, and there is one for each database. */
function activeTask(
  node: string,
  { type, database, incarnation, done, total, startedAt, updatedAt }: Task,
): object {
  return {
    node,
    pid: `<0.${incarnation}.0>`,
    process_status: 'running',
    type,
    database,
    changes_done: done,
    total_changes: total,
    progress: Math.floor((100 * done) / total),
    started_on: startedAt,
    updated_on: updatedAt,
  }
}

/** A backup, which CouchDB does not have, with the members of its tasks. */
function backupTask(
  node: string,
  { id, database, databases_done, databases_total, ...running }: BackupTask,
): object {
  const members = { backup: id, database, databases_done, databases_total }
  return ownTask(node, 'backup', members, running)
}

/** The verification of a backup, in the same form. */
function verificationTasks(node: string, backups: Backups | undefined): object[] {
  const task = backups?.verifications.task ?? null
  if (task === null) return []
  const { id, filesDone, filesTotal, ...running } = task
  const members = { backup: id, files_done: filesDone, files_total: filesTotal }
  return [ownTask(node, 'backup_verification', members, running)]
}

/** The check of what is stored, in the same form. */
function scrubTasks(node: string, scrub: Scrub | undefined): object[] {
  const task = scrub?.task ?? null
  if (task === null) return []
  const { database, databases_done, databases_total, ...running } = task
  return [ownTask(node, 'scrub', { database, databases_done, databases_total }, running)]
}

interface Running {
  /** 0 to 100. */
  readonly percent: number
  /** ms since 1970 */
  readonly startedAt: number
  readonly updatedAt: number
}

/** A task that CouchDB does not have: it has the members of all tasks before and after its own. */
function ownTask(
  node: string,
  type: string,
  members: object,
  { percent, startedAt, updatedAt }: Running,
): object {
  return {
    node,
    pid: '<0.0.0>',
    process_status: 'running',
    type,
    ...members,
    progress: percent,
    started_on: Math.floor(startedAt / 1000),
    updated_on: Math.floor(updatedAt / 1000),
  }
}

async function membership(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const nodes = [nodeName(request.server.services.config)]
  return sendJson(reply, 200, { all_nodes: nodes, cluster_nodes: nodes })
}
