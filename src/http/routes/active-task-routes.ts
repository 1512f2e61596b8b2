/** The tasks under way, protocol.md 15: CouchDB's, and settee's own in the same form. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Backups, BackupTask } from '../../backup/backups.ts'
import { isUnderWay, type MoveRuns } from '../../move/move-runs.ts'
import type { Scrub } from '../../scrub/scrub.ts'
import type { CompactionTask } from '../../threads/databases.ts'
import { sendJson } from '../replies.ts'
import { nodeName, type Path } from '../route-table.ts'
import { isVisible, tenantOf } from '../services.ts'
import { replicationTasks } from './replication-routes.ts'

export const activeTaskRoutes: readonly Path[] = [
  {
    url: '/_active_tasks',
    allow: 'GET,HEAD',
    access: 'tenant',
    methods: { GET: { handler: activeTasks } },
  },
]

async function activeTasks(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { config, databases, rewinds, backups, scrub, moveRuns, replicator } = request.server.services
  const node = nodeName(config)
  const tasks: Task[] = [
    ...databases.tasks().map((task) => ({ ...task, type: 'database_compaction' })),
    ...rewinds.tasks().map((task) => ({ ...task, type: 'database_rewind' })),
  ]
  if (tenantOf(request) === null) {
    const backup = backups?.task ?? null
    return sendJson(reply, 200, [
      ...tasks.map((task) => activeTask(node, task)),
      ...(backup === null ? [] : [backupTask(node, backup)]),
      ...verificationTasks(node, backups),
      ...scrubTasks(node, scrub),
      ...moveTasks(node, moveRuns),
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

/** The move under way, in the same form. */
function moveTasks(node: string, moveRuns: MoveRuns | undefined): object[] {
  const run = moveRuns?.last ?? null
  if (run === null || !isUnderWay(run)) return []
  const { id, from, begunAt, progress, plan } = run
  const { database = null, done = 0, of = plan?.databases.length ?? 0 } = progress ?? {}
  const members = { move: id, source: from, database, databases_done: done, databases_total: of }
  const percent = of === 0 ? 0 : Math.floor((100 * done) / of)
  return [ownTask(node, 'move', members, { percent, startedAt: begunAt, updatedAt: Date.now() })]
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
