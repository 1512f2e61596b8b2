/** What keeps notes safe beside the databases: backups, the time machine, alarms; and what tells how all is. */
import { setteeVersion } from '../config/version.ts'
import type { Services } from '../http/services.ts'
import { incarnationsIn, openAlarms } from '../maintenance/alarms.ts'
import { Backups } from '../maintenance/backup/backups.ts'
import { backupFact } from '../maintenance/backup/health.ts'
import { backupCollector } from '../maintenance/metrics/backup-metrics.ts'
import { tenantCollector } from '../maintenance/metrics/tenant-metrics.ts'
import { Rewinds } from '../maintenance/rewinds.ts'
import type { SpaceWatch } from '../maintenance/space-watch.ts'
import type { Databases } from '../threads/databases.ts'
import type { Admission } from './admission.ts'
import type { Ground } from './ground.ts'

export type Keeping = Pick<Services, 'alarms' | 'rewinds' | 'collectors' | 'health'> & {
  readonly backups: Backups
}

/** Opens them; closing ends them. Backups by themselves begin when they are told to. */
export async function openKeeping(
  { dataDir, config, logger, closing }: Ground,
  databases: Databases,
  disk: SpaceWatch,
  { hosted }: Admission,
): Promise<Keeping> {
  const alarms = await openAlarms({
    records: databases,
    logger,
    incarnationOf: incarnationsIn(databases),
    keepsVersions: () => config.integer('settee', 'keep_days') > 0,
  })
  closing.add(() => alarms.close())
  const backups = new Backups({ config, databases, dataDir, version: setteeVersion(), logger })
  closing.add(() => backups.close())
  const collectors = [backupCollector(backups), ...(hosted === null ? [] : [tenantCollector(hosted)])]
  const health = [() => disk.health(), async () => [backupFact(await backups.state())], () => alarms.health()]
  return { alarms, rewinds: new Rewinds(databases), backups, collectors, health }
}
