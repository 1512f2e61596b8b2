/** Who may do what in a database: the rules of its security object, protocol.md 4.8, 11.4, 11.6. Pure. */
import { CouchError } from '../core/errors.ts'
import type { SecurityList, SecurityObject, UserCtx } from '../core/types.ts'

/** What a database without a security object says when it is asked for one, as CouchDB 3 does: admins only. */
export const ADMIN_ONLY: SecurityObject = { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } }

export type DatabaseRole = 'admin' | 'member' | 'none'

/**
 * What a user is in a database. Where no security object was ever set, and where one does not mention `members`,
 * nobody but the listed admins and server admins gets in: a ruling of ours, safer than CouchDB's
 * (docs/compatibility.md). `members` given with empty lists is a public database.
 */
export function databaseRole(user: UserCtx, security: SecurityObject | null): DatabaseRole {
  if (user.roles.includes('_admin')) return 'admin'
  if (security === null) return 'none'
  if (isListed(user, security.admins)) return 'admin'
  const members = security.members ?? (security.readers as SecurityList | undefined)
  if (members === undefined) return 'none'
  return isEmpty(members) || isListed(user, members) ? 'member' : 'none'
}

function isEmpty(list: SecurityList): boolean {
  return (list.names ?? []).length === 0 && (list.roles ?? []).length === 0
}

function isListed(user: UserCtx, list: SecurityList | undefined): boolean {
  if (list === undefined) return false
  if (user.name !== null && (list.names ?? []).includes(user.name)) return true
  return (list.roles ?? []).some((role) => user.roles.includes(role))
}

/** @throws unauthorized (anonymous) or forbidden (logged in) for anybody who is no member */
export function requireMember(user: UserCtx, security: SecurityObject | null): void {
  if (databaseRole(user, security) !== 'none') return
  if (user.name === null) throw new CouchError('unauthorized', 'You are not authorized to access this db.')
  throw new CouchError('forbidden', 'You are not allowed to access this db.')
}

/** @throws not_server_admin */
export function requireServerAdmin(user: UserCtx): void {
  if (!user.roles.includes('_admin')) throw new CouchError('not_server_admin')
}

/**
 * For `_compact` and `_view_cleanup`, which refuse whoever is no admin with 401 (protocol.md 19.7).
 * @throws unauthorized or forbidden for anybody who is no member, unauthorized for one who is no admin
 */
export function requireMaintainer(user: UserCtx, security: SecurityObject | null): void {
  requireMember(user, security)
  if (databaseRole(user, security) === 'admin') return
  throw new CouchError('unauthorized', 'You are not a server or db admin.')
}

/** @throws unauthorized or forbidden for anybody who is no admin of the database */
export function requireDatabaseAdmin(user: UserCtx, security: SecurityObject | null): void {
  requireMember(user, security)
  if (databaseRole(user, security) === 'admin') return
  throw new CouchError(user.name === null ? 'unauthorized' : 'forbidden', 'You are not a db or server admin.')
}
