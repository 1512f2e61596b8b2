import t from 'tap'
import { type Branch, conflicts, leafRev, winner } from '../../src/revisions/branch.ts'
import { isKnown } from '../../src/revisions/branch-index.ts'
import { merge } from '../../src/revisions/merge.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branch, branches, show } from './helpers.ts'

const LIMIT = 1000

interface Case {
  about: string
  stored: string[]
  written: string[]
  after: string[]
  leavesChanged: boolean
  changed: boolean
}

// Winner first; `!` marks a deleted leaf. leavesChanged and changed are those of the last merge.
const table: Case[] = [
  {
    about: 'a first revision comes with its ancestry (19.2)',
    stored: [],
    written: ['3:c,b,a'],
    after: ['3:c,b,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a revision beside a leaf is a conflict under their parent (19.2)',
    stored: ['3:c,b,a'],
    written: ['3:d,b,a'],
    after: ['3:d,b,a', '3:c,b,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a leaf written again changes nothing (19.2)',
    stored: ['3:c,b,a'],
    written: ['3:c,b,a'],
    after: ['3:c,b,a'],
    leavesChanged: false,
    changed: false,
  },
  {
    about: 'an inner revision written again changes nothing (19.2)',
    stored: ['3:c,b,a'],
    written: ['2:b,a'],
    after: ['3:c,b,a'],
    leavesChanged: false,
    changed: false,
  },
  {
    about: 'a descendant brings the revisions between along (19.2)',
    stored: ['1:a'],
    written: ['4:d,c,b,a'],
    after: ['4:d,c,b,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a revision without ancestry is another root (19.2)',
    stored: ['1:a'],
    written: ['3:x'],
    after: ['3:x', '1:a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a known leaf that comes with its ancestry joins the two roots (19.2, where either is fine)',
    stored: ['1:a', '3:x'],
    written: ['3:x,y,a'],
    after: ['3:x,y,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a later revision joins the two roots (19.2)',
    stored: ['1:a', '3:x'],
    written: ['4:z,x,y,a'],
    after: ['4:z,x,y,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a live revision beside a tombstone brings the document back (19.2)',
    stored: ['2:b,a!'],
    written: ['2:c,a'],
    after: ['2:c,a', '2:b,a!'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a leaf that turns out to have an ancestor takes its place (architecture.md, "Branches")',
    stored: ['2:e'],
    written: ['1:a', '2:e,a'],
    after: ['2:e,a'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'a branch that begins on another reaches as far back (architecture.md, "Branches")',
    stored: ['4:f,d,c'],
    written: ['4:e,d'],
    after: ['4:f,d,c', '4:e,d,c'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'older ids pass through several branches',
    stored: ['6:f,e', '5:x,d', '3:c,b'],
    written: ['5:e,d,c'],
    after: ['6:f,e,d,c,b', '5:x,d,c,b'],
    leavesChanged: true,
    changed: true,
  },
  {
    about: 'an ancestry that only grows leaves the leaves alone',
    stored: ['3:c', '3:d,b'],
    written: ['3:c,b,a'],
    after: ['3:d,b,a', '3:c,b,a'],
    leavesChanged: false,
    changed: true,
  },
  {
    about: 'a stored leaf stays live when it comes again as deleted',
    stored: ['2:b,a'],
    written: ['2:b,a!'],
    after: ['2:b,a'],
    leavesChanged: false,
    changed: false,
  },
  {
    about: 'a stored tombstone stays deleted when it comes again as live, with more ancestry',
    stored: ['2:b!'],
    written: ['2:b,a'],
    after: ['2:b,a!'],
    leavesChanged: false,
    changed: true,
  },
  {
    about: 'a leaf stays when only a contradicted ancestry says that it was replaced',
    stored: ['4:d,x', '3:c,b'],
    written: ['4:d,c,b'],
    after: ['4:d,x', '3:c,b'],
    leavesChanged: false,
    changed: false,
  },
]

function write(stored: readonly Branch[], written: readonly string[]) {
  let result = { branches: [...stored], leavesChanged: false, changed: false }
  for (const text of written) result = merge(result.branches, branch(text), LIMIT)
  return result
}

for (const row of table) {
  t.test(row.about, async (t) => {
    const { branches: after, leavesChanged, changed } = write(branches(...row.stored), row.written)
    t.strictSame(show(after), row.after)
    t.strictSame({ leavesChanged, changed }, { leavesChanged: row.leavesChanged, changed: row.changed })
  })
}

t.test('conflict, winner and known revisions are those of protocol.md 19.2', async (t) => {
  const two = write([], ['3:c,b,a', '3:d,b,a']).branches
  t.equal(leafRev(winner(two)!), '3-d')
  t.strictSame(conflicts(two), ['3-c'])
  for (const rev of ['1-a', '2-b', '3-c', '3-d']) t.ok(isKnown(two, parseRev(rev)), rev)
  const back = write([], ['2:b,a!', '2:c,a']).branches
  t.equal(leafRev(winner(back)!), '2-c')
})
