/**
 * The design document by which a note app's mobile devices leave out pictures, which are documents whose id contains
 * `file:`; the app replicates with `filter=mobile/sync` (clients.md 1.3).
 */
export const MOBILE_DESIGN_ID = '_design/mobile'

/** Its `filters.sync`. */
export const MOBILE_FILTER = "function (doc) { return doc._id.indexOf('file:') === -1 }"
