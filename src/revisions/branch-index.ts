/**
 * Finds the branches of one document that have a revision, by its generation and id. A document may have thousands of
 * branches with a thousand ids each, so searching every branch for every revision would take quadratic time.
 *
 * The table of leaves is made at once. The table of another generation is made when it is first needed, and decodes one
 * id of each ancestry.
 */
import { type Branch, endsIn, idAt, knows, oldestOf } from './branch.ts'
import type { Rev } from './rev.ts'

/** Up to this many branches are searched one by one, which takes less time than the tables. */
export const FEW_BRANCHES = 16
/** Maximum entries of all tables other than that of the leaves, about 20 MB. Then these tables are cleared. */
const MOST_ENTRIES = 200_000

type Generations<T> = Map<number, Map<string, T>>

/** Branches by their id at one generation; most ids belong to a single branch. */
type Table = Map<string, Branch | Set<Branch>>

export class BranchIndex {
  readonly #branches: Set<Branch>
  readonly #leaves: Generations<Branch> = new Map()
  readonly #knowing = new Map<number, Table>()
  #beginning: Map<number, Table> | undefined
  #entries = 0
  /** Work so far: ids and branches that were read. */
  steps: number

  constructor(branches: readonly Branch[]) {
    this.#branches = new Set(branches)
    for (const branch of branches) this.#addLeaf(branch)
    this.steps = branches.length
  }

  /** In the order in which they were added. */
  get branches(): ReadonlySet<Branch> {
    return this.#branches
  }

  /** The branch that ends in a revision. */
  leaf({ pos, id }: Rev): Branch | undefined {
    return this.#leaves.get(pos)?.get(id)
  }

  /** Whether any branch has a revision. */
  knows(rev: Rev): boolean {
    this.steps += 1
    return this.leaf(rev) !== undefined || this.#entered(rev.pos, rev.id) !== undefined
  }

  /** The branches that have a revision, as their leaf or as an ancestor. */
  knowing({ pos, id }: Rev): readonly Branch[] {
    const found = this.#entered(pos, id)
    this.steps += found instanceof Set ? found.size : 1
    return listed(found)
  }

