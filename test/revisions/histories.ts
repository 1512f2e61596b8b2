/**
 * Random histories for the property tests. A world is every revision that was ever made, each with one parent.
 * Replication shows of it what a server has: a revision with some of its ancestors, in any order.
 */
import fc from 'fast-check'
import { type Branch, makeBranch } from '../../src/revisions/branch.ts'

export interface Node {
  pos: number
  id: string
  deleted: boolean
  parent: Node | null
}

export const nodeKey = (node: { pos: number; id: string }) => `${node.pos}-${node.id}`

/** An arrival: which revision of the world (modulo its size), and with how many ancestors at most. */
export interface Arrival {
  node: number
  ancestors: number
}

const seed = fc.record({
  parent: fc.nat(1_000_000),
  // Mostly the newest revision is continued, so that branches get long; roots are rare.
  shape: fc.constantFrom('chain', 'chain', 'chain', 'chain', 'branch', 'branch', 'branch', 'root'),
  start: fc.integer({ min: 1, max: 3 }),
  deleted: fc.boolean(),
})

/** Worlds of up to `size` revisions. Ids are few, so the same id stands at many generations. */
export function worlds(size: number): fc.Arbitrary<Node[]> {
  return fc.array(seed, { minLength: 1, maxLength: size, size: 'max' }).map((seeds) => {
    const world: Node[] = []
    const atPos = new Map<number, number>()
    for (const { parent: pick, shape, start, deleted } of seeds) {
      const picked = shape === 'chain' ? world.at(-1) : world[pick % Math.max(world.length, 1)]
      const parent = shape === 'root' ? null : (picked ?? null)
      const pos = parent ? parent.pos + 1 : start
      const count = atPos.get(pos) ?? 0
      atPos.set(pos, count + 1)
      world.push({ pos, id: String.fromCharCode(97 + count), deleted, parent })
    }
    return world
  })
}

export function arrivals(count: number): fc.Arbitrary<Arrival[]> {
  const ancestors = fc.oneof(fc.nat(4), fc.nat(20), fc.constant(1000))
  return fc.array(fc.record({ node: fc.nat(1_000_000), ancestors }), {
    minLength: 1,
    maxLength: count,
    size: 'max',
  })
}

/** What arrives: the revision and its ancestors, newest first. */
export function path(world: readonly Node[], { node, ancestors }: Arrival): Node[] {
  const nodes: Node[] = []
  let next: Node | null = world[node % world.length]!
  while (next && nodes.length <= ancestors) {
    nodes.push(next)
    next = next.parent
  }
  return nodes
}

export function toBranch(nodes: readonly Node[]): Branch {
  const ids = nodes.map((node) => node.id)
  return makeBranch(nodes[0]!.pos, ids, nodes[0]!.deleted)
}

/** The first oracle: which revisions are known, and each one's parent as far as anyone has told. */
export class ParentMap {
  readonly known = new Map<string, Node>()
  readonly parents = new Map<string, Node>()

  add(nodes: readonly Node[]) {
    for (const [n, node] of nodes.entries()) {
      this.known.set(nodeKey(node), node)
      const parent = nodes[n + 1]
      if (parent) this.parents.set(nodeKey(node), parent)
    }
  }

  branches(): Branch[] {
    const inner = new Set([...this.parents.values()].map(nodeKey))
    return [...this.known.values()]
      .filter((node) => !inner.has(nodeKey(node)))
      .map((leaf) => this.#branch(leaf))
  }

  #branch(leaf: Node): Branch {
    const nodes: Node[] = []
    for (let node: Node | undefined = leaf; node; node = this.parents.get(nodeKey(node))) nodes.push(node)
    return toBranch(nodes)
  }
}
