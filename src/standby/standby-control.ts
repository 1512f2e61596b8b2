/** The control commands of a standby. */
import { CouchError } from '../core/errors.ts'
import type { FollowRequest, PromotionOutcome, Standby, StandbyReport } from './standby.ts'

export interface StandbyControl {
  /** As {@link Standby.follow}. */
  follow(request: FollowRequest): Promise<StandbyReport>
  /** As {@link Standby.promote}. */
  promote(request: object): Promise<PromotionOutcome>
  /** As {@link Standby.report}. */
  readStandby(request: object): Promise<StandbyReport>
}

export function localStandbyControl(standby: Pick<Standby, 'follow' | 'promote' | 'report'>): StandbyControl {
  return {
    follow: (request) => standby.follow(request),
    promote: () => standby.promote(),
    readStandby: async () => standby.report(),
  }
}

/**
 * Lets a standby refuse commands: a change here would be overwritten, or would remain when its primary has another one.
 * @param commands by their names
 * @param changing the names of those that change what a standby copies
 */
export function withoutChanges<Commands extends object>(
  commands: Commands,
  changing: readonly (keyof Commands)[],
  standby: Pick<Standby, 'acceptsWrites'>,
): Commands {
  const guarded = changing.map((name) => {
    const run = commands[name] as (...args: readonly unknown[]) => Promise<unknown>
    const guard = async (...args: readonly unknown[]) => {
      if (!standby.acceptsWrites) throw new CouchError('standby', REFUSAL)
      return run(...args)
    }
    return [name, guard] as const
  })
  return { ...commands, ...Object.fromEntries(guarded) }
}

const REFUSAL =
  'This server is a standby: run the command on its primary, or promote the standby with settee promote.'
