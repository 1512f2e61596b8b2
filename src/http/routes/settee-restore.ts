/** Going back to what a database was in a backup; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { isBackupId } from '../../maintenance/backup-format.ts'
import { backupsFolder, localRestorer } from '../../maintenance/restore.ts'
import { sendJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { shape } from '../shapes.ts'
import { readSmallJson } from '../small-json.ts'

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

/** Answers when the database is restored. A path on the server is no backup's name here. */
async function restore(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { id } = request.params as { id: string }
  const { config, databases, hosted, logger } = request.server.services
  const restorer = localRestorer(hosted?.databases ?? databases, () => backupsFolder(config))
  const { database, as = null } = restoreBody(await readSmallJson(request))
  if (!isBackupId(id)) throw new CouchError('not_found', 'There is no such backup.')
  const outcome = await restorer.restore({ backup: id, databases: [database], as })
  logger.info({ backup: id, database, as, user: request.user.name }, 'a database was restored')
  return sendJson(reply, 200, { ok: true, backup: outcome.backup, ...outcome.restored[0] })
}
