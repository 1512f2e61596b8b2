/**
 * A document's history is a set of branches (architecture.md, "Branches"). Each is a leaf with its ancestry, exactly
 * CouchDB's `_revisions`. There is no tree; the tree is the union of the branches.
 *
 * An engine may load `ids` from disk when they are first read. Code that has a stored branch therefore decides by `pos`
 * and `leaf` where they suffice, and reads `ids` last.
 */
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { BranchIndex, FEW_BRANCHES } from './branch-index.ts'
import { extend, merge, stem } from './merge.ts'
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
  /** What an engine knows of `ids` without decoding all of them. Absent: read `ids`. */
  readonly ancestry?: Ancestry
}

/** An ancestry in the form in which it is stored. */
export interface Ancestry {
  /** How many ids there are. */
  readonly length: number
  /** About how many bytes they take where they are stored; never costs a load. */
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

/** About how many bytes the ancestry takes where it is stored. */
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

/** What decides between leaves; a Branch has it, and so has a row without an ancestry. */
export interface Leaf {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
}

/** Orders leaves, the winner first: live before deleted, then generation, then id by bytes (protocol.md 6.1). */
function compareLeaves(a: Leaf, b: Leaf): number {
  return Number(a.deleted) - Number(b.deleted) || b.pos - a.pos || compareUtf8(b.leaf, a.leaf)
}

/** The same leaves in a new array, winner first: the order of `changes` with style=all_docs (protocol.md 19.1). */
export function sortLeaves<T extends Leaf>(leaves: readonly T[]): T[] {
  return [...leaves].sort(compareLeaves)
}

/** The leaf that a document shows; the document is deleted if this leaf is. Undefined if there are no leaves. */
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

/** What a revision changes. A branch whose ancestry grows is both removed and added. */
export interface BranchChange {
  readonly removed: readonly Branch[]
  readonly added: readonly Branch[]
}

/** The changes of the stored branches. */
interface BranchChanges {
  /** Stored leaves that are no longer leaves. */
  readonly superseded: readonly Branch[]
  /** Leaves that are new, and those whose ancestry has grown. */
  readonly written: readonly Branch[]
  /** Whether the leaves differ from those before. */
  readonly leavesChanged: boolean
}

const NO_CHANGE: BranchChange = { removed: [], added: [] }

/**
 * The branches of one document while a request's revisions enter it, one after the other. The cost of a revision is in
 * proportion to its own path and to what it changes. Only the first one that reaches into other branches looks at all of
 * them.
 *
 * Few branches are merged by merge.ts. Of many, merging only needs to know which branches contain a revision, and an index
 * answers that. The result equals that of `closure` for the same reason: of the branches before, none begins inside one
 * that reaches further back, and no leaf lies on another, so every change is caused by the incoming path.
 */
export class BranchSet {
  readonly #revsLimit: number
  readonly #few: number
  #branches: readonly Branch[]
  #index: BranchIndex | undefined
  #winner: Branch | undefined
  #steps = 0
  /** undefined: not counted yet. */
  #bytes: number | undefined
  /** Stored branches that are gone, and branches that are not stored, by their leaves. */
  readonly #removed = new Map<string, Branch>()
  readonly #added = new Map<string, Branch>()

  /**
   * @param branches as stored
   * @param revsLimit ancestors kept for each branch, at least 1
   * @param few up to so many branches are merged without an index
   */
  constructor(branches: readonly Branch[], revsLimit: number, few = FEW_BRANCHES) {
    this.#branches = branches
    this.#revsLimit = revsLimit
    this.#few = few
    this.#winner = winner(branches)
    this.#steps = branches.length
    this.#indexMany()
  }

  #indexMany(): void {
    if (this.#branches.length <= this.#few) return
    this.#index = new BranchIndex(this.#branches)
    this.#branches = []
  }

  get size(): number {
    return this.#index?.branches.size ?? this.#branches.length
  }

  /** In no order that means anything. */
  get branches(): Iterable<Branch> {
    return this.#index?.branches ?? this.#branches
  }

  /** Work so far, in branches and ids that were looked at. */
  get steps(): number {
    return this.#steps + (this.#index?.steps ?? 0)
  }

  /** The leaf that the document shows. */
  get winner(): Branch | undefined {
    return this.#winner
  }

  /** The branch that ends in a revision; loads no ancestry. */
  leaf(rev: Rev): Branch | undefined {
    return this.#index === undefined
      ? this.#branches.find((branch) => endsIn(branch, rev))
      : this.#index.leaf(rev)
  }

  /** About the bytes that all ancestries take where they are stored. */
  ancestryBytes(): number {
    this.#bytes ??= this.#countBytes()
    return this.#bytes
  }

  #countBytes(): number {
    let bytes = 0
    for (const branch of this.branches) bytes += bytesOf(branch)
    this.#steps += this.size
    return bytes
  }

