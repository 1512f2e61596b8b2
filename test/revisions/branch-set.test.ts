/** Many revisions entering one document: the same as one after the other, in work that grows with their number. */
import fc from 'fast-check'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { BranchSet } from '../../src/revisions/branch-set.ts'
import { merge } from '../../src/revisions/merge.ts'
import { missingRevs } from '../../src/revisions/missing.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branches, lazily, show } from './helpers.ts'
import { arrivals, path, toBranch, worlds } from './histories.ts'

const LIMIT = 1000

t.test('revisions that enter one set give what merging them one by one gives', async () => {
  const ways = fc.record({ few: fc.nat(5), limit: fc.integer({ min: 1, max: 12 }), stored: fc.nat(10) })
  fc.assert(
    fc.property(worlds(40), arrivals(20), ways, (world, list, { few, limit, stored }) => {
      const incoming = list.map((arrival) => toBranch(path(world, arrival)))
      const mergeInto = (all: Branch[], one: Branch) => merge(all, one, limit).branches
      const before = incoming.slice(0, stored).reduce<Branch[]>(mergeInto, [])
      const set = new BranchSet(before, limit, few)
      let after = before
      for (const one of incoming.slice(stored)) {
        after = mergeInto(after, one)
        set.apply(set.mergeOf(one))
        const best = winner(after)
        if (set.winner?.pos !== best?.pos || set.winner?.leaf !== best?.leaf)
          throw new Error('another winner')
      }
      same(show([...set.branches]), show(after))
      checkChanges(set, before, after)
    }),
    { numRuns: 4000 },
  )
})

function checkChanges(set: BranchSet, before: readonly Branch[], after: readonly Branch[]): void {
  const { superseded, written, leavesChanged } = set.changes()
  const [had, has] = [before.map(leafRev), after.map(leafRev)]
  same(superseded.map(leafRev).sort(), had.filter((rev) => !has.includes(rev)).sort())
  same(show(written), show(after.filter((branch) => !before.includes(branch))))
  same(leavesChanged, String([...had].sort()) !== String([...has].sort()))
}

function same(found: unknown, wanted: unknown): void {
  const [left, right] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (left !== right) throw new Error(`found ${left}, wanted ${right}`)
}

/** @returns the steps that the set has taken for the incoming branches */
function stepsOf(stored: readonly Branch[], incoming: readonly Branch[]): number {
  const set = new BranchSet(stored, LIMIT)
  for (const one of incoming) set.apply(set.mergeOf(one))
  return set.steps
}

const several = (count: number, make: (n: number) => Branch) =>
  Array.from({ length: count }, (_, n) => make(n))

t.test('the work grows with the revisions, not with their square', async (t) => {
  const trunk = Array.from({ length: 100 }, (_, n) => `t${n}`)
  const attacks: [about: string, make: (n: number) => Branch][] = [
    ['with unknown parents', (n) => makeBranch(2, [`x${n}`], false)],
    ['upon one trunk', (n) => makeBranch(101, [`x${n}`, ...trunk], false)],
    ['that begin with one revision', (n) => makeBranch(3, [`x${n}`, 'root'], false)],
    ['each upon the one before', (n) => makeBranch(n + 2, [`x${n}`, ...(n > 0 ? [`x${n - 1}`] : [])], false)],
  ]
  for (const [about, make] of attacks) {
    const [once, fourTimes] = [stepsOf([], several(500, make)), stepsOf([], several(2000, make))]
    t.ok(fourTimes < 6 * once, `${about}: ${once} steps, ${fourTimes} of four times as many`)
  }
})

t.test(
  'a path through many leaves ends them, and one below many lengthens them, each looked at once',
  async (t) => {
    const count = 2000
    const column = several(count, (n) => makeBranch(n + 1, [`x${n}`], false))
    const through = makeBranch(count + 1, ['top', ...column.map(({ leaf }) => leaf).reverse()], false)
    const ended = new BranchSet(column, LIMIT)
    ended.apply(ended.mergeOf(through))
    t.same(show([...ended.branches]), show([makeBranch(through.pos, through.ids.slice(0, LIMIT), false)]))
    t.ok(ended.steps < 20 * count, `${ended.steps} steps`)
    const fan = several(count, (n) => makeBranch(3, [`x${n}`, 'root'], false))
    const longer = new BranchSet(fan, LIMIT)
    longer.apply(longer.mergeOf(makeBranch(2, ['root', 'first'], false)))
    t.equal(longer.size, count)
    t.ok([...longer.branches].every(({ ids }) => ids.length === 3))
    t.ok(longer.steps < 20 * count, `${longer.steps} steps`)
  },
)

t.test('what comes again to a document with many leaves loads no ancestry but its own', async (t) => {
  const loads: string[] = []
  const stored = several(100, (n) => {
    const branch = makeBranch(3, [`x${n}`, 'b', 'a'], false)
    return {
      ...branch,
      get ids() {
        loads.push(branch.leaf)
        return branch.ids
      },
    }
  })
  const set = new BranchSet(stored, LIMIT)
  loads.length = 0
  t.same(set.mergeOf(makeBranch(3, ['x7', 'b', 'a'], false)), { removed: [], added: [] })
  t.same([...new Set(loads)], ['x7'])
})

const stored = branches('2:b,a', '2:c,a')

interface Case {
  about: string
  stored: typeof stored | null
  ask: string[]
  missing: string[]
  ancestors: string[]
}

const table: Case[] = [
  {
    about: 'newer revisions are missing, and older leaves may be their ancestors (19.3)',
    stored,
    ask: ['1-xyz', '2-def', '3-klm', '2-b'],
    missing: ['1-xyz', '2-def', '3-klm'],
    ancestors: ['2-c', '2-b'],
  },
  {
    about: 'no leaf is older than a missing first revision (19.3)',
    stored,
    ask: ['1-pqr'],
    missing: ['1-pqr'],
    ancestors: [],
  },
  {
    about: 'inner revisions and leaves are known (19.3)',
    stored,
    ask: ['1-a', '2-b'],
    missing: [],
    ancestors: [],
  },
  { about: 'nothing asked, nothing missing (19.3)', stored, ask: [], missing: [], ancestors: [] },
  {
    about: 'of an unknown document everything is missing (19.3)',
    stored: null,
    ask: ['1-a'],
    missing: ['1-a'],
    ancestors: [],
  },
  {
    about: 'deleted leaves count as ancestors, after the live ones',
    stored: branches('3:d,b,a!', '2:c,a', '4:x'),
    ask: ['4-e'],
    missing: ['4-e'],
    ancestors: ['2-c', '3-d'],
  },
]

for (const row of table) {
  t.test(row.about, async (t) => {
    const found = missingRevs(row.stored, row.ask.map(parseRev))
    t.strictSame(found, { missing: row.missing, possibleAncestors: row.ancestors })
  })
}

t.test('a revision newer than every leaf is found missing without loading an ancestry', async (t) => {
  const loads: string[] = []
  missingRevs(lazily(stored, loads), ['2-b', '2-d', '3-e'].map(parseRev))
  t.strictSame(loads, [])
})

t.test('a malformed revision is refused before anything is asked (19.3)', async (t) => {
  t.throws(() => ['1'].map(parseRev), { code: 'invalid_rev' })
})
