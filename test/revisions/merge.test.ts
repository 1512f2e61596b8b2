import t from 'tap'
import { type Branch, conflicts, leafRev, winner } from '../../src/revisions/branch.ts'
import { isKnown } from '../../src/revisions/branch-index.ts'
import { extend, merge, stem } from '../../src/revisions/merge.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branch, branches, lazily, show } from './helpers.ts'

const LIMIT = 1000

t.test('branches that stay the same are the same objects', async (t) => {
  const stored = branches('3:c,b,a', '3:d,b,a', '2:z')
  const { branches: after } = merge(stored, branch('4:e,d,b,a'), LIMIT)
  t.ok(after.includes(stored[0]!))
  t.ok(after.includes(stored[2]!))
  const joined = merge(stored, branch('2:z,a'), LIMIT)
  t.ok(joined.branches.includes(stored[0]!))
  t.notOk(joined.branches.includes(stored[2]!))
})

t.test('ancestries are cut only after leaves were compared', async (t) => {
  const stored = branches('2:b,a')
  const result = merge(stored, branch('5:e,d,c,b,a'), 2)
  t.strictSame(show(result.branches), ['5:e,d'])
})

t.test('a known leaf that was cut is not touched by a longer ancestry that is cut again', async (t) => {
  const stored = branches('5:e,d')
  const result = merge(stored, branch('5:e,d,c,b,a'), 2)
  t.notOk(result.changed)
  t.equal(result.branches[0], stored[0])
})

t.test('a branch takes older ids from where they still are, not from a branch that was cut', async (t) => {
  const result = merge(branches('6:f,e,d', '5:z,d,c'), branch('5:x,d'), 3)
  t.strictSame(show(result.branches), ['6:f,e,d', '5:z,d,c', '5:x,d,c'])
})

t.test('a branch is cut to revs_limit', async (t) => {
  const one = branch('3:c,b,a!')
  t.equal(stem(one, 3), one)
  t.strictSame(show([stem(one, 2)]), ['3:c,b!'])
})

t.test('an edit replaces the leaf it was made upon', async (t) => {
  const stored = branches('2:b,a', '2:c,a!')
  const after = extend(stored, stored[0]!, 'x', false, LIMIT)
  t.strictSame(show(after), ['3:x,b,a', '2:c,a!'])
  t.ok(after.includes(stored[1]!))
  t.strictSame(show(extend(stored, stored[1]!, 'x', true, 2)), ['2:b,a', '3:x,c!'])
  t.strictSame(show(extend(stored, stored[0]!, 'x', false, 1)), ['3:x', '2:c,a!'])
})

t.test('an edit that another server made too is one leaf with it', async (t) => {
  const stored = branches('2:b,a', '3:x!', '3:y,b,a')
  t.strictSame(show(extend(stored, stored[0]!, 'x', false, LIMIT)), ['3:y,b,a', '3:x,b,a!'])
})

t.test('there is no generation after the largest', async (t) => {
  const stored = branches(`${Number.MAX_SAFE_INTEGER}:a`)
  t.throws(() => extend(stored, stored[0]!, 'b', false, LIMIT), { code: 'invalid_rev' })
})

t.test('an edit loads the ancestry of its parent alone', async (t) => {
  const loads: string[] = []
  const stored = lazily(branches('3:c,b,a', '3:d,b,a', '5:g,f,e,b,a', '2:z'), loads)
  extend(stored, stored[0]!, 'x', false, LIMIT)
  t.strictSame([...new Set(loads)], ['3-c'])
})

t.test('a replicated write loads only ancestries that can have its revisions', async (t) => {
  const rows: [written: string, loaded: string[]][] = [
    ['2:z', []],
    ['3:c', []],
    ['3:c,b,a', ['3-c']],
    ['4:x,d,b,a', ['3-d', '5-g']],
    ['6:h,g,f,e,b,a', ['5-g']],
    ['7:i,h,g,f,e,b,a', ['5-g']],
  ]
  for (const [written, loaded] of rows) {
    const loads: string[] = []
    merge(lazily(branches('3:c,b,a', '3:d,b,a', '5:g,f,e,b,a', '2:z'), loads), branch(written), LIMIT)
    t.strictSame(new Set(loads), new Set(loaded), written)
  }
})

t.test('an edit of a document with 200 conflicts of 1,000 revisions takes well under 5 ms', async (t) => {
  const name = (n: number) => n.toString(16).padStart(32, '0')
  const ids = Array.from({ length: 1000 }, (_, n) => name(n))
  const stored = Array.from({ length: 200 }, (_, n) => branch(`1000:${[name(5000 + n), ...ids.slice(1)]}`))
  const times = Array.from({ length: 9 }, (_, n) => {
    const before = performance.now()
    extend(stored, stored[n]!, 'x', false, LIMIT)
    return performance.now() - before
  })
  t.ok(times.sort((a, b) => a - b)[4]! < 5, `${times[4]} ms`)
})

const VECTOR_LIMIT = 1000

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
  for (const text of written) result = merge(result.branches, branch(text), VECTOR_LIMIT)
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
  t.strictSame(conflicts(two, '3-d'), ['3-c'])
  for (const rev of ['1-a', '2-b', '3-c', '3-d']) t.ok(isKnown(two, parseRev(rev)), rev)
  const back = write([], ['2:b,a!', '2:c,a']).branches
  t.equal(leafRev(winner(back)!), '2-c')
})
