/** What a vault's database says of who may come in and of what mobile devices leave out. Pure. */
import { isJsonObject } from '../core/json-object.ts'
import { MOBILE_FILTER } from '../core/mobile-filter.ts'
import type { SecurityList, SecurityObject } from '../core/types.ts'

/**
 * A security object that lets an account in, as an admin of the database alone; whoever it lets in already it goes on
 * letting in.
 * @returns null: it does so already
 */
export function openedTo(security: SecurityObject | null, account: string): SecurityObject | null {
  const { admins, members = security?.readers as SecurityList | undefined, ...others } = security ?? {}
  const names = [admins, members].map((list) => list?.names ?? [])
  if (members !== undefined && names.every((listed) => listed.includes(account))) return null
  return { ...others, admins: withName(admins, account), members: withName(members, account) }
}

function withName({ names = [], roles = [], ...others }: SecurityList = {}, name: string): SecurityList {
  return { ...others, names: names.includes(name) ? names : [...names, name], roles }
}

/**
 * The design document with the mobile filter.
 * @param before the one that is there; null: none
 * @returns what to store; or what was found: the filter, or another of its name, which is for its owner to change
 */
export function withMobileFilter(
  before: Readonly<Record<string, unknown>> | null,
): object | 'there' | 'differs' {
  const filters = before?.filters ?? {}
  if (!isJsonObject(filters)) return 'differs'
  if (filters.sync === undefined) return { ...before, filters: { ...filters, sync: MOBILE_FILTER } }
  const isSame = typeof filters.sync === 'string' && plain(filters.sync) === plain(MOBILE_FILTER)
  return isSame ? 'there' : 'differs'
}

/** Without what may differ between two that do the same: space, quotes, and semicolons at the end. */
function plain(source: string): string {
  return source.replace(/[\s;]/g, '').replaceAll('"', "'")
}
