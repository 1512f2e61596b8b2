/** Checks for the command line, `settee check`, and for the HTTP API. */

import { CouchError } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { GiveUpReport } from '../documents/give-up.ts'
import type { Repairs } from '../healing/repairs.ts'
import { throughReplacement } from '../healing/replaced.ts'
import type { Databases } from '../threads/databases.ts'
import type { CheckOutcome, Scrub, ScrubProgress } from './scrub.ts'

export interface CheckControl {
  /**
   * Reads databases, and finds what is damaged.
   * @param request names; null: all databases. `repair`: what has a good copy is stored again
   * @param signal aborts when the caller has disconnected; the check then ends, and one of all databases goes on as a
   *   scheduled one
   * @throws conflict, not_found, unavailable, internal_server_error
   */
  checkDatabases(
    request: { readonly databases: readonly string[] | null; readonly repair: boolean },
    onProgress?: (progress: ScrubProgress) => void,
    signal?: AbortSignal,
  ): Promise<CheckOutcome>
  /**
   * Gives up what is damaged of a document.
   * @param request `dryRun`: only tells what would be lost
   * @throws no_database, not_found; bad_request if nothing is damaged; conflict if there is a good copy
   */
  giveUp(request: GiveUpRequest): Promise<GiveUpReport>
}

export interface GiveUpRequest {
  readonly database: string
  readonly id: string
  readonly dryRun: boolean
}

interface CheckServices {
  readonly databases: Pick<Databases, 'get' | 'has'>
  readonly scrub: Scrub
  readonly repairs: Pick<Repairs, 'run'>
}

/** As {@link CheckControl.giveUp}. */
export async function giveUp(services: CheckServices, request: GiveUpRequest): Promise<GiveUpReport> {
  // Devices may be asked for the damage meanwhile, for which the database is replaced by itself.
  return throughReplacement(services.databases, request.database, () => giveUpNow(services, request))
}

async function giveUpNow(
  { databases, scrub, repairs }: CheckServices,
  { database, id, dryRun }: GiveUpRequest,
): Promise<GiveUpReport> {
  const handle = await databases.get(database)
  const report = await handle.giveUp(SYSTEM_USER, id, { dryRun: true })
  const parts = report.leaves.map(({ rev }) => ({ kind: 'revision', id, rev }) as const)
  const copy = (await repairs.run(database, parts, { writes: false })).find(
    (outcome) => outcome.copy !== null,
  )
  if (copy !== undefined)
    throw new CouchError('conflict', `Nothing has to be given up: a good copy is in ${copy.copy}. Repair it.`)
  if (dryRun) return report
  const done = await handle.giveUp(SYSTEM_USER, id, { dryRun: false })
  scrub.checkAgain(database)
  return done
}

export function localCheckControl(services: CheckServices): CheckControl {
  const { scrub } = services
  return {
    giveUp: (request) => giveUp(services, request),
    checkDatabases: ({ databases, repair }, onProgress, signal) =>
      scrub.check({ names: databases, repairs: repair }, onProgress, signal),
  }
}
