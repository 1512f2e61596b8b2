/** Backups of the whole server, restores, and sizes of databases; docs/settee-api.md, docs/operating.md. */

import type { FastifyReply, FastifyRequest } from 'fastify'
import { summaryOf } from '../../backup/backup-folder.ts'
import { isBackupId } from '../../backup/backup-format.ts'
import type { Backups, BackupTask } from '../../backup/backups.ts'
import { backupsFolder, localRestoreControl } from '../../backup/restore.ts'
import { CouchError } from '../../core/errors.ts'
import { SYSTEM_USER } from '../../core/types.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendJson } from '../replies.ts'
import { pathParam } from '../request-params.ts'
import { type Path, shape } from '../route-table.ts'
import { isOwner } from '../services.ts'
import { LARGE_LIST_BODY, readSmallJson } from '../transport/body-reader.ts'

export const backupRoutes: readonly Path[] = [
  {
    url: '/_settee/backups',
    allow: 'GET,HEAD,POST',
    access: 'server admin',
    methods: { GET: { handler: listBackups }, POST: { handler: startBackup, json: true } },
  },
  {
    url: '/_settee/backups/:id',
    allow: 'GET,HEAD,DELETE',
    access: 'server admin',
    methods: { GET: { handler: readBackup }, DELETE: { handler: removeBackup } },
  },
]

export const verifyRoutes: readonly Path[] = [
  {
    url: '/_settee/backups/:id/verify',
    allow: 'POST',
    access: 'server admin',
    methods: { POST: { handler: verifyBackup, json: true } },
  },
]

/** Answers as soon as it has begun. `GET /_settee/backups` shows the progress and then the result. */
async function verifyBackup(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const backups = backupsOf(request)
  verifyBody(await readSmallJson(request))
  await backups.verifications.start(idOf(request))
  return sendJson(reply, 202, { ok: true })
}

const verifyBody = shape<object>({
  type: 'object',
  refusal: ['body_not_object', 'Request body must be a JSON object'],
})

/** @throws not_found if the server makes no backups; no_copies if they are a task of its store */
function backupsOf(request: FastifyRequest): Backups {
  const { backups } = request.server.services
  if (backups === undefined) throw new CouchError('not_found', 'This server makes no backups.')
  if (!backups.isSupported) throw new CouchError('no_copies')
  return backups
}

async function listBackups(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const backups = backupsOf(request)
  const { failure } = await backups.state()
  const { task } = backups
  return sendJson(reply, 200, {
    backups: await backups.list(),
    running: task === null ? null : shownTask(task),
    verifying: shownVerification(backups),
    last_failure: failure === null ? null : { time: timeText(failure.time), reason: failure.reason },
  })
}

function shownTask({
  id,
  database,
  databases_done,
  databases_total,
  percent,
  startedAt,
}: BackupTask): object {
  return { id, database, databases_done, databases_total, percent, begun_at: timeText(startedAt) }
}

function shownVerification({ verifications: { task } }: Backups): object | null {
  if (task === null) return null
  const { id, filesDone, filesTotal, percent, startedAt } = task
  return { id, files_done: filesDone, files_total: filesTotal, percent, begun_at: timeText(startedAt) }
}

const backupBody = shape<{ readonly databases?: readonly string[] }>({
  type: 'object',
  properties: {
    databases: {
      type: 'array',
      items: {
        type: 'string',
        refusal: ['bad_request', '`databases` member must be an array of strings.'],
      },
      refusal: ['bad_request', '`databases` member must be an array of names.'],
    },
  },
  refusal: ['body_not_object', 'Request body must be a JSON object'],
})

/** Answers as soon as the backup has begun. `GET /_settee/backups` reports its result. */
async function startBackup(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const backups = backupsOf(request)
  const { databases = null } = backupBody(await readSmallJson(request, LARGE_LIST_BODY))
  if (databases?.length === 0) throw new CouchError('bad_request', '`databases` member must not be empty.')
  const { id } = await backups.start({ databases, to: null, reason: 'asked' })
  return sendJson(reply, 202, { ok: true, id })
}

async function readBackup(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const stored = await backupsOf(request).find(idOf(request))
  const { age, bytes, verified, verified_at, damage } = summaryOf(stored, Date.now())
  return sendJson(reply, 200, { ...stored.manifest, age, bytes, verified, verified_at, damage })
}

async function removeBackup(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await backupsOf(request).remove(idOf(request))
  return sendJson(reply, 200, { ok: true })
}

function idOf(request: FastifyRequest): string {
  return pathParam(request, 'id')
}

function timeText(time: number): string {
  return new Date(time).toISOString()
}

export const restoreRoutes: readonly Path[] = [
  {
    url: '/_settee/backups/:id/restore',
    allow: 'POST',
    access: 'server admin',
    methods: { POST: { handler: restore, json: true } },
  },
]

interface RestoreBody {
  readonly database: string
  readonly as?: string
}

const restoreBody = shape<RestoreBody>({
  allOf: [
    { type: 'object', refusal: ['body_not_object', 'Request body must be a JSON object'] },
    { required: ['database'], refusal: ['bad_request', '`database` member must exist.'] },
  ],
  properties: {
    database: { type: 'string', refusal: ['bad_request', '`database` member must be a string.'] },
    as: { type: 'string', refusal: ['bad_request', '`as` member must be a string.'] },
  },
})

/** Answers when the database is restored. Accepts ids of backups only, no paths on the server. */
async function restore(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = pathParam(request, 'id')
  const { backups, config, policy, logger } = request.server.services
  const restorer = localRestoreControl(policy.databases, () => backupsFolder(config))
  const { database, as = null } = restoreBody(await readSmallJson(request))
  if (backups?.isSupported === false) throw new CouchError('no_copies')
  if (!isBackupId(id)) throw new CouchError('not_found', 'There is no such backup.')
  const outcome = await restorer.restore({ backup: id, databases: [database], as })
  logger.info({ backup: id, database, as, user: request.user.name }, 'a database was restored')
  return sendJson(reply, 200, { ok: true, backup: outcome.backup, ...outcome.restored[0] })
}

export const sizeRoutes: readonly Path[] = [
  {
    url: '/_settee/databases/:db/size',
    allow: 'GET,HEAD',
    access: 'db admin or owner',
    methods: { GET: { handler: databaseSize } },
  },
]

async function databaseSize(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = databaseOf(request)
  // The database does not know owners.
  const { file, views, ...parts } = await database.size((await isOwner(request)) ? SYSTEM_USER : request.user)
  return sendJson(reply, 200, { database: database.name, file, parts, views })
}
