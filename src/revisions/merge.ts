/**
 * Merges a revision into a document's history: architecture.md, "Branches". `closure` alone would be correct, but it reads
 * every ancestry, and most writes concern a single branch. The shortcuts rely on one fact: stored branches are the result
 * of merging. Apart from ids that were cut, none begins inside one that reaches further back, and no leaf lies on another.
 * So an incoming branch can change others only through revisions that no branch has yet.
 *
 *     anchor     a stored branch that has the oldest incoming revision; both agree up to generation `m`
 *     fresh      the incoming revisions above `m`
 *
 * If no other branch has a fresh revision, adding the fresh ones to the anchor is the whole merge. Any other branch that
 * begins or ends on the result does so at `m` or below. That part belongs to the anchor, and an earlier merge has handled it.
 * A branch with `pos <= m` cannot have a fresh revision, and the leaf of one with `pos === m + 1` decides, so most branches
 * are never loaded. There is one exception: a branch that was cut to `revsLimit` may lack ids that others still have. It can
 * be the anchor only if the result is cut to the same length anyway.
 *
 * The shortcuts leave other branches unchanged, even if `revsLimit` has changed since those were cut.
 */
import { CouchError } from '../core/errors.ts'
import { type Branch, endsIn, makeBranch } from './branch.ts'

export interface MergeResult {
  /** In any order; unchanged ones are the objects given to `merge`. */
  branches: Branch[]
  /** The document needs a new sequence number. */
  leavesChanged: boolean
  /** Something must be stored, even if only a longer ancestry. */
  changed: boolean
}

interface Anchor {
  branch: Branch
  /** The newest generation up to which it and the incoming branch agree. */
  agreed: number
}

/**
 * Merges a replicated branch into a document's history.
 *
 * A known revision adds no leaf and keeps the stored `deleted`. Its ancestry may still add older ids, and may so show that a
 * stored leaf is the ancestor of another: `2:e` and `1:a`, then `2:e,a`, are one leaf.
 *
 * @param branches the result of earlier merges and extensions; empty for a new document
 * @param revsLimit at least 1
 */
export function merge(branches: readonly Branch[], incoming: Branch, revsLimit: number): MergeResult {
  if (branches.length === 0) {
    return { branches: [stem(incoming, revsLimit)], leavesChanged: true, changed: true }
  }
  if (incoming.ids.length === 1 && branches.some((one) => endsIn(one, revOf(incoming)))) {
    return unchanged(branches)
  }
  return graft(branches, incoming, revsLimit) ?? mergeAll(branches, incoming, revsLimit)
}

/**
 * Adds a new revision to a leaf: an edit made on this server (protocol.md 6.3). Loads only that leaf's ancestry.
 *
 * The new id is a digest that includes its parent. So another branch can have it only if the same edit was made elsewhere
 * and arrived without its parent. If it is a leaf there, the two become one, as in `merge`. If it is the oldest revision of
 * a longer branch, this function does not look for it: the new leaf is a conflict until the next full merge.
 *
 * @param parentLeaf one of `branches`
 * @returns the new branches, the unchanged ones as the same objects
 * @throws CouchError invalid_rev if the parent has the largest possible generation
 */
export function extend(
  branches: readonly Branch[],
  parentLeaf: Branch,
  newId: string,
  deleted: boolean,
  revsLimit: number,
): Branch[] {
  const rev = { pos: parentLeaf.pos + 1, id: newId }
  if (!Number.isSafeInteger(rev.pos)) throw new CouchError('invalid_rev')
  const grown = makeBranch(rev.pos, [newId, ...parentLeaf.ids.slice(0, revsLimit - 1)], deleted)
  if (branches.some((one) => endsIn(one, rev))) return mergeAll(branches, grown, revsLimit).branches
  const parent = revOf(parentLeaf)
  return [...branches.filter((one) => !endsIn(one, parent)), grown]
}

/** The branch with no more than `revsLimit` ids; the same object if it has no more. */
export function stem(branch: Branch, revsLimit: number): Branch {
  const { pos, ids, deleted } = branch
  return ids.length <= revsLimit ? branch : makeBranch(pos, ids.slice(0, revsLimit), deleted)
}

function revOf(branch: Branch) {
  return { pos: branch.pos, id: branch.leaf }
}

function unchanged(branches: readonly Branch[]): MergeResult {
  return { branches: [...branches], leavesChanged: false, changed: false }
}

function mergeAll(branches: readonly Branch[], incoming: Branch, revsLimit: number): MergeResult {
  const merged = closure(branches, incoming, revsLimit)
  const stored = new Set(branches)
  const leaf = revOf(incoming)
  const isNew = !branches.some((one) => endsIn(one, leaf)) && merged.some((one) => endsIn(one, leaf))
  return {
    branches: merged,
    // If the incoming leaf is not new, merging can only remove leaves.
    leavesChanged: isNew || merged.length < branches.length,
    changed: merged.length !== branches.length || merged.some((one) => !stored.has(one)),
  }
}

/** Merges and loads as little as possible; null if a full merge is needed. */
function graft(branches: readonly Branch[], incoming: Branch, revsLimit: number): MergeResult | null {
  const anchor = findAnchor(branches, incoming)
  if (!anchor) return null
  const { branch, agreed } = anchor
  if (agreed === incoming.pos) return unchanged(branches)
  if (branches.some((one) => knowsAbove(one, incoming, agreed))) return null
  const ids = incoming.ids.slice(0, incoming.pos - agreed).concat(branch.ids.slice(branch.pos - agreed))
  if (branch.ids.length >= revsLimit && ids.length < revsLimit) return null
  const grown = stem(makeBranch(incoming.pos, ids, incoming.deleted), revsLimit)
  const others = branch.pos === agreed ? branches.filter((one) => one !== branch) : branches
  return { branches: [...others, grown], leavesChanged: true, changed: true }
}