  /**
   * One of the branches that have a revision and the oldest ancestors before it.
   * @param enough a branch that reaches back to this generation is old enough
   */
  furthest({ pos, id }: Rev, enough: number): Branch | undefined {
    const found = this.#entered(pos, id)
    this.#beginning ??= this.#findBeginnings()
    if (countOf(found) === countOf(this.#beginning.get(pos)?.get(id))) return undefined
    let best: Branch | undefined
    let oldest = pos
    for (const branch of found instanceof Set ? found : listed(found)) {
      this.steps += 1
      const begins = oldestOf(branch)
      if (begins >= oldest) continue
      best = branch
      oldest = begins
      if (oldest <= enough) break
    }
    return best
  }

  #entered(pos: number, id: string): Branch | Set<Branch> | undefined {
    return (this.#knowing.get(pos) ?? this.#tableOf(pos)).get(id)
  }

  #tableOf(pos: number): Table {
    if (this.#entries > MOST_ENTRIES) {
      this.#knowing.clear()
      this.#entries = 0
    }
    const table: Table = new Map()
    this.#knowing.set(pos, table)
    this.steps += this.#branches.size
    for (const branch of this.#branches) this.#enter(table, pos, branch)
    return table
  }

  #enter(table: Table, pos: number, branch: Branch): void {
    const id = branch.pos < pos ? undefined : idAt(branch, pos)
    if (id === undefined) return
    this.#entries += 1
    this.steps += 1
    enter(table, id, branch)
  }

  /**
   * The leaves on a path, except its newest revision.
   * @param ids newest first, the first of generation `pos`
   */
  *leavesOn(pos: number, ids: readonly string[]): Generator<Branch> {
    this.steps += ids.length
    for (let at = 1; at < ids.length; at++) {
      const leaf = this.#leaves.get(pos - at)?.get(ids[at] as string)
      if (leaf !== undefined) yield leaf
    }
  }

  /** The branches whose oldest revision is on a path, except at the path's oldest revision; arguments as above. */
  *beginningOn(pos: number, ids: readonly string[]): Generator<Branch> {
    this.#beginning ??= this.#findBeginnings()
    this.steps += ids.length
    for (let at = 0; at < ids.length - 1; at++) {
      yield* listed(this.#beginning.get(pos - at)?.get(ids[at] as string))
    }
  }

  #findBeginnings(): Map<number, Table> {
    const beginning = new Map<number, Table>()
    this.steps += this.#branches.size
    for (const branch of this.#branches) addBeginning(beginning, branch)
    return beginning
  }

  add(branch: Branch): void {
    this.#branches.add(branch)
    this.#addLeaf(branch)
    this.steps += this.#knowing.size
    for (const [pos, table] of this.#knowing) this.#enter(table, pos, branch)
    if (this.#beginning !== undefined) addBeginning(this.#beginning, branch)
  }

  delete(branch: Branch): void {
    this.#branches.delete(branch)
    this.#leaves.get(branch.pos)?.delete(branch.leaf)
    this.steps += this.#knowing.size
    for (const [pos, table] of this.#knowing) {
      const id = branch.pos < pos ? undefined : idAt(branch, pos)
      if (id !== undefined) leave(table, id, branch)
    }
    const oldest = this.#beginning && oldestOf(branch)
    const table = oldest === undefined ? undefined : this.#beginning?.get(oldest)
    if (table !== undefined) leave(table, idAt(branch, oldest as number) as string, branch)
  }

  #addLeaf(branch: Branch): void {
    let leaves = this.#leaves.get(branch.pos)
    if (leaves === undefined) {
      leaves = new Map()
      this.#leaves.set(branch.pos, leaves)
    }
    leaves.set(branch.leaf, branch)
  }
}

function addBeginning(beginning: Map<number, Table>, branch: Branch): void {
  const oldest = oldestOf(branch)
  // A branch that begins at the first generation lacks nothing.
  if (oldest === 1) return
  let table = beginning.get(oldest)
  if (table === undefined) {
    table = new Map()
    beginning.set(oldest, table)
  }
  enter(table, idAt(branch, oldest) as string, branch)
}

function enter(table: Table, id: string, branch: Branch): void {
  const entered = table.get(id)
  if (entered === undefined) table.set(id, branch)
  else if (entered instanceof Set) entered.add(branch)
  else table.set(id, new Set([entered, branch]))
}

function leave(table: Table, id: string, branch: Branch): void {
  const entered = table.get(id)
  if (entered instanceof Set && entered.size > 1) entered.delete(branch)
  else if (entered !== undefined && listed(entered)[0] === branch) table.delete(id)
}

function countOf(entered: Branch | Set<Branch> | undefined): number {
  if (entered === undefined) return 0
  return entered instanceof Set ? entered.size : 1
}

function listed(entered: Branch | Set<Branch> | undefined): readonly Branch[] {
  if (entered === undefined) return []
  return entered instanceof Set ? [...entered] : [entered]
}

const indexes = new WeakMap<readonly Branch[], BranchIndex>()

/** The index of many branches, made once for the same array, which must not change afterwards. */
function indexOf(branches: readonly Branch[]): BranchIndex {
  let index = indexes.get(branches)
  if (index === undefined) {
    index = new BranchIndex(branches)
    indexes.set(branches, index)
  }
  return index
}

/** The work of look-ups that takes about 5 ms, in {@link lookUpWork}. */
export const MOST_WORK = 50_000

/**
 * The approximate work of looking a revision up, in branches that are read.
 * @param isFirst whether it is the first of its generation for these branches
 */
export function lookUpWork(branches: readonly Branch[], isFirst: boolean): number {
  return branches.length > FEW_BRANCHES && !isFirst ? 1 : branches.length + 1
}

/** The branch that ends in a revision; loads no ancestry. */
export function findLeaf(branches: readonly Branch[], rev: Rev): Branch | undefined {
  if (branches.length <= FEW_BRANCHES) return branches.find((branch) => endsIn(branch, rev))
  return indexOf(branches).leaf(rev)
}

/** Whether any branch has the revision; checks all leaves before it loads an ancestry. */
export function isKnown(branches: readonly Branch[], rev: Rev): boolean {
  if (branches.length > FEW_BRANCHES) return indexOf(branches).knows(rev)
  return branches.some((branch) => endsIn(branch, rev)) || branches.some((branch) => knows(branch, rev))
}

/**
 * The branches that end in or pass through a revision, for `latest=true` (protocol.md 3.2): only one if the revision is a
 * leaf, none if it is unknown. No leaf occurs twice, since no two branches share one.
 */
export function leavesBelow(branches: readonly Branch[], rev: Rev): readonly Branch[] {
  const leaf = findLeaf(branches, rev)
  if (leaf !== undefined) return [leaf]
  if (branches.length > FEW_BRANCHES) return indexOf(branches).knowing(rev)
  return branches.filter((branch) => knows(branch, rev))
}
