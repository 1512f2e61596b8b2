/** What a mobile device does not sync: pictures, which are separate documents with `file:` in their ids. */
import type { Doc, ReplicationOptions } from '../pouch.ts'
import type { MobileWay } from './target.ts'

/** The filter function of the design document, by the name that other apps use, too. */
export const MOBILE_FILTER = 'mobile/sync'
/** The same rule as a selector, for a server without design documents. */
const MOBILE_SELECTOR = { _id: { $not: { $regex: 'file:' } } }

/** The same rule as a function on the device (vaults/livesync.ts of settee). */
export function isForMobile(doc: Doc): boolean {
  return doc._id.indexOf('file:') === -1
}

/** Options of a replication that leave out `file:` documents in both directions. */
export function mobileOptions(
  way: MobileWay,
  direction: 'push' | 'pull',
): Pick<ReplicationOptions, 'filter' | 'selector'> {
  if (way === 'none') return {}
  if (direction === 'push') return { filter: isForMobile }
  return way === 'filter' ? { filter: MOBILE_FILTER } : { selector: MOBILE_SELECTOR }
}