function findAnchor(branches: readonly Branch[], incoming: Branch): Anchor | null {
  const oldest = incoming.pos - incoming.ids.length + 1
  const reaching = branches.filter((one) => one.pos >= oldest)
  // Most likely is a branch whose leaf lies on the incoming one: the client continues it, or sends it again.
  const likeliest = reaching.filter((one) => incoming.ids[incoming.pos - one.pos] === one.leaf)
  for (const branch of new Set([...likeliest, ...reaching])) {
    const agreed = agreement(branch, incoming, oldest)
    if (agreed >= oldest) return { branch, agreed }
  }
  return null
}

/** The newest generation up to which both have the same ids, from `oldest` on; `oldest - 1` if they differ there. */
function agreement(branch: Branch, incoming: Branch, oldest: number): number {
  const newest = Math.min(branch.pos, incoming.pos)
  const ids = branch.ids
  let pos = oldest
  while (pos <= newest && ids[branch.pos - pos] === incoming.ids[incoming.pos - pos]) pos++
  return pos - 1
}

/** Whether the branch knows an incoming revision of a generation above `agreed`. */
function knowsAbove(branch: Branch, incoming: Branch, agreed: number): boolean {
  if (branch.pos <= agreed) return false
  if (incoming.ids[incoming.pos - branch.pos] === branch.leaf) return true
  if (branch.pos === agreed + 1) return false
  const ids = branch.ids
  for (let pos = Math.min(branch.pos, incoming.pos); pos > agreed; pos--) {
    if (ids[branch.pos - pos] === incoming.ids[incoming.pos - pos]) return true
  }
  return false
}

/** A branch while it grows: `ids` begins with the ids of `from`. */
interface Growing {
  from: Branch
  pos: number
  ids: readonly string[]
  oldest: number
  /** Whether a stored leaf lies on it. */
  hasLeaf: boolean
}

/**
 * The full merge (architecture.md, "Branches"), which reads every ancestry.
 *
 * Branches come from servers with different `revs_limit`s, so they begin at different generations. One that begins inside
 * another is the same history with fewer ids, and gets the older ids of the other:
 *
 *     5:e,d   and   4:d,c,b      ->   e,d,c,b: now 4-d is no longer a leaf, since it lies on 5-e
 *
 * Leaves are compared after all branches reach as far back as they can, and ids are cut last.
 *
 * @returns branches with all given ids, cut to `revsLimit`, without leaves that lie on another branch. Branches whose ids
 * are unchanged and that took no leaf are the given objects. Of two branches with the same leaf the earlier one remains.
 */
function closure(branches: readonly Branch[], incoming: Branch, revsLimit: number): Branch[] {
  const stored = branches.map(growing)
  const all = [...stored, growing(incoming)]
  reachBack(all)
  const kept = leavesOf(all, new Set(stored))
  return all.filter((one) => kept.has(one)).map((one) => finished(one, revsLimit))
}

function growing(from: Branch): Growing {
  return { from, pos: from.pos, ids: from.ids, oldest: from.pos - from.ids.length + 1, hasLeaf: false }
}

/**
 * Gives each branch older ids once, in the order of how far back the branches reach. A second pass would change nothing:
 * ids that a branch could get from one that began no earlier came to that one from a branch that began earlier, and that
 * branch was complete by then.
 */
function reachBack(all: readonly Growing[]): void {
  const done: Growing[] = []
  for (const branch of [...all].sort((a, b) => a.oldest - b.oldest)) {
    const source = findSource(branch, done)
    if (source) {
      branch.ids = branch.ids.concat(source.ids.slice(source.pos - branch.oldest + 1))
      branch.oldest = source.oldest
    }
    done.push(branch)
  }
}

function findSource(branch: Growing, candidates: readonly Growing[]): Growing | undefined {
  const oldestId = branch.ids.at(-1)
  return candidates.find((one) => one.oldest < branch.oldest && idAt(one, branch.oldest) === oldestId)
}

// Compares only with branches that remain: with contradictory histories a leaf could otherwise be removed because of a
// branch that is itself removed.
function leavesOf(all: readonly Growing[], stored: ReadonlySet<Growing>): Set<Growing> {
  const kept = new Set<Growing>()
  for (const branch of [...all].sort((a, b) => b.pos - a.pos)) {
    const holders = [...kept].filter((other) => idAt(other, branch.pos) === branch.from.leaf)
    if (holders.length === 0) kept.add(branch)
    else if (stored.has(branch)) for (const other of holders) other.hasLeaf ||= other.pos > branch.pos
  }
  return kept
}

function idAt(branch: Growing, pos: number): string | undefined {
  return branch.ids[branch.pos - pos]
}

// Ids are only added and cut at the old end, so the same number of ids means the same ids. A branch that took a leaf is
// another one even if the leaf was cut again: the time machine must know when it took it.
function finished({ from, pos, ids, hasLeaf }: Growing, revsLimit: number): Branch {
  const kept = Math.min(ids.length, revsLimit)
  return kept === from.ids.length && !hasLeaf ? from : makeBranch(pos, ids.slice(0, kept), from.deleted)
}
