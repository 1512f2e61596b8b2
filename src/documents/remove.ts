/** What the DELETE method says of a document that it cannot delete; protocol.md 3.4. */
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { DocumentReader } from './document-reader.ts'
import { requireMember } from './security.ts'

/**
 * Reads the revision that is to be deleted; null when none is named. A document that is not there is told of before
 * anything that is wrong with the revision.
 * @throws invalid_rev; not_found, deleted; unauthorized, forbidden
 */
export async function removedRev(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  rev: string | undefined,
): Promise<Rev | null> {
  if (rev === undefined) return null
  try {
    return parseRev(rev)
  } catch (malformed) {
    await requireThere(store, user, id)
    throw malformed
  }
}

async function requireThere(store: DocumentReader, user: UserCtx, id: string): Promise<void> {
  requireMember(user, (await store.view()).security)
  if (isLocalId(id)) {
    const [local] = await store.readLocals([id])
    if (!local) throw new CouchError('not_found')
    return
  }
  const [isDeleted] = await store.readDocs([id], (doc) => doc?.deleted)
  if (isDeleted !== false) throw new CouchError(isDeleted ? 'deleted' : 'not_found')
}
