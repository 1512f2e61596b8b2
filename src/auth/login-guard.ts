import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { Lockout, lockoutPolicy } from './lockout.ts'

/** Names in the log are cut: a header may hold 64 kB of one. */
const MAX_LOGGED = 128

/** What the line says that a filter of fail2ban looks for; docs/operating.md has the filter. */
const FAILED = 'a login failed'

/**
 * @returns the lockout as it is configured, which writes a line to the log for each login that fails: the client's
 * address and the account, never the password
 */
export function loginGuard(config: Config, logger: Logger): Lockout {
  return new Lockout({
    policy: () => lockoutPolicy(config),
    maxObjects: config.integer('chttpd_auth_lockout', 'max_objects'),
    onFailure: ({ address, name, locks }) => {
      const account = name.slice(0, MAX_LOGGED)
      // The address first: what stands behind it is the client's to choose.
      if (locks === null) logger.warn({ address, account }, FAILED)
      else logger.warn({ address, account, locks }, FAILED)
    },
  })
}
