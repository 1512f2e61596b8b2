/**
 * `_local` documents: revisions `0-N` without history, no feed, no replication (protocol.md 3.8). As in CouchDB 3
 * there is no conflict: each write is one above the revision it names, and attachments are dropped, which PouchDB's
 * own suite holds CouchDB to. The first checkpoint of a replication with a database that was restored is refused
 * (docs/decisions/0024).
 */
import { asCouchError, CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { claimOf } from '../storage/checkpoints.ts'
import type { DatabaseStore, LocalUpdate } from '../storage/engine.ts'
import { exactWhereTight, localRefusal } from './allowance.ts'
import type { DocumentRules } from './database.ts'
import { type IncomingDoc, namedRev } from './incoming-document.ts'
import { requireMember } from './security.ts'

/** A `_local` document's write. */
export interface LocalEdit {
  readonly id: string
  readonly doc: IncomingDoc
  /** The DELETE method: 404 unless it is there. */
  readonly mustExist?: boolean
}

/** A client that hears this reads how far it is, and tries again. */
const COMPARE_ANEW =
  'This database was restored to an earlier state, and what was synced since may be missing here: ' +
  'sync again, and everything is compared.'

type LocalResult = { readonly rev: string; readonly deleted: boolean } | CouchError

/**
 * Writes `_local` documents.
 * @returns a result an edit, in order: also where the store or the user's rights failed it
 * @throws invalid_rev: then nothing is written
 */
export async function updateLocals(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly LocalEdit[],
  rules?: DocumentRules,
): Promise<LocalResult[]> {
  for (const { doc } of edits) checkLocal(doc)
  const writer = await exactWhereTight(store, user, edits)
  const outcomes = await store.updateLocals(edits.map((edit) => localUpdate(writer, edit, rules)))
  return outcomes.map((outcome) => {
    if ('result' in outcome) return outcome.result
    return 'error' in outcome ? asCouchError(outcome.error) : new CouchError('contended')
  })
}

/** Refuses a revision that no `_local` document can have, before anything is written. */
export function checkLocal(doc: IncomingDoc): void {
  const rev = namedRev(doc)
  if (rev !== null && (rev.pos !== 0 || !/^\d{1,15}$/.test(rev.id))) throw new CouchError('invalid_rev')
}

function localUpdate(
  user: UserCtx,
  { id, doc, mustExist }: LocalEdit,
  rules: DocumentRules | undefined,
): LocalUpdate<LocalResult> {
  return {
    id,
    decide: (stored, view, wasMet) => {
      requireMember(user, view.security)
      rules?.checkWriter(user, id, view.security, stored !== null)
      if (doc.deleted) {
        if (stored === null && mustExist) return { result: new CouchError('not_found') }
        return { result: { rev: '0-0', deleted: true }, write: null }
      }
      const refusal = localRefusal(user.allowance, stored === null ? null : stored.body.length, doc.body)
      if (refusal !== null) return { result: refusal }
      const claim = view.wasRestored && !wasMet ? claimOf(doc.body, view) : null
      if (claim === 'unproven') return { result: new CouchError('unavailable', COMPARE_ANEW), met: true }
      const rev = Number(namedRev(doc)?.id ?? 0) + 1
      return {
        result: { rev: `0-${rev}`, deleted: false },
        write: { rev, body: doc.body },
        met: claim === 'begun',
      }
    },
  }
}
