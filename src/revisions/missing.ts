import { type Branch, isKnown, leafRev } from './branch.ts'
import { formatRev, type Rev } from './rev.ts'
import { sortLeaves } from './winner.ts'

export interface MissingRevs {
  /** In the order asked; empty when all are known. */
  missing: string[]
  /** Winner first; empty when nothing is missing. */
  possibleAncestors: string[]
}

/**
 * One document's part of `_revs_diff` (protocol.md 4.3): which revisions are known nowhere in its history, and
 * which leaves, deleted ones too, are of a smaller generation than the newest of those.
 *
 * @param branches null for a document that does not exist
 */
export function missingRevs(branches: readonly Branch[] | null, revs: readonly Rev[]): MissingRevs {
  const stored = branches ?? []
  const missing = revs.filter((rev) => !isKnown(stored, rev))
  const newest = missing.reduce((pos, rev) => Math.max(pos, rev.pos), 0)
  const older = stored.filter((branch) => branch.pos < newest)
  return {
    missing: missing.map((rev) => formatRev(rev.pos, rev.id)),
    possibleAncestors: sortLeaves(older).map(leafRev),
  }
}
