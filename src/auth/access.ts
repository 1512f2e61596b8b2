import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'

/** The role of server admins; protocol.md 11.1. */
export const ADMIN_ROLE = '_admin'

/** The role of those who may read what the server tells of itself; protocol.md 11.4. */
export const METRICS_ROLE = '_metrics'

/** Nobody in particular. */
export const ANONYMOUS: UserCtx = { name: null, roles: [] }

/** Everybody, while no admin is configured ("admin party"; protocol.md 11.1). */
export const PARTY_ADMIN: UserCtx = { name: null, roles: [ADMIN_ROLE] }

/** @returns whether the user may do everything */
export function isServerAdmin(user: Pick<UserCtx, 'roles'>): boolean {
  return user.roles.includes(ADMIN_ROLE)
}

/** @returns whether nobody in particular is asking */
export function isAnonymous(user: UserCtx): boolean {
  return user.name === null && !isServerAdmin(user)
}

/** @throws not_server_admin, 401 also for who is logged in (protocol.md 11.6) */
export function requireServerAdmin(user: UserCtx): void {
  if (!isServerAdmin(user)) throw new CouchError('not_server_admin')
}

/** For server admins and those with the role `_metrics`. @throws not_server_admin */
export function requireMetricsReader(user: UserCtx): void {
  if (!user.roles.includes(METRICS_ROLE)) requireServerAdmin(user)
}
