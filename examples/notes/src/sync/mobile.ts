/** What a mobile device leaves to others: pictures, which are records of their own with `file:` in their ids. */
import type { Doc, ReplicationOptions } from '../pouch.ts'
import type { MobileWay } from './target.ts'

/** The function of the design document that others' apps look for, too. */
export const MOBILE_FILTER = 'mobile/sync'
/** The same for a server that has no design documents. */
const MOBILE_SELECTOR = { _id: { $not: { $regex: 'file:' } } }

/** What the function of the design document says, for a device that has none (vaults/livesync.ts of settee). */
export function isForMobile(doc: Doc): boolean {
  return doc._id.indexOf('file:') === -1
}

/** What a replication is told so that no `file:` record travels, in either direction. */
export function mobileOptions(
  way: MobileWay,
  direction: 'push' | 'pull',
): Pick<ReplicationOptions, 'filter' | 'selector'> {
  if (way === 'none') return {}
  if (direction === 'push') return { filter: isForMobile }
  return way === 'filter' ? { filter: MOBILE_FILTER } : { selector: MOBILE_SELECTOR }
}
