import { type Branch, leafRev, makeBranch, sortLeaves } from '../../src/revisions/branch.ts'
import { BranchSet } from '../../src/revisions/branch-set.ts'
import type { MergeResult } from '../../src/revisions/merge.ts'

/** A branch written as in architecture.md, "Branches": `4:f,d,c`, newest first; a `!` at the end marks a deleted leaf. */
export function branch(text: string): Branch {
  const [, pos, ids, mark] = /^(\d+):([^!]*)(!?)$/.exec(text) ?? []
  if (pos === undefined || ids === undefined) throw new Error(`Not a branch: ${text}`)
  return makeBranch(Number(pos), ids.split(','), mark === '!')
}

export function branches(...texts: string[]): Branch[] {
  return texts.map(branch)
}

/** The branches in that notation, winner first, so that two histories can be compared. */
export function show(all: readonly Branch[]): string[] {
  return sortLeaves(all).map((one) => `${one.pos}:${one.ids.join(',')}${one.deleted ? '!' : ''}`)
}

/** The same branches as an engine gives them, with the leaf of each `ids` that was loaded noted in `loads`. */
export function lazily(all: readonly Branch[], loads: string[]): Branch[] {
  return all.map(({ pos, leaf, ids, deleted }) => ({
    pos,
    leaf,
    deleted,
    get ids() {
      loads.push(leafRev({ pos, leaf }))
      return ids
    },
  }))
}

/** What `merge` gives, by the index that documents with many branches are merged with. */
export function mergeByIndex(stored: readonly Branch[], incoming: Branch, limit: number): MergeResult {
  const set = new BranchSet(stored, limit, 0)
  set.apply(set.mergeOf(incoming))
  const { written, superseded, leavesChanged } = set.changes()
  return {
    branches: [...set.branches],
    leavesChanged,
    changed: written.length > 0 || superseded.length > 0,
  }
}

/** What `extend` gives, in the same way. */
export function extendByIndex(
  stored: readonly Branch[],
  parent: Branch,
  newId: string,
  deleted: boolean,
  limit: number,
): readonly Branch[] {
  const set = new BranchSet(stored, limit, 0)
  set.apply(set.extendOf(parent, newId, deleted))
  return [...set.branches]
}
