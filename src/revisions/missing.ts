import { type Branch, leafRev, sortLeaves } from './branch.ts'
import { isKnown, lookUpWork, MOST_WORK } from './branch-index.ts'
import { formatRev, type Rev } from './rev.ts'

export interface MissingRevs {
  /** In the order of the request; empty if all are known. */
  missing: string[]
  /** Winner first; empty if nothing is missing. */
  possibleAncestors: string[]
}

/** What {@link MissingSearch.step} has found. */
export interface MissingStep {
  /** Of each revision that was looked up, whether it is missing. */
  readonly areMissing: readonly boolean[]
  /** After the last step, as in the result; else null. */
  readonly possibleAncestors: string[] | null
}

/**
 * The part of `_revs_diff` for one document (protocol.md 4.3): the revisions that its history lacks, and the leaves,
 * deleted ones included, of a smaller generation than the newest of these. The lookup goes generation by generation,
 * which is the least work for the index, and may take several steps.
 */
export class MissingSearch {
  readonly #revs: readonly Rev[]
  /** The places of the revisions in the request, in the order of their lookup. */
  readonly #order: readonly number[]
  readonly #isMissing: boolean[]
  #done = 0

  constructor(revs: readonly Rev[]) {
    this.#revs = revs
    this.#isMissing = revs.map(() => false)
    this.#order = [...revs.keys()].sort((a, b) => (revs[a] as Rev).pos - (revs[b] as Rev).pos)
  }

  /** The first revision that the next step looks up; the others have the same generation or later ones. */
  get next(): Rev {
    return this.#revs[this.#order[this.#done] as number] as Rev
  }

  /**
   * Looks up the next revisions, for about 5 ms. Pure: {@link add} takes the result.
   * @param branches the current branches; null for a document that does not exist
   */
  step(branches: readonly Branch[] | null): MissingStep {
    const stored = branches ?? []
    const areMissing: boolean[] = []
    let work = 0
    let generation = -1
    for (let at = this.#done; at < this.#order.length && work < MOST_WORK; at++) {
      const rev = this.#revs[this.#order[at] as number] as Rev
      work += lookUpWork(stored, rev.pos !== generation)
      generation = rev.pos
      areMissing.push(!isKnown(stored, rev))
    }
    if (this.#done + areMissing.length < this.#order.length) return { areMissing, possibleAncestors: null }
    return { areMissing, possibleAncestors: leavesBefore(stored, this.#newestMissing(areMissing)) }
  }

  /** The generation of the newest missing revision after a step; 0 if there is none. */
  #newestMissing(areMissing: readonly boolean[]): number {
    for (let at = this.#done + areMissing.length - 1; at >= 0; at--) {
      const place = this.#order[at] as number
      const isMissing = at < this.#done ? this.#isMissing[place] : areMissing[at - this.#done]
      if (isMissing) return (this.#revs[place] as Rev).pos
    }
    return 0
  }

  /** Notes a step. @returns the result after the last one; else null */
  add({ areMissing, possibleAncestors }: MissingStep): MissingRevs | null {
    for (const isMissing of areMissing) this.#isMissing[this.#order[this.#done++] as number] = isMissing
    if (possibleAncestors === null) return null
    const missing = this.#revs.filter((_, at) => this.#isMissing[at])
    return { missing: missing.map(({ pos, id }) => formatRev(pos, id)), possibleAncestors }
  }
}

/** The same in one step, for few revisions. */
export function missingRevs(branches: readonly Branch[] | null, revs: readonly Rev[]): MissingRevs {
  const stored = branches ?? []
  const missing: string[] = []
  let newest = 0
  for (const rev of revs) {
    if (isKnown(stored, rev)) continue
    missing.push(formatRev(rev.pos, rev.id))
    newest = Math.max(newest, rev.pos)
  }
  return { missing, possibleAncestors: leavesBefore(stored, newest) }
}

function leavesBefore(branches: readonly Branch[], pos: number): string[] {
  return sortLeaves(branches.filter((branch) => branch.pos < pos)).map(leafRev)
}
