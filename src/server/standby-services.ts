/** Opens this server's part as a standby, if it is one. */
import type { Services } from '../http/services.ts'
import { type RunningParts, Standby } from '../standby/standby.ts'
import { standbyCollector, standbyHealth } from '../standby/standby-health.ts'
import { StandbyRecords } from '../standby/standby-records.ts'
import type { Databases } from '../threads/databases.ts'
import type { ServerContext } from './server-context.ts'

/**
 * Reads whether this server is a standby, before anything writes, and finishes a promotion that a crash interrupted.
 * @throws Error if the record is damaged
 */
export async function openStandby({ config, logger }: ServerContext, databases: Databases): Promise<Standby> {
  const standby = new Standby({ records: await StandbyRecords.open(databases), databases, config, logger })
  await standby.recover()
  return standby
}

/** Begins to follow, until shutdown. */
export async function startStandby(
  { logger, shutdown }: ServerContext,
  standby: Standby,
  parts: Omit<RunningParts, 'logger'>,
): Promise<void> {
  shutdown.add(() => standby.close())
  await standby.start({ ...parts, logger })
}

/** The monitoring of a standby, beside that of the other parts. */
export function standbyMonitoring(
  { config }: ServerContext,
  standby: Standby,
  { collectors = [], health = [] }: Pick<Services, 'collectors' | 'health'>,
): Pick<Services, 'collectors' | 'health'> {
  return {
    collectors: [...collectors, standbyCollector(standby)],
    health: [...health, standbyHealth(standby, config)],
  }
}
