/** Decides which revisions of a document are returned for `open_revs` and `_bulk_get`; protocol.md 3.2. */
import { CouchError } from '../core/errors.ts'
import { type Branch, leafRev, leafRevs, sortLeaves } from '../revisions/branch.ts'
import { isKnown, leavesBelow, lookUpWork, MOST_WORK } from '../revisions/branch-index.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'

/** The maximum number of revisions that one step looks up. */
export const LOOKUPS = 1024

export type PlannedRow = { readonly rev: string } | { readonly missing: string }

/** More rows of a plan. */
export interface PlanStep {
  readonly rows: readonly PlannedRow[]
  /** Revisions that were looked up, and those of them that do not exist. */
  readonly looked: number
  readonly missing: readonly string[]
  readonly isLast: boolean
}

const NONE: readonly string[] = []
const NO_STEP: PlanStep = { rows: [], looked: 0, missing: NONE, isLast: true }

/**
 * The rows of a request, decided in as many steps as necessary. Existing revisions are first, in the order of the
 * request.
 */
export class RevisionsPlan {
  readonly rows: PlannedRow[] = []
  /** Whether the plan has all rows. */
  isWhole = false
  /** Null for all leaves. */
  readonly #revs: readonly Rev[] | null
  readonly #found = new Set<string>()
  readonly #missing: string[] = []
  #looked = 0

  /** Whether the leaves that follow a revision take its place. */
  readonly #latest: boolean

  /** @param revs as sent @throws invalid_rev */
  constructor(revs: readonly unknown[] | 'all', latest = false) {
    this.#latest = latest
    this.#revs = revs === 'all' ? null : revs.map(parseRev)
  }

  /** The revisions that the next step looks up. */
  get next(): readonly string[] {
    const next = this.isWhole ? [] : this.#revs?.slice(this.#looked, this.#looked + LOOKUPS)
    return next?.map(({ pos, id }) => formatRev(pos, id)) ?? []
  }

  /** Decides more rows. Pure: {@link add} takes the result. @throws not_found for `all` of an unknown document */
  step(doc: DocState | null): PlanStep {
    if (this.isWhole) return NO_STEP
    if (this.#revs === null) return { ...NO_STEP, rows: leavesOf(doc).map((rev) => ({ rev })) }
    if (this.#revs.length === 1) return this.#onlyStep(doc, this.#revs[0] as Rev)
    const branches = doc?.branches ?? []
    const generations = new Set<number>()
    const end = Math.min(this.#looked + LOOKUPS, this.#revs.length)
    let at = this.#looked
    let work = 0
    const rows: PlannedRow[] = []
    const missing: string[] = []
    const found = new Set<string>()
    const listed = new Set<Branch>()
    for (; at < end && work < MOST_WORK; at++) {
      const named = this.#revs[at] as Rev
      work += lookUpWork(branches, !generations.has(named.pos))
      generations.add(named.pos)
      const existing = this.#find(doc, named, listed)
      if (existing === null) missing.push(formatRev(named.pos, named.id))
      for (const rev of existing ?? []) {
        if (found.has(rev) || this.#found.has(rev)) continue
        found.add(rev)
        rows.push({ rev })
      }
    }
    const isLast = at === this.#revs.length
    if (isLast) for (const rev of [...this.#missing, ...missing]) rows.push({ missing: rev })
    return { rows, looked: at - this.#looked, missing, isLast }
  }

  /** The step of the usual request, which names one revision. */
  #onlyStep(doc: DocState | null, named: Rev): PlanStep {
    const found = this.#find(doc, named, null)
    const rows = found?.map((rev) => ({ rev })) ?? [{ missing: formatRev(named.pos, named.id) }]
    return { rows, looked: 1, missing: NONE, isLast: true }
  }

  /**
   * The revisions that the plan lists for one of the request; null if it does not exist.
   * @param listed the leaves that were found in this step; null if it looks for nothing else
   */
  #find(doc: DocState | null, named: Rev, listed: Set<Branch> | null): readonly string[] | null {
    const rev = formatRev(named.pos, named.id)
    // The usual request: no other revision follows the winner.
    if (rev === doc?.rev) return [rev]
    if (doc === null || !isKnown(doc.branches, named)) return null
    if (!this.#latest) return [rev]
    const leaves = sortLeaves(leavesBelow(doc.branches, named).filter((leaf) => !listed?.has(leaf)))
    for (const leaf of leaves) listed?.add(leaf)
    return leaves.map(leafRev)
  }

  /** Adds the result of {@link step}. Call it once for each step, in their order. */
  add({ rows, looked, missing, isLast }: PlanStep): void {
    for (const row of rows) this.rows.push(row)
    this.isWhole = isLast
    if (isLast) return
    for (const row of rows) if ('rev' in row) this.#found.add(row.rev)
    this.#missing.push(...missing)
    this.#looked += looked
  }
}

function leavesOf(doc: DocState | null): string[] {
  if (doc === null) throw new CouchError('not_found')
  return doc.hasOneLeaf ? [doc.rev] : leafRevs(doc.branches, doc.rev)
}
