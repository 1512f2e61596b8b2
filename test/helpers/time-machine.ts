/** Alarms, rewinds and samples over the databases of a test's server. */
import type { Logger } from 'pino'
import { Alarms } from '../../src/metrics/alarms.ts'
import { Samples } from '../../src/metrics/samples.ts'
import { claimsOfOne } from '../../src/threads/claims.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { Rewinds } from '../../src/time-machine/rewinds.ts'

export async function timeMachineOver(databases: Databases, logger: Pick<Logger, 'warn' | 'error'>) {
  const incarnationOf = async (name: string) =>
    (await databases.has(name)) ? (await databases.get(name)).incarnation : undefined
  const alarms = new Alarms({ records: databases, logger, incarnationOf, keepsVersions: () => true })
  const samples = new Samples(new Uint8Array(), Date.now())
  return { alarms, rewinds: new Rewinds(databases, claimsOfOne()), samples }
}
