/**
 * A document's history is a set of branches (architecture.md, "Branches"): each a leaf with its ancestry, which is exactly
 * CouchDB's `_revisions`. There is no tree; the tree is the union of the branches.
 *
 * An engine may load `ids` from disk only when it is read. So code that has a branch of the store decides by
 * `pos` and `leaf` where these can decide, and reads `ids` last.
 */
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { formatRev, normalizeRevId, type Rev } from './rev.ts'

export interface Branch {
  /** The leaf's generation. */
  readonly pos: number
  /** The leaf's id; the same as `ids[0]`, but never costs a load. */
  readonly leaf: string
  /** Newest first, never empty: `ids[k]` has the generation `pos - k`. */
  readonly ids: readonly string[]
  /** Whether the leaf is a tombstone. */
  readonly deleted: boolean
  /** What an engine can tell of `ids` without decoding them all; absent, `ids` is read. */
  readonly ancestry?: Ancestry
}

/** An ancestry in the form in which it is stored. */
export interface Ancestry {
  /** How many ids there are. */
  readonly length: number
  /** About the bytes that they take where they are stored; never costs a load. */
  readonly bytes: number
  /** The same as `ids[index]`. */
  id(index: number): string | undefined
}

/** Bytes that an id of 32 hex digits takes. */
const HEX_ID_BYTES = 16

/** Makes a branch of ids in memory, newest first; throws a RangeError when there are none. */
export function makeBranch(pos: number, ids: readonly string[], deleted: boolean): Branch {
  const leaf = ids[0]
  if (leaf === undefined) throw new RangeError('A branch has at least one revision.')
  return { pos, leaf, ids, deleted }
}

/** The leaf as `pos-id`. */
export function leafRev(branch: Pick<Branch, 'pos' | 'leaf'>): string {
  return formatRev(branch.pos, branch.leaf)
}

/** Whether the branch ends in this revision; loads nothing. */
export function endsIn(branch: Pick<Branch, 'pos' | 'leaf'>, rev: Rev): boolean {
  return branch.pos === rev.pos && branch.leaf === rev.id
}

/** Whether the revision is the branch's leaf or one of its ancestors (architecture.md, "Branches"). */
export function knows(branch: Branch, rev: Rev): boolean {
  return idAt(branch, rev.pos) === rev.id
}

/** The id of a generation; undefined where the branch has none. Loads nothing for the leaf's and later ones. */
export function idAt(branch: Branch, pos: number): string | undefined {
  if (branch.pos <= pos) return branch.pos === pos ? branch.leaf : undefined
  const index = branch.pos - pos
  return branch.ancestry === undefined ? branch.ids[index] : branch.ancestry.id(index)
}

/** The generation of the oldest id. */
export function oldestOf(branch: Branch): number {
  return branch.pos - (branch.ancestry ?? branch.ids).length + 1
}

/** About the bytes that the ancestry takes where it is stored. */
export function bytesOf(branch: Branch): number {
  if (branch.ancestry !== undefined) return branch.ancestry.bytes
  let bytes = 0
  for (const { length } of branch.ids) bytes += Math.max(length, HEX_ID_BYTES)
  return bytes
}

/**
 * Checks a document's `_revisions` member, `{start, ids}` with ids newest first.
 *
 * @returns the leaf's generation and the ids, 32-digit hex ones in lower case
 * @throws CouchError doc_validation with the reasons of protocol.md 1.2; the bounds (at least one id, no
 * generation below that of the first revision) and their reason are ours
 */
export function parseRevisions(value: unknown): { pos: number; ids: string[] } {
  if (!isJsonObject(value)) {
    throw new CouchError('doc_validation', 'Bad special document member: _revisions')
  }
  const { start, ids } = value
  if (typeof start !== 'number' || !Number.isSafeInteger(start)) {
    throw new CouchError('doc_validation', "_revisions.start isn't an integer.")
  }
  if (!Array.isArray(ids)) throw new CouchError('doc_validation', "_revisions.ids isn't a array.")
  // `_local` documents have generation 0 and one id.
  if (start < 0 || ids.length === 0 || ids.length > Math.max(start, 1)) {
    throw new CouchError('doc_validation', '_revisions.ids must have from 1 to _revisions.start members.')
  }
  return { pos: start, ids: ids.map(parseRevId) }
}

function parseRevId(value: unknown): string {
  if (typeof value !== 'string') throw new CouchError('doc_validation', "RevId isn't a string")
  const id = normalizeRevId(value)
  if (id === undefined) throw new CouchError('doc_validation', "RevId isn't a valid hexadecimal")
  return id
}

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
