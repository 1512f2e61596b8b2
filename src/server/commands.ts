/** What commands of the same machine ask of a running server, by its control socket. */
import type { FastifyInstance } from 'fastify'
import { runningTokenMaker } from '../auth/token-maker.ts'
import type { Services } from '../http/services.ts'
import { serveControl } from '../maintenance/control-server.ts'
import { localControls } from '../maintenance/controls.ts'
import { backupsFolder, localRestorer } from '../maintenance/restore.ts'
import type { Ground } from './ground.ts'
import type { Keeping } from './keeping.ts'
import { urlOf } from './listening.ts'

/** Serves them until closing breaks off what they wait for. */
export async function serveCommands(
  { dataDir, env, config, logger, closing }: Ground,
  { databases, hosted, tokens, tmpDir, backups, rewinds }: Services & Keeping,
  app: FastifyInstance,
): Promise<void> {
  const ending = new AbortController()
  const controls = localControls({
    ...{ config, databases, env, tmpDir, backups, rewinds },
    ending: ending.signal,
    restorer: localRestorer(hosted?.databases ?? databases, () => backupsFolder(config)),
    revokeTokens: (account) => tokens.revokeAll(account),
    tokenMaker: runningTokenMaker(tokens),
    createDatabase: (name: string, account: string) =>
      hosted === null ? databases.create(name) : hosted.databases.create(name, account),
    adminNames: async () => Object.keys(config.section('admins')).sort(),
    listening: () => {
      const url = urlOf(app)
      return url === null ? null : { url, secureUrl: app.secure?.url ?? null }
    },
    ownerOf: (name: string) => hosted?.owners.ownerOf(name),
  })
  closing.add(await serveControl({ dataDir, controls, logger }))
  // What a command waits for is broken off first: the socket closes when all of it has been answered.
  closing.add(async () => {
    ending.abort()
    rewinds.close()
    await backups.close()
  })
}
