/** Opens the backup services: backups, the time machine, alarms, health. */
import type { FastifyInstance } from 'fastify'
import { runningTokenMaker } from '../auth/token-maker.ts'
import { backupCollector, backupFact } from '../backup/backup-health.ts'
import { Backups } from '../backup/backups.ts'
import { backupsFolder, localRestoreControl } from '../backup/restore.ts'
import { setteeVersion } from '../config/version.ts'
import { localControlCommands } from '../control/control-commands.ts'
import { serveControl } from '../control/control-server.ts'
import type { Services } from '../http/services.ts'
import { incarnationsIn, openAlarms } from '../metrics/alarms.ts'
import { tenantCollector } from '../metrics/database-metrics.ts'
import type { SpaceWatch } from '../metrics/space-watch.ts'
import type { Databases } from '../threads/databases.ts'
import { Rewinds } from '../time-machine/rewinds.ts'
import type { AuthServices } from './auth-services.ts'
import { urlOf } from './listening.ts'
import type { ServerContext } from './server-context.ts'

type BackupServices = Pick<Services, 'alarms' | 'rewinds' | 'collectors' | 'health'> & {
  readonly backups: Backups
}

/** Opens them; shutdown closes them. The schedule of backups is not started yet. */
export async function openBackupServices(
  { dataDir, config, logger, shutdown }: ServerContext,
  databases: Databases,
  disk: SpaceWatch,
  { hosted }: AuthServices,
): Promise<BackupServices> {
  const alarms = await openAlarms({
    records: databases,
    logger,
    incarnationOf: incarnationsIn(databases),
    keepsVersions: () => config.integer('settee', 'keep_days') > 0,
  })
  shutdown.add(() => alarms.close())
  const backups = new Backups({ config, databases, dataDir, version: setteeVersion(), logger })
  shutdown.add(() => backups.close())
  const collectors = [backupCollector(backups), ...(hosted === null ? [] : [tenantCollector(hosted)])]
  const health = [() => disk.health(), async () => [backupFact(await backups.state())], () => alarms.health()]
  return { alarms, rewinds: new Rewinds(databases), backups, collectors, health }
}

/** Serves commands of this machine through the control socket, until shutdown. */
export async function serveCommands(
  { dataDir, env, config, logger, shutdown }: ServerContext,
  { databases, policy, tokens, tmpDir, backups, rewinds }: Services & BackupServices,
  app: FastifyInstance,
): Promise<void> {
  const ending = new AbortController()
  const controls = localControlCommands({
    ...{ config, databases, env, tmpDir, backups, rewinds },
    ending: ending.signal,
    restorer: localRestoreControl(policy.databases, () => backupsFolder(config)),
    revokeTokens: (account) => tokens.revokeAll(account),
    tokenMaker: runningTokenMaker(tokens),
    createDatabase: (name: string, account: string) => policy.databases.create(name, account),
    adminNames: async () => Object.keys(config.section('admins')).sort(),
    listening: () => {
      const url = urlOf(app)
      return url === null ? null : { url, secureUrl: app.secure?.url ?? null }
    },
    ownerOf: (name: string) => policy.ownerOf(name),
  })
  shutdown.add(await serveControl({ dataDir, controls, logger }))
  // First stops the work that commands wait for, since the socket closes when all of them are answered.
  shutdown.add(async () => {
    ending.abort()
    rewinds.close()
    await backups.close()
  })
}
