/** The settings with all that can be said of them; docs/settee-api.md. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { listSettings, valuesAtStart } from '../../config/setting-list.ts'
import { unsafeSettings } from '../../config/unsafe-settings.ts'
import { sendJson } from '../replies.ts'
import { registerPaths } from '../route-table.ts'

/** The route of the settings; it knows which of them have changed since the start. */
export async function configurationRoutes(app: FastifyInstance): Promise<void> {
  const atStart = valuesAtStart(app.services.config)
  const handler = (request: FastifyRequest, reply: FastifyReply) => configuration(atStart, request, reply)
  registerPaths(app, [
    {
      url: '/_settee/configuration',
      allow: 'GET,HEAD',
      access: 'server admin',
      methods: { GET: { handler } },
    },
  ])
}

async function configuration(
  atStart: ReturnType<typeof valuesAtStart>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { config, backups } = request.server.services
  const state = await backups?.state()
  const unsafe = unsafeSettings({
    isHosted: config.isHosted,
    get: (section, key) => config.get(section, key),
    admins: config.keyCount('admins'),
    ...(state?.isSupported && { backupAge: state.last?.age ?? null }),
  })
  const { settings, leftOut } = listSettings(config, atStart, unsafe)
  return sendJson(reply, 200, { settings, unsafe, left_out: leftOut })
}
