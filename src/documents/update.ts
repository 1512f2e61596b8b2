/** Writing documents: rights, and the edits of each document as one update of the store. */
import { asCouchError, CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore, DocUpdate, Outcome, StoreView } from '../storage/engine.ts'
import { decideEdits, type Edit, type EditResult } from './edit.ts'
import { requireDatabaseAdmin, requireMember } from './security.ts'

/** An edit and the document it is of. */
export interface NamedEdit extends Edit {
  readonly id: string
}

/**
 * Carries out edits, each document atomically; edits of the same id are decided together, in their order.
 * @returns a result an edit, in the order given: also where the store or the user's rights failed it, since the
 * others may be stored
 */
export async function updateDocuments(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly NamedEdit[],
): Promise<EditResult[]> {
  const byId = new Map<string, number[]>()
  for (const [at, { id }] of edits.entries()) {
    const places = byId.get(id)
    if (places === undefined) byId.set(id, [at])
    else places.push(at)
  }
  const updates = [...byId].map(([id, places]) =>
    documentUpdate(
      id,
      user,
      places.map((at) => edits[at] as Edit),
    ),
  )
  const outcomes = await store.updateDocs(updates)
  const results: EditResult[] = new Array(edits.length)
  for (const [group, places] of [...byId.values()].entries()) {
    const outcome = outcomes[group] as Outcome<EditResult[]>
    for (const [index, at] of places.entries()) results[at] = resultOf(outcome, index)
  }
  return results
}

function resultOf(outcome: Outcome<EditResult[]>, index: number): EditResult {
  if ('result' in outcome) return outcome.result[index] as EditResult
  return 'error' in outcome ? asCouchError(outcome.error) : new CouchError('contended')
}

function documentUpdate(id: string, user: UserCtx, edits: readonly Edit[]): DocUpdate<EditResult[]> {
  return {
    id,
    bytes: edits.reduce((sum, edit) => sum + editBytes(edit), 0),
    touches: { branches: true },
    decide: (doc, view) => {
      requireMember(user, view.security)
      const refusal = isDesignId(id) ? designDocRefusal(user, view) : null
      if (refusal !== null) return { result: edits.map(() => refusal) }
      return decideEdits(id, doc, view.revsLimit, edits)
    },
  }
}

/** Protocol.md 4.1: in a bulk, who may not write design documents gets a row that says so. */
function designDocRefusal(user: UserCtx, view: StoreView): CouchError | null {
  try {
    requireDatabaseAdmin(user, view.security)
    return null
  } catch (refusal) {
    if (refusal instanceof CouchError) return refusal
    throw refusal
  }
}

/** About how much an edit writes; ancestry and rows are counted as a quarter of a kilobyte. */
function editBytes({ doc }: Edit): number {
  return doc.attachments.reduce(
    (sum, { content }) => sum + (content?.bytes.length ?? 0),
    doc.body.length + 256,
  )
}
