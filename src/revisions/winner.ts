import { compareUtf8 } from '../core/bytes.ts'
import { leafRev } from './branch.ts'

/** What decides between leaves; a Branch is one, and so is a row that knows no ancestry. */
export interface Leaf {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
}

/** Orders leaves, the winner first: live before deleted, then generation, then id by bytes (protocol.md 6.1). */
export function compareLeaves(a: Leaf, b: Leaf): number {
  return Number(a.deleted) - Number(b.deleted) || b.pos - a.pos || compareUtf8(b.leaf, a.leaf)
}

/** The same leaves in a new array, winner first: the order of `changes` with style=all_docs (protocol.md 19.1). */
export function sortLeaves<T extends Leaf>(leaves: readonly T[]): T[] {
  return [...leaves].sort(compareLeaves)
}

/** The leaf a document shows; the document is deleted when this is. Undefined when there are no leaves. */
export function winner<T extends Leaf>(leaves: readonly T[]): T | undefined {
  let best = leaves[0]
  for (const leaf of leaves) if (best && leaf !== best && compareLeaves(leaf, best) < 0) best = leaf
  return best
}

/** `_conflicts`: the live leaves besides the winner as `pos-id`, best first. */
export function conflicts(leaves: readonly Leaf[]): string[] {
  return losers(leaves, false)
}

/** `_deleted_conflicts`: the deleted leaves besides the winner as `pos-id`, best first. */
export function deletedConflicts(leaves: readonly Leaf[]): string[] {
  return losers(leaves, true)
}

function losers(leaves: readonly Leaf[], deleted: boolean): string[] {
  const [, ...rest] = sortLeaves(leaves)
  return rest.filter((leaf) => leaf.deleted === deleted).map(leafRev)
}
