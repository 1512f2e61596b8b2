import { type Branch, leafRev, sortLeaves } from './branch.ts'
import { isKnown } from './branch-index.ts'
import { formatRev, type Rev } from './rev.ts'

export interface MissingRevs {
  /** In the order of the request; empty if all are known. */
  missing: string[]
  /** Winner first; empty if nothing is missing. */
  possibleAncestors: string[]
}

/** Revisions looked up between two checks of the time. */
const STRIDE = 64

/**
 * The part of `_revs_diff` for one document (protocol.md 4.3): the revisions that its history lacks, and the leaves,
 * deleted ones included, of a smaller generation than the newest of these. The lookup goes generation by generation,
 * which is the least work for the index, and may take several turns.
 */
export class MissingSearch {
  /** The requested revisions as `pos-id`, and whether each is missing. */
  readonly #names: string[] = []
  readonly #isMissing: boolean[] = []
  /** The revisions still to look up, with their positions in the request. */
  readonly #byGeneration = new Map<number, { readonly rev: Rev; readonly at: number }[]>()
  #newest = 0

  add(rev: Rev): void {
    const asked = { rev, at: this.#names.length }
    const others = this.#byGeneration.get(rev.pos)
    if (others === undefined) this.#byGeneration.set(rev.pos, [asked])
    else others.push(asked)
    this.#names.push(formatRev(rev.pos, rev.id))
    this.#isMissing.push(false)
  }

  /**
   * Looks up the next revisions.
   * @param branches the current branches; null for a document that does not exist
   * @param enough called from time to time; true ends this turn
   * @returns null if revisions remain
   */
  advance(branches: readonly Branch[] | null, enough: () => boolean): MissingRevs | null {
    const stored = branches ?? []
    for (const [pos, asked] of this.#byGeneration) {
      while (asked.length > 0) {
        for (const { rev, at } of asked.splice(-STRIDE)) this.#lookUp(stored, rev, at)
        if (enough()) return this.#isDone(pos, asked) ? this.#found(stored) : null
      }
      this.#byGeneration.delete(pos)
    }
    return this.#found(stored)
  }

  #lookUp(stored: readonly Branch[], rev: Rev, at: number): void {
    if (isKnown(stored, rev)) return
    this.#isMissing[at] = true
    this.#newest = Math.max(this.#newest, rev.pos)
  }

  #isDone(pos: number, asked: readonly unknown[]): boolean {
    if (asked.length === 0) this.#byGeneration.delete(pos)
    return this.#byGeneration.size === 0
  }

  #found(stored: readonly Branch[]): MissingRevs {
    const older = stored.filter((branch) => branch.pos < this.#newest)
    return {
      missing: this.#names.filter((_, at) => this.#isMissing[at]),
      possibleAncestors: sortLeaves(older).map(leafRev),
    }
  }
}

/** The same in one turn, for few revisions. */
export function missingRevs(branches: readonly Branch[] | null, revs: readonly Rev[]): MissingRevs {
  const search = new MissingSearch()
  for (const rev of revs) search.add(rev)
  return search.advance(branches, () => false) as MissingRevs
}
