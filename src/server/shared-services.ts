/** What this node shares with the other nodes of its server: settings, locks of failed logins, claims on work. */
import { prepareAdmins, refuseLostAdmins, requireAdmin } from '../auth/admins.ts'
import { type Lockout, loginGuard } from '../auth/credentials.ts'
import { SharedLocks } from '../auth/shared-locks.ts'
import { SharedSettings } from '../config/shared-settings.ts'
import { requireSafeProxyAuth } from '../config/value-rules.ts'
import type { Standby } from '../standby/standby.ts'
import { Claims, type Duty } from '../threads/claims.ts'
import type { Databases } from '../threads/databases.ts'
import type { ServerContext } from './server-context.ts'

/**
 * Reads the shared settings, if the databases are shared, and prepares the admins. Then a change by any node counts on this
 * one, until shutdown.
 * @throws StartError
 */
export async function prepareSettings(context: ServerContext, databases: Databases): Promise<void> {
  const { config, env, logger } = context
  await shareSettings(context, databases)
  for (const warning of await prepareAdmins(config, env)) logger.warn(warning)
  requireAdmin(config)
  const stop = await refuseLostAdmins(config, databases, (err) =>
    logger.warn({ err }, 'could not note whether the server has an admin'),
  )
  context.shutdown.add(async () => stop())
  requireSafeProxyAuth((section, key) => config.get(section, key))
}

/** Does nothing where one process has the databases for itself. */
export async function shareSettings(
  { config, logger, shutdown }: Pick<ServerContext, 'config' | 'logger' | 'shutdown'>,
  databases: Databases,
): Promise<void> {
  if (!databases.sharedWriters) return
  const stop = await config.share(new SharedSettings(databases), true, (fault) =>
    logger.error({ err: fault }, 'a shared setting could not be read, or must not take effect on this node'),
  )
  shutdown.add(async () => stop())
}

/** The lockout, whose locks the nodes share. */
export function openLockout(
  { config, logger, shutdown }: Pick<ServerContext, 'config' | 'logger' | 'shutdown'>,
  databases: Databases,
): Lockout {
  if (!databases.sharedWriters) return loginGuard(config, logger)
  const lockout = loginGuard(config, logger, (name, ms) => locks.publish(name, ms))
  const locks = new SharedLocks({
    records: databases,
    lock: (name, ms) => lockout.lock(name, ms),
    onFault: (fault) => logger.warn({ err: fault }, 'locks of failed logins could not be read or written'),
  })
  shutdown.add(() => locks.close())
  return lockout
}

/** Claims on work; shutdown releases them. */
export function openClaims({ logger, shutdown }: ServerContext, databases: Databases): Claims {
  const claims = new Claims({
    records: databases.sharedWriters ? databases : null,
    onFault: (fault) => logger.warn({ err: fault }, 'a claim on work could not be read or written'),
  })
  shutdown.add(() => claims.close())
  return claims
}

/** Work that one node does alone: that of each day, of `couch_peruser`, and of documents of `_replicator`. */
export function upkeepDuty(claims: Claims): Duty {
  return claims.duty('upkeep')
}

/** The part of a duty that writes: a standby leaves it to its primary. */
export function writingDuty(duty: Duty, standby: Standby): Duty {
  return {
    get isHeld() {
      return duty.isHeld && standby.acceptsWrites
    },
    onChange(listener) {
      const stops = [duty.onChange(listener), standby.onChange(listener)]
      return () => {
        for (const stop of stops) stop()
      }
    },
  }
}
