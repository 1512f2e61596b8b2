/** Security objects in plain words. Pure. */
import type { Security, SecurityList } from './database-answers.ts'

/** Who has access besides the admins. */
export type Entry = 'admins' | 'members' | 'everyone'

/** A security object as the screen edits it. */
export interface Access {
  readonly entry: Entry
  readonly memberNames: readonly string[]
  readonly memberRoles: readonly string[]
  readonly adminNames: readonly string[]
  readonly adminRoles: readonly string[]
}

/** The role that only server admins have: a list with nothing else lets nobody else in. */
const ADMIN = '_admin'

/** Without `members` only admins have access; with empty lists everybody has. */
export function accessOf({ admins = {}, readers, members = readers }: Security): Access {
  const memberNames = members?.names ?? []
  const memberRoles = (members?.roles ?? []).filter((role) => role !== ADMIN)
  const isListed = memberNames.length > 0 || memberRoles.length > 0
  const isClosed = members === undefined || (members.roles ?? []).includes(ADMIN)
  return {
    entry: isListed ? 'members' : isClosed ? 'admins' : 'everyone',
    memberNames,
    memberRoles,
    adminNames: admins.names ?? [],
    adminRoles: (admins.roles ?? []).filter((role) => role !== ADMIN),
  }
}

/** @param before the stored object, whose other members stay as they are */
export function securityOf(access: Access, before: Security = {}): Security {
  const isChosen = access.entry === 'members'
  const names = isChosen ? access.memberNames : []
  const roles = isChosen ? access.memberRoles : []
  const isNobody = names.length === 0 && roles.length === 0
  return {
    ...before,
    admins: {
      ...before.admins,
      names: access.adminNames,
      roles: [...access.adminRoles, ...(before.admins?.roles?.includes(ADMIN) ? [ADMIN] : [])],
    },
    members: {
      ...before.members,
      names,
      // A list that became empty must not open the database.
      roles: access.entry !== 'everyone' && isNobody ? [ADMIN] : roles,
    },
  }
}

export interface Caller {
  readonly name: string
  readonly roles: readonly string[]
  readonly isAdmin: boolean
}

/** Whether the caller could still change the access. */
export function isAdminOf(caller: Caller, { adminNames, adminRoles }: Access): boolean {
  return caller.isAdmin || isListed(caller, { names: adminNames, roles: adminRoles })
}

function isListed({ name, roles }: Caller, list: SecurityList): boolean {
  return list.names?.includes(name) === true || roles.some((role) => list.roles?.includes(role) === true)
}

export function isSameAccess(a: Access, b: Access): boolean {
  return JSON.stringify(securityOf(a)) === JSON.stringify(securityOf(b))
}

/** Names and roles that lose their access. */
export function removedFrom(before: Access, after: Access): readonly string[] {
  const left = new Set([
    ...after.adminNames,
    ...after.adminRoles,
    ...(after.entry === 'members' ? [...after.memberNames, ...after.memberRoles] : []),
  ])
  if (after.entry === 'everyone') return []
  const had = [...before.adminNames, ...before.adminRoles]
  if (before.entry === 'members') had.push(...before.memberNames, ...before.memberRoles)
  return [...new Set(had)].filter((each) => !left.has(each))
}
