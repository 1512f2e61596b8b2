/**
 * How a revision enters a document's history: architecture.md, "Branches". `closure` alone would do, but reads every ancestry;
 * most writes meet a single branch. The shortcuts rest on this: stored branches are what merging left behind,
 * so, short of what was cut, none begins inside one that reaches further back, and no leaf lies on another.
 * Then an incoming branch can change others only through revisions that no branch knows yet.
 *
 *     anchor     a stored branch that knows the oldest incoming revision; both agree up to generation `m`
 *     fresh      the incoming revisions above `m`
 *
 * If no other branch knows a fresh one, all is said by putting them upon the anchor: each other branch that
 * begins, or ends, on the result does so at `m` or below, hence on the anchor, and that was settled before.
 * Branches with `pos <= m` cannot know a fresh revision, and of one with `pos === m + 1` the leaf decides, so
 * most are never loaded. There is one trap: a branch once cut to `revsLimit` may have lost ids that others
 * still have. As an anchor it serves only if the result is cut to the same length anyway.
 *
 * The shortcuts leave other branches as they are, also where `revsLimit` has changed since these were cut.
 */
import { CouchError } from '../core/errors.ts'
import { type Branch, endsIn, makeBranch } from './branch.ts'

export interface MergeResult {
  /** In no order that means anything; those that stayed the same are the objects given to `merge`. */
  branches: Branch[]
  /** The document needs a new sequence number. */
  leavesChanged: boolean
  /** Something must be stored, be it only a longer ancestry. */
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
 * A revision that is known adds no leaf, and keeps the stored `deleted`; its ancestry may still add older ids,
 * and can so show a stored leaf to be the ancestor of another: `2:e` and `1:a`, then `2:e,a`, are one leaf.
 *
 * @param branches what merging and extending have made of the document so far; empty for a new document
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
 * Puts a new revision upon a leaf: an edit made here (protocol.md 6.3). Loads that leaf's ancestry alone.
 *
 * The new id is a digest over its parent, so another branch can know it only where the same edit was made
 * elsewhere and came without its parent. If that is a leaf, the two become one, as in `merge`. If it is the
 * oldest revision of a longer branch, that is not looked for here: the new leaf stands as a conflict until the
 * next full merge finds it to be an ancestor.
 *
 * @param parentLeaf one of `branches`
 * @returns the new branches, the unchanged ones as the same objects
 * @throws CouchError invalid_rev when the parent's generation is the largest there can be
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
  const merged = closure([...branches, incoming], revsLimit)
  const stored = new Set(branches)
  const leaf = revOf(incoming)
  const isNew = !branches.some((one) => endsIn(one, leaf)) && merged.some((one) => endsIn(one, leaf))
  return {
    branches: merged,
    // Where the incoming leaf is not new, merging can only drop leaves.
    leavesChanged: isNew || merged.length < branches.length,
    changed: merged.length !== branches.length || merged.some((one) => !stored.has(one)),
  }
}

/** Merges by loading as little as decides; null when that does not suffice. */
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
  // A branch whose leaf lies on the incoming one is the likeliest: it is being continued, or sent again.
  const likeliest = reaching.filter((one) => incoming.ids[incoming.pos - one.pos] === one.leaf)
  for (const branch of new Set([...likeliest, ...reaching])) {
    const agreed = agreement(branch, incoming, oldest)
    if (agreed >= oldest) return { branch, agreed }
  }
  return null
}

/** The newest generation up to which both have the same ids, from `oldest` on; `oldest - 1` if they never do. */
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

// Merging at its plainest (architecture.md, "Branches"): every ancestry is read. `merge.ts` comes here only when it cannot
// prove the answer with less.
//
// Branches come from servers with different `revs_limit`s and so begin at different generations. One that
// begins inside another is the same history cut short, and takes over what the other has below:
//
// 5:e,d   and   4:d,c,b      ->   e,d,c,b: and then 4-d is no leaf any more, it lies on 5-e
//
// Only after all have reached as far back as they can are leaves compared, and only then is anything cut.

/** A branch while it grows: `ids` begins with the ids of `from`. */
interface Growing {
  from: Branch
  pos: number
  ids: readonly string[]
  oldest: number
}

/**
 * The branches that hold everything the given ones hold, none of whose leaves lies on another, cut to
 * `revsLimit`; those whose ids are unchanged are the given objects. Of two with one leaf the earlier stays.
 */
function closure(branches: readonly Branch[], revsLimit: number): Branch[] {
  const all = branches.map(growing)
  reachBack(all)
  const kept = leavesOf(all)
  return all.filter((one) => kept.has(one)).map((one) => settle(one, revsLimit))
}

function growing(from: Branch): Growing {
  return { from, pos: from.pos, ids: from.ids, oldest: from.pos - from.ids.length + 1 }
}

/**
 * Lets each branch take over older ids, once, those that reach furthest back first. After that nothing changes:
 * what a branch could take from one that began no earlier than itself, that one has in turn from a branch that
 * began earlier, which has been through here already and has taken all that it can.
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

// Compares with those that stay only, so that no leaf gives way to a branch that is itself dropped, which
// histories that contradict each other could bring about.
function leavesOf(all: readonly Growing[]): Set<Growing> {
  const kept = new Set<Growing>()
  for (const branch of [...all].sort((a, b) => b.pos - a.pos)) {
    if (!isOnOne(branch, kept)) kept.add(branch)
  }
  return kept
}

function isOnOne(branch: Growing, others: Iterable<Growing>): boolean {
  for (const other of others) if (idAt(other, branch.pos) === branch.from.leaf) return true
  return false
}

function idAt(branch: Growing, pos: number): string | undefined {
  return branch.ids[branch.pos - pos]
}

// Ids are only ever added and cut at the old end: the same number of them means the same ids.
function settle({ from, pos, ids }: Growing, revsLimit: number): Branch {
  const kept = Math.min(ids.length, revsLimit)
  return kept === from.ids.length ? from : makeBranch(pos, ids.slice(0, kept), from.deleted)
}
