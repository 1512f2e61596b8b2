/**
 * Merging at its plainest (architecture.md, "Branches"): every ancestry is read. `merge.ts` comes here only when it cannot
 * prove the answer with less.
 *
 * Branches come from servers with different `revs_limit`s and so begin at different generations. One that
 * begins inside another is the same history cut short, and takes over what the other has below:
 *
 *     5:e,d   and   4:d,c,b      ->   e,d,c,b: and then 4-d is no leaf any more, it lies on 5-e
 *
 * Only after all have reached as far back as they can are leaves compared, and only then is anything cut.
 */
import { type Branch, makeBranch } from './branch.ts'

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
export function closure(branches: readonly Branch[], revsLimit: number): Branch[] {
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
