import fc from 'fast-check'
import * as pouch from 'pouchdb-merge'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { isKnown } from '../../src/revisions/branch-index.ts'
import { extend, merge, merge as mergeSome } from '../../src/revisions/merge.ts'
import { extendByIndex, mergeByIndex, show } from './helpers.ts'
import { arrivals, type Node, nodeKey, ParentMap, path, toBranch, worlds } from './histories.ts'

const NO_LIMIT = 1000

const leaves = (all: readonly Branch[]) => all.map(leafRev).sort()

/** How few branches are merged, and how many are: both give the same. */
const WAYS = {
  'few branches': { merge, extend },
  'many branches': { merge: mergeByIndex, extend: extendByIndex },
}

type Merge = typeof merge

function mergePaths(merge: Merge, paths: readonly Node[][], limit: number): Branch[] {
  return paths.reduce<Branch[]>((all, nodes) => merge(all, toBranch(nodes), limit).branches, [])
}

/** The four steps of architecture.md, "Branches", word by word, without a thought for cost. */
function mergeByTheBook(stored: readonly Branch[], incoming: Branch, limit: number): Branch[] {
  let all = [...stored, incoming]
  for (let again = true; again; ) {
    again = false
    all = all.map((one) => {
      const oldest = one.pos - one.ids.length + 1
      const source = all.find(
        (other) =>
          other.pos - other.ids.length + 1 < oldest && other.ids[other.pos - oldest] === one.ids.at(-1),
      )
      if (!source) return one
      again = true
      return makeBranch(one.pos, [...one.ids, ...source.ids.slice(source.pos - oldest + 1)], one.deleted)
    })
  }
  const lies = (one: Branch, other: Branch) => other.ids[other.pos - one.pos] === one.leaf
  const kept = all.filter((one, n) => {
    return !all.some((other, m) => other !== one && lies(one, other) && (other.pos > one.pos || m < n))
  })
  return kept.map((one) => makeBranch(one.pos, one.ids.slice(0, limit), one.deleted))
}

for (const [way, { merge, extend }] of Object.entries(WAYS)) {
  t.test(`${way}: leaves, ancestry, winner and known revisions are those of a parent map`, async () => {
    fc.assert(
      fc.property(worlds(25), arrivals(15), (world, list) => {
        const oracle = new ParentMap()
        let stored: Branch[] = []
        for (const arrival of list) {
          const before = leaves(stored)
          const nodes = path(world, arrival)
          oracle.add(nodes)
          const result = merge(stored, toBranch(nodes), NO_LIMIT)
          const expected = oracle.branches()
          same(show(result.branches), show(expected))
          same(winner(result.branches)?.leaf, winner(expected)?.leaf)
          same(result.leavesChanged, String(leaves(result.branches)) !== String(before))
          same(result.changed, String(show(result.branches)) !== String(show(stored)))
          stored = result.branches
        }
        for (const node of world) same(isKnown(stored, node), oracle.known.has(nodeKey(node)))
      }),
      { numRuns: 10_000 },
    )
  })

  t.test(`${way}: the order of arrival does not matter below revs_limit`, async () => {
    const cases = fc
      .tuple(worlds(25), arrivals(10))
      .map(([world, list]) => list.map((arrival) => path(world, arrival)))
      .chain((paths) => fc.tuple(fc.constant(paths), fc.shuffledSubarray(paths, { minLength: paths.length })))
    fc.assert(
      fc.property(cases, ([paths, shuffled]) => {
        same(show(mergePaths(merge, shuffled, NO_LIMIT)), show(mergePaths(merge, paths, NO_LIMIT)))
      }),
      { numRuns: 2000 },
    )
  })

  t.test(`${way}: what was merged once changes nothing when it comes again`, async () => {
    fc.assert(
      fc.property(worlds(25), arrivals(10), (world, list) => {
        const paths = list.map((arrival) => path(world, arrival))
        const stored = mergePaths(merge, paths, NO_LIMIT)
        for (const nodes of paths) {
          const again = merge(stored, toBranch(nodes), NO_LIMIT)
          same([again.changed, again.leavesChanged], [false, false])
          if (again.branches.some((one) => !stored.includes(one))) throw new Error('not the same objects')
        }
      }),
      { numRuns: 1000 },
    )
  })

  t.test(`${way}: the shortcuts give what the four steps give, with a small revs_limit too`, async () => {
    fc.assert(
      fc.property(worlds(40), arrivals(20), fc.integer({ min: 1, max: 12 }), (world, list, limit) => {
        let stored: Branch[] = []
        for (const arrival of list) {
          const incoming = toBranch(path(world, arrival))
          const { branches: merged, changed } = merge(stored, incoming, limit)
          same(show(merged), show(mergeByTheBook(stored, incoming, limit)))
          same(changed, String(show(merged)) !== String(show(stored)))
          const kept = new Map(stored.map((one) => [show([one])[0], one]))
          for (const one of merged) same(one, kept.get(show([one])[0]) ?? one)
          stored = merged
        }
      }),
      { numRuns: 8000 },
    )
  })

  t.test(`${way}: an edit gives what merging it gives`, async () => {
    fc.assert(
      fc.property(worlds(30), arrivals(20), fc.integer({ min: 1, max: 12 }), (world, list, limit) => {
        let stored: Branch[] = []
        for (const [n, arrival] of list.entries()) {
          const parent = stored[arrival.node % Math.max(stored.length, 1)]
          if (parent && arrival.ancestors % 2 === 0) {
            const edit = makeBranch(parent.pos + 1, [`edit${n}`, ...parent.ids], false)
            const extended = extend(stored, parent, edit.leaf, false, limit)
            same(show(extended), show(mergeByTheBook(stored, edit, limit)))
            stored = [...extended]
          } else {
            stored = merge(stored, toBranch(path(world, arrival)), limit).branches
          }
        }
      }),
      { numRuns: 3000 },
    )
  })

  t.test(`${way}: histories that contradict each other lose no leaf and end`, async () => {
    const ids = fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 6 })
    const incoming = fc.record({ ids, below: fc.nat(3), deleted: fc.boolean() })
    fc.assert(
      fc.property(fc.array(incoming, { minLength: 1, maxLength: 12 }), (list) => {
        let stored: Branch[] = []
        for (const { ids, below, deleted } of list) {
          const branch = makeBranch(ids.length + below, ids, deleted)
          const before = stored
          stored = merge(stored, branch, NO_LIMIT).branches
          same(new Set(leaves(stored)).size, stored.length)
          for (const one of [branch, ...before]) {
            if (!isKnown(stored, { pos: one.pos, id: one.leaf })) throw new Error(`${leafRev(one)} is lost`)
          }
          same(merge(stored, branch, NO_LIMIT).leavesChanged, false)
        }
      }),
      { numRuns: 5000 },
    )
  })
}

function same(found: unknown, wanted: unknown) {
  if (found === wanted) return
  const [left, right] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (left !== right) throw new Error(`found ${left}, wanted ${right}`)
}

// The second oracle is the code PouchDB merges with. It keeps a forest, in which after stemming a revision can
// stand twice and a leaf be listed twice; such forests are no oracle, and a run ends where it meets one.

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

type PouchMerge = typeof mergeSome

/** @returns how many merges were compared before the forest repeated a revision */
function compare(merge: PouchMerge, paths: readonly Node[][], limit: number): number {
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
