/** `_local` documents of a database that is a copy of another server's, such as a standby's (docs/decisions/0024). */
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { Settings, UserCtx } from '../core/types.ts'
import type { DatabaseStore, LocalUpdate } from '../storage/engine.ts'
import { type IncomingDoc, namedRev, readDocument } from './incoming-document.ts'
import { checkLocal } from './local-docs.ts'
import { requireServerAdmin } from './security.ts'

/** Implements `Database.copyLocals`. */
export async function copyLocals(
  store: DatabaseStore,
  user: UserCtx,
  docs: readonly string[],
  removed: readonly string[],
  settings: Settings,
): Promise<void> {
  requireServerAdmin(user)
  const read = await Promise.all(docs.map((text) => readDocument({ text }, settings)))
  const updates = [...read.map(storing), ...removed.map(removing)]
  await store.updateSettings(({ wasRestored }) =>
    wasRestored ? { result: undefined } : { result: undefined, write: { wasRestored: true } },
  )
  for (const outcome of await store.updateLocals(updates)) if ('error' in outcome) throw outcome.error
}

function storing(doc: IncomingDoc): LocalUpdate<void> {
  const { id, body } = doc
  if (typeof id !== 'string' || !isLocalId(id)) throw new CouchError('illegal_docid')
  checkLocal(doc)
  const rev = Number(namedRev(doc)?.id ?? 1)
  return {
    id,
    decide: (stored) =>
      stored?.rev === rev && stored.body === body
        ? { result: undefined }
        : { result: undefined, write: { rev, body } },
  }
}

function removing(id: string): LocalUpdate<void> {
  return { id, decide: () => ({ result: undefined, write: null }) }
}
