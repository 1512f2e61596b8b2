/** What a mobile device leaves to others: pictures, which are records of their own with `file:` in their ids. */
import type { Doc, ReplicationOptions } from '../pouch.ts'
import type { MobileWay } from './target.ts'

/** The function of the design document that others' apps look for, too. */
export const MOBILE_FILTER = 'mobile/sync'
export const MOBILE_DESIGN = '_design/mobile'
/** Its source: what it says of a document is {@link isForMobile}. */
export const MOBILE_FUNCTION = "function (doc) { return doc._id.indexOf('file:') === -1 }"
/** The same for a server that has no design documents. */
const MOBILE_SELECTOR = { _id: { $not: { $regex: 'file:' } } }

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
