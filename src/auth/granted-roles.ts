import type { UserCtx } from '../core/types.ts'
import type { Account } from './accounts.ts'

/** What the server makes of what others say of a caller. */
export interface Grants {
  /** Roles that begin with `_`, such as `_admin`, count as well (`settee/jwt_admin`). */
  readonly systemRoles: boolean
  /** Hosted mode: only accounts of this server, and of the roles only those that the account has. */
  readonly isHosted: boolean
}

/**
 * What somebody else's word (a token, a proxy) makes a caller: no more than the server grants. Whoever holds a key can
 * put any role into a token, and clients for notes always claim `_admin` (clients.md 1.2).
 * @param account of that name, where there is one
 * @returns null when there must be an account, and is none
 */
export function grantedUser(claimed: UserCtx, account: Account | null, grants: Grants): UserCtx | null {
  if (grants.isHosted && account === null) return null
  const roles = claimed.roles.filter((role) => {
    if (grants.isHosted && !account?.roles.includes(role)) return false
    return grants.systemRoles || !role.startsWith('_')
  })
  return { name: claimed.name, roles }
}
