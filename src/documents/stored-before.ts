/** What a database holds from before hosted mode, which takes no more of it (docs/hosted.md). */
import type { DatabaseStore } from '../storage/engine.ts'
import { AUTH_DESIGN_ID } from './auth-design.ts'
import type { StoredBefore } from './database.ts'
import { isOwnDesign } from './hosted.ts'
import { kindRange } from './id-range.ts'

/** Attachments are counted so far; what that takes is a millisecond or two. */
export const MOST_COUNTED = 10_000

/** @param database its name */
export async function storedBefore(store: DatabaseStore, database: string): Promise<StoredBefore> {
  const [designDocs, [own], attachments] = await Promise.all([
    store.countRange(kindRange('design')),
    store.readDocs(
      [AUTH_DESIGN_ID],
      (doc, id) =>
        doc !== null && !doc.deleted && isOwnDesign(database, id, doc.body(doc.rev) ?? '') ? 1 : 0,
      { body: true },
    ),
    store.countAttachments(MOST_COUNTED),
  ])
  return { designDocs: designDocs - (own ?? 0), attachments }
}
