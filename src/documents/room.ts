/**
 * What is refused while the disk is short of room (docs/operating.md, Full disks): whatever makes a database grow,
 * document by document, so that the rest of a bulk goes on. Deletions pass, and so does all that is no document of a
 * database: `_local` documents, settings, purges, compaction.
 */
import type { CouchError } from '../core/errors.ts'
import { isDeletion } from './allowance.ts'
import type { Candidate, Inspect } from './draft.ts'
import type { Edit } from './edit.ts'

/**
 * Adds the check to what inspects the edits of a document.
 * @param refusal null: there is room
 * @returns `inspect` as it is where there is room
 */
export function withinRoom(
  refusal: CouchError | null,
  edits: readonly Pick<Edit, 'attachment' | 'doc'>[],
  inspect: Inspect | undefined,
): Inspect | undefined {
  if (refusal === null) return inspect
  return (candidate) => {
    if (grows(candidate, edits[candidate.at])) throw refusal
    inspect?.(candidate)
  }
}

function grows(candidate: Candidate, edit: Pick<Edit, 'attachment' | 'doc'> | undefined): boolean {
  const { doc } = candidate
  if (doc.attachments.some(({ content }) => content !== null)) return true
  // Whoever removes an attachment makes room, though the document is written once more for it.
  const isRemoval = edit?.attachment !== undefined
  return !isRemoval && !(doc.deleted && isDeletion(candidate))
}
