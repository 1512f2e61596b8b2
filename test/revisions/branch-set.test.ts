import fc from 'fast-check'
import t from 'tap'
import {
  ancestryId,
  ancestryLength,
  type Branch,
  conflicts,
  decodeAncestry,
  deletedConflicts,
  encodeAncestry,
  knows,
  type Leaf,
  leafRev,
  leafRevs,
  makeBranch,
  parseRevisions,
  sortLeaves,
  winner,
} from '../../src/revisions/branch.ts'
import { isKnown, leavesBelow } from '../../src/revisions/branch-index.ts'
import { BranchSet } from '../../src/revisions/branch-set.ts'
import { merge } from '../../src/revisions/merge.ts'
import { missingRevs } from '../../src/revisions/missing.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branch, branches, lazily, show } from './helpers.ts'
import { arrivals, path, toBranch, worlds } from './histories.ts'

t.test('a branch knows its leaf and its ancestors at their generations', (t) => {
  const one = branch('4:d,c,b')
  for (const rev of ['4-d', '3-c', '2-b']) t.ok(knows(one, parseRev(rev)), rev)
  for (const rev of ['5-d', '5-e', '4-c', '3-d', '1-a', '0-a']) t.notOk(knows(one, parseRev(rev)), rev)
  t.end()
})

t.test('a branch has at least one revision', (t) => {
  t.throws(() => makeBranch(1, [], false), RangeError)
  t.equal(leafRev(makeBranch(2, ['b', 'a'], false)), '2-b')
  t.end()
})

t.test('a leaf is known without loading an ancestry', (t) => {
  const loads: string[] = []
  const stored = lazily(branches('4:d,c,b,a', '2:x,a'), loads)
  t.ok(isKnown(stored, parseRev('2-x')))
  t.notOk(isKnown(stored, parseRev('4-e')))
  t.notOk(isKnown(stored, parseRev('5-e')))
  t.strictSame(loads, [])
  t.ok(isKnown(stored, parseRev('2-b')))
  t.strictSame(loads, ['4-d'], 'only the branch that is long enough')
  t.end()
})

t.test('the leaves below a revision are those that descend from it, each once', (t) => {
  const stored = branches('3:c,b,a', '3:d,b,a', '2:e,a', '5:x')
  const orderCases: [rev: string, leaves: string[]][] = [
    ['1-a', ['3-c', '3-d', '2-e']],
    ['2-b', ['3-c', '3-d']],
    ['2-e', ['2-e']],
    ['5-x', ['5-x']],
    ['4-x', []],
    ['1-z', []],
  ]
  for (const [rev, leaves] of orderCases)
    t.strictSame(leavesBelow(stored, parseRev(rev)).map(leafRev), leaves, rev)
  t.end()
})

t.test('_revisions is read newest first', (t) => {
  const upper = 'ABCDEF0123456789ABCDEF0123456789'
  t.strictSame(parseRevisions({ start: 3, ids: ['c', 'b'] }), { pos: 3, ids: ['c', 'b'] })
  t.strictSame(parseRevisions({ start: 1, ids: [upper] }), { pos: 1, ids: [upper.toLowerCase()] })
  t.end()
})

t.test('a bad _revisions is refused in the words of protocol.md 1.2', (t) => {
  const start = "_revisions.start isn't an integer."
  const ids = "_revisions.ids isn't a array."
  const bounds = '_revisions.ids must have from 1 to _revisions.start members.'
  const hex = "RevId isn't a valid hexadecimal"
  const orderCases: [value: unknown, reason: string][] = [
    [null, 'Bad special document member: _revisions'],
    [[], 'Bad special document member: _revisions'],
    ['1-a', 'Bad special document member: _revisions'],
    [{}, start],
    [{ start: '1', ids: ['a'] }, start],
    [{ start: 1.5, ids: ['a'] }, start],
    [{ start: 2 ** 53, ids: ['a'] }, start],
    [{ start: 1 }, ids],
    [{ start: 1, ids: 'a' }, ids],
    [{ start: 1, ids: [] }, bounds],
    [{ start: 0, ids: ['2', '1'] }, bounds],
    [{ start: -1, ids: ['a'] }, bounds],
    [{ start: 1, ids: ['b', 'a'] }, bounds],
    [{ start: 1, ids: [1] }, "RevId isn't a string"],
    [{ start: 1, ids: [null] }, "RevId isn't a string"],
    [{ start: 1, ids: ['g'.repeat(32)] }, hex],
    [{ start: 1, ids: ['\ud800'] }, hex],
    [{ start: 1, ids: ['x'.repeat(513)] }, hex],
  ]
  for (const [value, reason] of orderCases) {
    t.throws(
      () => parseRevisions(value),
      { code: 'doc_validation', status: 400, reason },
      JSON.stringify(value),
    )
  }
  t.end()
})

function leaf(text: string): Leaf {
  const { pos, id } = parseRev(text.replace('!', ''))
  return { pos, leaf: id, deleted: text.endsWith('!') }
}

interface OrderCase {
  leaves: string[]
  winner: string
  conflicts: string[]
  deletedConflicts: string[]
  allDocs: string[]
}