  /** What merging a replicated branch changes, as `merge` decides it. */
  mergeOf(incoming: Branch): BranchChange {
    if (this.#index !== undefined) return this.#mergeIndexed(this.#index, incoming)
    this.#steps += incoming.ids.length + this.#branches.length
    return difference(this.#branches, merge(this.#branches, incoming, this.#revsLimit).branches)
  }

  /**
   * What a new revision upon a leaf changes, as `extend` decides it.
   * @param parent one of the branches
   * @throws CouchError invalid_rev when the parent's generation is the largest there can be
   */
  extendOf(parent: Branch, newId: string, deleted: boolean): BranchChange {
    if (this.#index === undefined) {
      return difference(this.#branches, extend(this.#branches, parent, newId, deleted, this.#revsLimit))
    }
    const pos = parent.pos + 1
    if (!Number.isSafeInteger(pos)) throw new CouchError('invalid_rev')
    const ids = [newId, ...parent.ids.slice(0, this.#revsLimit - 1)]
    this.#steps += ids.length
    const grown = makeBranch(pos, ids, deleted)
    return this.#index.leaf({ pos, id: newId }) === undefined
      ? { removed: [parent], added: [grown] }
      : this.#mergeIndexed(this.#index, grown)
  }

  apply({ removed, added }: BranchChange): void {
    if (removed.length === 0 && added.length === 0) return
    const gone = new Set(removed)
    if (this.#index === undefined) {
      this.#branches = [...this.#branches.filter((branch) => !gone.has(branch)), ...added]
    } else {
      for (const branch of removed) this.#index.delete(branch)
      for (const branch of added) this.#index.add(branch)
    }
    if (this.#bytes !== undefined) {
      for (const branch of removed) this.#bytes -= bytesOf(branch)
      for (const branch of added) this.#bytes += bytesOf(branch)
    }
    for (const branch of removed) this.#note(branch)
    for (const branch of added) this.#added.set(leafRev(branch), branch)
    this.#crown(gone, added)
    if (this.#index === undefined) this.#indexMany()
  }

  #note(branch: Branch): void {
    const rev = leafRev(branch)
    if (!this.#added.delete(rev)) this.#removed.set(rev, branch)
  }

  #crown(gone: ReadonlySet<Branch>, added: readonly Branch[]): void {
    const best = this.#winner
    const isGone = best === undefined || gone.has(best)
    // What follows the winner is most often the next one; only a worse one asks for a look at all others.
    const heir = winner(isGone ? added : [best, ...added])
    if (best === undefined || !isGone || (heir !== undefined && compareLeaves(heir, best) <= 0)) {
      this.#winner = heir
      return
    }
    this.#steps += this.size
    this.#winner = winner([...this.branches])
  }

  /** What all that was applied has changed. */
  changes(): BranchChanges {
    const superseded = [...this.#removed].flatMap(([rev, branch]) => (this.#added.has(rev) ? [] : branch))
    const written = [...this.#added.values()]
    const hasNew = written.some((branch) => !this.#removed.has(leafRev(branch)))
    return { superseded, written, leavesChanged: hasNew || superseded.length > 0 }
  }

  #mergeIndexed(index: BranchIndex, incoming: Branch): BranchChange {
    const { pos, leaf, ids } = incoming
    const rev = { pos, id: leaf }
    const same = index.leaf(rev)
    // As it was sent before.
    if (same !== undefined && idAt(same, oldestOf(incoming)) === ids.at(-1)) return NO_CHANGE
    const isKnown = index.knows(rev)
    const reaching = [...index.beginningOn(pos, ids)]
    if (isKnown && reaching.length === 0) return NO_CHANGE
    // Of a path that is known nothing counts but what others take of it, be it cut from them again.
    const end = isKnown ? reaching.reduce((most, branch) => Math.max(most, oldestOf(branch)), 0) : pos
    const ended = [...index.leavesOn(pos, ids)].filter((branch) => branch.pos < end)
    const isEnded = new Set(ended)
    const grown = reaching.filter((branch) => this.#mayGrow(branch) && !isEnded.has(branch))
    const path = this.#reachBack(index, incoming, grown)
    const longer = grown.map((branch) => this.#grow(branch, path.slice(pos - oldestOf(branch) + 1)))
    const added = isKnown ? longer : [...longer, this.#stemmed(incoming, path)]
    return { removed: [...ended, ...grown], added }
  }

  /** What it would take over is cut again from a branch that has as many ids as there may be. */
  #mayGrow(branch: Branch): boolean {
    return branch.pos - oldestOf(branch) + 1 < this.#revsLimit
  }

  /**
   * The ids of the incoming branch, followed by older ancestors that other branches know. It goes back as far as any
   * branch may keep them.
   * @param growing branches that will take over what is older than themselves
   */
  #reachBack(index: BranchIndex, incoming: Branch, growing: readonly Branch[]): readonly string[] {
    const lowest = growing.reduce((least, { pos }) => Math.min(least, pos), incoming.pos)
    const enough = Math.max(lowest - this.#revsLimit + 1, 1)
    const parts = [incoming.ids]
    let oldest = oldestOf(incoming)
    let id = incoming.ids.at(-1) as string
    while (oldest > enough) {
      const source = index.furthest({ pos: oldest, id }, enough)
      if (source === undefined) break
      parts.push(source.ids.slice(source.pos - oldest + 1))
      oldest = oldestOf(source)
      id = source.ids.at(-1) as string
    }
    return parts.length === 1 ? incoming.ids : parts.flat()
  }

  #grow(branch: Branch, older: readonly string[]): Branch {
    this.#steps += branch.ids.length
    return makeBranch(branch.pos, [...branch.ids, ...older].slice(0, this.#revsLimit), branch.deleted)
  }

  #stemmed(incoming: Branch, path: readonly string[]): Branch {
    const whole = path === incoming.ids ? incoming : makeBranch(incoming.pos, path, incoming.deleted)
    return stem(whole, this.#revsLimit)
  }
}

function difference(before: readonly Branch[], after: readonly Branch[]): BranchChange {
  return {
    removed: before.filter((branch) => !after.includes(branch)),
    added: after.filter((branch) => !before.includes(branch)),
  }
}
