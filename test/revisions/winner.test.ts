import t from 'tap'
import {
  conflicts,
  deletedConflicts,
  type Leaf,
  leafRev,
  sortLeaves,
  winner,
} from '../../src/revisions/branch.ts'
import { parseRev } from '../../src/revisions/rev.ts'

function leaf(text: string): Leaf {
  const { pos, id } = parseRev(text.replace('!', ''))
  return { pos, leaf: id, deleted: text.endsWith('!') }
}

interface Case {
  leaves: string[]
  winner: string
  conflicts: string[]
  deletedConflicts: string[]
  allDocs: string[]
}

// protocol.md 19.1; `!` marks a deleted leaf
const table: Case[] = [
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
  for (const row of table) {
    for (const leaves of [row.leaves.map(leaf), row.leaves.map(leaf).reverse()]) {
      const best = winner(leaves)
      t.equal(best && leafRev(best), row.winner)
      t.strictSame(conflicts(leaves), row.conflicts)
      t.strictSame(deletedConflicts(leaves), row.deletedConflicts)
      t.strictSame(sortLeaves(leaves).map(leafRev), row.allDocs)
    }
  }
  t.end()
})

t.test('a document without leaves has no winner', (t) => {
  t.equal(winner([]), undefined)
  t.strictSame(conflicts([]), [])
  t.end()
})
