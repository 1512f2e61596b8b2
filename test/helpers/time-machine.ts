/** Alarms and rewinds over the databases of a test's server. */
import type { Logger } from 'pino'
import { openAlarms } from '../../src/metrics/alarms.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { Rewinds } from '../../src/time-machine/rewinds.ts'

export async function timeMachineOver(databases: Databases, logger: Pick<Logger, 'warn' | 'error'>) {
  const incarnationOf = (name: string) =>
    databases.names().includes(name) ? databases.get(name).incarnation : undefined
  const alarms = await openAlarms({ records: databases, logger, incarnationOf, keepsVersions: () => true })
  return { alarms, rewinds: new Rewinds(databases) }
}