// protocol.md 19.1; `!` marks a deleted leaf
const orderCases: OrderCase[] = [
  {
    leaves: ['2-b', '2-c', '2-d!'],
    winner: '2-c',
    conflicts: ['2-b'],
    deletedConflicts: ['2-d'],
    allDocs: ['2-c', '2-b', '2-d'],
  },
  {
    leaves: ['3-a!', '2-z'],
    winner: '2-z',
    conflicts: [],
    deletedConflicts: ['3-a'],
    allDocs: ['2-z', '3-a'],
  },
  {
    leaves: ['10-a', '9-f'],
    winner: '10-a',
    conflicts: ['9-f'],
    deletedConflicts: [],
    allDocs: ['10-a', '9-f'],
  },
  {
    leaves: ['2-a!', '2-b!'],
    winner: '2-b',
    conflicts: [],
    deletedConflicts: ['2-a'],
    allDocs: ['2-b', '2-a'],
  },
  {
    leaves: [`2-0aee${'0'.repeat(28)}`, `2-0aff${'0'.repeat(28)}`],
    winner: `2-0aff${'0'.repeat(28)}`,
    conflicts: [`2-0aee${'0'.repeat(28)}`],
    deletedConflicts: [],
    allDocs: [`2-0aff${'0'.repeat(28)}`, `2-0aee${'0'.repeat(28)}`],
  },
]

t.test('the winner and the order of leaves are those of protocol.md 19.1', (t) => {
  for (const row of orderCases) {
    for (const leaves of [row.leaves.map(leaf), row.leaves.map(leaf).reverse()]) {
      const best = winner(leaves)
      t.equal(best && leafRev(best), row.winner)
      t.strictSame(conflicts(leaves, row.winner), row.conflicts)
      t.strictSame(deletedConflicts(leaves, row.winner), row.deletedConflicts)
      t.strictSame(sortLeaves(leaves).map(leafRev), row.allDocs)
      t.strictSame(leafRevs(leaves, row.winner), row.allDocs)
    }
  }
  t.end()
})

t.test('a document without leaves has no winner', (t) => {
  t.equal(winner([]), undefined)
  t.end()
})

t.test('a winner that an older settee has stored is no conflict of its own', (t) => {
  const ids = [`1-96${'0'.repeat(30)}`, '1-zz', '1-9']
  const leaves = ids.map(leaf)
  t.equal(leafRev(winner(leaves)!), ids[0])
  t.strictSame(conflicts(leaves, '1-zz'), [ids[0], '1-9'])
  t.strictSame(leafRevs(leaves, '1-zz'), ['1-zz', ids[0], '1-9'])
  t.end()
})

const hex = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 32, maxLength: 32 })
const other = fc.string({ unit: 'binary', minLength: 1, maxLength: 512 })

t.test('an ancestry of hex ids takes 16 bytes an id and one more', (t) => {
  const ids = Array.from({ length: 1000 }, (_, n) => n.toString(16).padStart(32, '0'))
  const bytes = encodeAncestry(ids)
  t.equal(bytes.length, 16001)
  t.strictSame(decodeAncestry(bytes), ids)
  t.end()
})

t.test('an id that only resembles hex is kept unchanged', (t) => {
  const ids = ['A'.repeat(32), 'g'.repeat(32), '0'.repeat(32), 'a', '0'.repeat(31), '0'.repeat(33)]
  t.strictSame(decodeAncestry(encodeAncestry(ids)), ids)
  t.end()
})

t.test('whatever is encoded is decoded, also from the middle of a larger buffer', async () => {
  const ids = fc.oneof(fc.array(hex, { minLength: 1 }), fc.array(fc.oneof(hex, other), { minLength: 1 }))
  fc.assert(
    fc.property(ids, fc.nat(9), (ids, before) => {
      const bytes = encodeAncestry(ids)
      const large = new Uint8Array(before + bytes.length + 3).fill(7)
      large.set(bytes, before)
      const again = decodeAncestry(large.subarray(before, before + bytes.length))
      const part = large.subarray(before, before + bytes.length)
      if (ancestryLength(part) !== ids.length || ancestryId(part, ids.length) !== undefined) return false
      if (ids.some((id, n) => ancestryId(part, n) !== id)) return false
      return again.length === ids.length && again.every((id, n) => id === ids[n])
    }),
    { numRuns: 2000 },
  )
})

t.test('an id may be empty, but not so long that its length is the mark of hex', (t) => {
  t.same(decodeAncestry(encodeAncestry(['', '0'.repeat(32), ''])), ['', '0'.repeat(32), ''])
  t.throws(() => encodeAncestry(['x'.repeat(0x10000)]), RangeError)
  t.end()
})

t.test('damaged bytes are not decoded', (t) => {
  const pure = encodeAncestry(['0'.repeat(32)])
  const mixed = encodeAncestry(['0'.repeat(32), 'abc'])
  const orderCases = [
    new Uint8Array(),
    Uint8Array.of(9),
    pure.subarray(0, 9),
    mixed.subarray(0, 5),
    mixed.subarray(0, 20),
  ]
  for (const bytes of orderCases)
    t.throws(() => decodeAncestry(bytes), RangeError, Buffer.from(bytes).toString('hex'))
  t.end()
})

// Many revisions entering one document: the same as one after the other, in work that grows with their number.

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
  // Those that took a leaf which was cut again are written with the ids that they had.
  const stored = new Set(show(before))
  const isChanged = (text: string) => !stored.has(text)
  same(show(written).filter(isChanged), show(after).filter(isChanged))
  if (superseded.length > 0 && written.length === 0) throw new Error('no branch has taken a leaf')
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
