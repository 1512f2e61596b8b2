import { CouchError } from '../core/errors.ts'
import {
  type Branch,
  bytesOf,
  compareLeaves,
  endsIn,
  idAt,
  leafRev,
  makeBranch,
  oldestOf,
  winner,
} from './branch.ts'
import { BranchIndex, FEW_BRANCHES } from './branch-index.ts'
import { extend, merge, stem } from './merge.ts'
import type { Rev } from './rev.ts'

/** What a revision changes. A branch whose ancestry grows, or takes a leaf that is cut again, is both removed and added. */
export interface BranchChange {
  readonly removed: readonly Branch[]
  readonly added: readonly Branch[]
}

/** How many bytes the ancestries take more after a change; 0 if they take fewer. */
export function bytesGained({ removed, added }: BranchChange): number {
  const sum = (branches: readonly Branch[]) => branches.reduce((bytes, branch) => bytes + bytesOf(branch), 0)
  return Math.max(0, sum(added) - sum(removed))
}

/** The changes of the stored branches. */
interface BranchChanges {
  /** Stored leaves that are no longer leaves. */
  readonly superseded: readonly Branch[]
  /** Leaves that are new, and those whose ancestry has grown, even if it was cut again. */
  readonly written: readonly Branch[]
  /** Whether the leaves differ from those before. */
  readonly leavesChanged: boolean
}

const NO_CHANGE: BranchChange = { removed: [], added: [] }

/**
 * The branches of one document while a request's revisions enter it, one after the other. The cost of a revision is
 * proportional to its own path and to its changes. Only the first revision that affects other branches reads all
 * of them.
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
  /** undefined if not counted yet. */
  #bytes: number | undefined
  /** Stored branches that were removed, and branches that are not stored, by their leaves. */
  readonly #removed = new Map<string, Branch>()
  readonly #added = new Map<string, Branch>()

  /**
   * @param branches as stored
   * @param revsLimit ancestors kept for each branch, at least 1
   * @param few the maximum number of branches that are merged without an index
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

  /** In any order. */
  get branches(): Iterable<Branch> {
    return this.#index?.branches ?? this.#branches
  }

  /** Work so far: branches and ids that were read. */
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

  /** The approximate stored size of all ancestries, in bytes. */
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

  /** Merges a replicated branch like `merge`, and returns the changes. */
  mergeOf(incoming: Branch): BranchChange {
    if (this.#index !== undefined) return this.#mergeIndexed(this.#index, incoming)
    this.#steps += incoming.ids.length + this.#branches.length
    return difference(this.#branches, merge(this.#branches, incoming, this.#revsLimit).branches)
  }

  /**
   * Adds a new revision to a leaf like `extend`, and returns the changes.
   * @param parent one of the branches
   * @throws CouchError invalid_rev if the parent has the largest possible generation
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
    const removedSet = new Set(removed)
    if (this.#index === undefined) {
      this.#branches = [...this.#branches.filter((branch) => !removedSet.has(branch)), ...added]
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
    this.#updateWinner(removedSet, added)
    if (this.#index === undefined) this.#indexMany()
  }

  #note(branch: Branch): void {
    const rev = leafRev(branch)
    if (!this.#added.delete(rev)) this.#removed.set(rev, branch)
  }

  #updateWinner(removed: ReadonlySet<Branch>, added: readonly Branch[]): void {
    const best = this.#winner
    const isRemoved = best === undefined || removed.has(best)
    // The winner's successor usually wins; all others are compared only if it is worse.
    const candidate = winner(isRemoved ? added : [best, ...added])
    if (
      best === undefined ||
      !isRemoved ||
      (candidate !== undefined && compareLeaves(candidate, best) <= 0)
    ) {
      this.#winner = candidate
      return
    }
    this.#steps += this.size
    this.#winner = winner([...this.branches])
  }

  /** All changes so far. */
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
    // The same branch was sent before.
    if (same !== undefined && idAt(same, oldestOf(incoming)) === ids.at(-1)) return NO_CHANGE
    const isKnown = index.knows(rev)
    const reaching = [...index.beginningOn(pos, ids)]
    if (isKnown && reaching.length === 0) return NO_CHANGE
    // A known path matters only for the ids that other branches take from it, even if they are cut again.
    const end = isKnown ? reaching.reduce((most, branch) => Math.max(most, oldestOf(branch)), 0) : pos
    const ended = [...index.leavesOn(pos, ids)].filter((branch) => branch.pos < end)
    const isEnded = new Set(ended)
    const lowestEnd = ended.reduce((least, branch) => Math.min(least, branch.pos), Infinity)
    const grown = reaching.filter(
      (branch) => !isEnded.has(branch) && (this.#mayGrow(branch) || lowestEnd < oldestOf(branch)),
    )
    const path = this.#reachBack(index, incoming, grown)
    const longer = grown.map((branch) => this.#grow(branch, path.slice(pos - oldestOf(branch) + 1)))
    const added = isKnown ? longer : [...longer, this.#stemmed(incoming, path)]
    return { removed: [...ended, ...grown], added }
  }

  /** A branch with the maximum number of ids cannot grow: ids that it took would be cut again. */
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
