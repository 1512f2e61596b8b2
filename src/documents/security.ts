/** Checks a user's rights in a database by its security object, protocol.md 4.8, 11.4, 11.6. Pure. */
import { CouchError } from '../core/errors.ts'
import type { SecurityList, SecurityObject, UserCtx } from '../core/types.ts'

/** The security object that a database without one returns, as in CouchDB 3: for admins only. */
export const ADMIN_ONLY: SecurityObject = { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } }

type DatabaseRole = 'admin' | 'member' | 'none'

/**
 * A user's role in a database. Without a security object, and without `members` in it, only the listed admins and
 * server admins have a role. This rule is stricter than CouchDB's (docs/compatibility.md). A database whose `members`
 * has empty lists is public.
 */
export function databaseRole(user: UserCtx, security: SecurityObject | null): DatabaseRole {
  if (user.roles.includes('_admin')) return 'admin'
  if (security === null) return 'none'
  if (isListed(user, security.admins)) return 'admin'
  const members = security.members ?? (security.readers as SecurityList | undefined)
  if (members === undefined) return 'none'
  return isEmpty(members) || isListed(user, members) ? 'member' : 'none'
}

interface Listed {
  readonly names: ReadonlySet<string>
  readonly roles: ReadonlySet<string>
}

/**
 * Caches the lists as sets, since each request searches them and they may have thousands of names. The security object
 * stays the same until another one is set.
 */
const sets = new WeakMap<SecurityList, Listed>()

function listedIn(list: SecurityList): Listed {
  let listed = sets.get(list)
  if (listed === undefined) {
    listed = { names: new Set(list.names), roles: new Set(list.roles) }
    sets.set(list, listed)
  }
  return listed
}

function isEmpty(list: SecurityList): boolean {
  const { names, roles } = listedIn(list)
  return names.size === 0 && roles.size === 0
}

function isListed(user: UserCtx, list: SecurityList | undefined): boolean {
  if (list === undefined) return false
  const { names, roles } = listedIn(list)
  if (user.name !== null && names.has(user.name)) return true
  return user.roles.some((role) => roles.has(role))
}

/** @throws unauthorized (anonymous) or forbidden (logged in) for users who are not members */
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
 * For `_compact` and `_view_cleanup`, which refuse users who are not admins with 401 (protocol.md 19.7).
 * @throws unauthorized or forbidden for users who are not members, unauthorized for members who are not admins
 */
export function requireMaintainer(user: UserCtx, security: SecurityObject | null): void {
  requireMember(user, security)
  if (databaseRole(user, security) === 'admin') return
  throw new CouchError('unauthorized', 'You are not a server or db admin.')
}

/** @throws unauthorized or forbidden for users who are not admins of the database */
export function requireDatabaseAdmin(user: UserCtx, security: SecurityObject | null): void {
  requireMember(user, security)
  if (databaseRole(user, security) === 'admin') return
  throw new CouchError(user.name === null ? 'unauthorized' : 'forbidden', 'You are not a db or server admin.')
}
