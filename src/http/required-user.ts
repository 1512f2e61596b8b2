import type { Config } from '../config/config.ts'

/** @returns whether nobody is served unless he says who he is. Either key counts, since `_up` is open in any case (clients.md, pain 17) */
export function requiresUser(config: Config): boolean {
  return (
    config.boolean('chttpd', 'require_valid_user') ||
    config.boolean('chttpd', 'require_valid_user_except_for_up')
  )
}
