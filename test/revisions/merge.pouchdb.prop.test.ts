/**
 * The second oracle is the code PouchDB merges with. It keeps a forest, in which after stemming a revision can
 * stand twice and a leaf be listed twice; such forests are no oracle, and a run ends where it meets one.
 */
import fc from 'fast-check'
import * as pouch from 'pouchdb-merge'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { merge as mergeSome } from '../../src/revisions/merge.ts'
import { mergeByIndex, show } from './helpers.ts'
import { arrivals, type Node, path, toBranch, worlds } from './histories.ts'

function toRoot(nodes: readonly Node[]): pouch.Root {
  const [leaf, ...older] = nodes as [Node, ...Node[]]
  let ids: pouch.Tree = [leaf.id, { status: 'available', deleted: leaf.deleted }, []]
  for (const node of older) ids = [node.id, { status: 'missing' }, [ids]]
  return { pos: leaf.pos - older.length, ids }
}

function fromForest(forest: pouch.Root[]): Branch[] {
  const byLeaf = new Map<string, Branch>()
  for (const { pos, ids } of pouch.rootToLeaf(forest)) {
    const newestFirst = ids.map((one) => one.id).reverse()
    const branch = makeBranch(pos + ids.length - 1, newestFirst, ids.at(-1)?.opts.deleted === true)
    byLeaf.set(leafRev(branch), branch)
  }
  return [...byLeaf.values()]
}

function repeatsRevision(forest: pouch.Root[]): boolean {
  const seen = new Set<string>()
  const visit = (pos: number, [id, , children]: pouch.Tree): boolean => {
    const rev = `${pos}-${id}`
    if (seen.has(rev)) return true
    seen.add(rev)
    return children.some((child) => visit(pos + 1, child))
  }
  return forest.some((root) => visit(root.pos, root.ids))
}

type Merge = typeof mergeSome

/** @returns how many merges were compared before the forest repeated a revision */
function compare(merge: Merge, paths: readonly Node[][], limit: number): number {
  let stored: Branch[] = []
  let forest: pouch.Root[] = []
  for (const [n, nodes] of paths.entries()) {
    stored = merge(stored, toBranch(nodes), limit).branches
    forest = pouch.merge(forest, toRoot(nodes), limit).tree
    if (repeatsRevision(forest)) return n
    const [found, wanted] = [show(stored).join(' '), show(fromForest(forest)).join(' ')]
    if (found !== wanted) throw new Error(`found ${found}, PouchDB ${wanted}`)
    const best = winner(stored)
    if (!best || leafRev(best) !== pouch.winningRev({ rev_tree: forest })) throw new Error('another winner')
  }
  return paths.length
}

for (const [way, merge] of [
  ['few branches', mergeSome],
  ['many branches', mergeByIndex],
] as const) {
  t.test(`${way}: branches and winner are those of PouchDB while nothing is cut`, async (t) => {
    let compared = 0
    fc.assert(
      fc.property(worlds(25), arrivals(12), (world, list) => {
        compared += compare(
          merge,
          list.map((arrival) => path(world, arrival)),
          1000,
        )
      }),
      { numRuns: 3000 },
    )
    t.ok(compared > 3000, `${compared} merges`)
  })

  t.test(`${way}: branches and winner are those of PouchDB where ancestries are cut`, async (t) => {
    let compared = 0
    fc.assert(
      fc.property(worlds(25), arrivals(12), fc.integer({ min: 1, max: 8 }), (world, list, limit) => {
        compared += compare(
          merge,
          list.map((arrival) => path(world, arrival)),
          limit,
        )
      }),
      { numRuns: 3000 },
    )
    t.ok(compared > 3000, `${compared} merges`)
  })
}
