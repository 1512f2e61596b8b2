import t from 'tap'
import { type Branch, revisionTree, type TreeRow } from '../../console/src/screens/documents/revision-tree.ts'

/** @param revs newest first; `!` after a revision: its content is gone */
function branch(revs: string, isDeleted = false): Branch {
  const history = revs.split(' ').map((rev) => ({
    rev: rev.replace('!', ''),
    status: rev.endsWith('!') ? ('missing' as const) : ('available' as const),
  }))
  return { leaf: history[0]?.rev ?? '', isDeleted, history }
}

const shown = (rows: readonly TreeRow[]) =>
  rows.map((row) => (row.kind === 'gap' ? `${row.lane}…${row.count}` : `${row.lane}:${row.rev}`)).join(' ')

t.test('a document with one revision is one row', async (t) => {
  t.same(revisionTree([branch('1-a')]), {
    rows: [
      {
        kind: 'revision',
        rev: '1-a',
        lane: 0,
        isWinner: true,
        isLeaf: true,
        isDeleted: false,
        isStored: true,
      },
    ],
    lines: [],
    lanes: 1,
  })
  t.same(revisionTree([]), { rows: [], lines: [], lanes: 0 })
})

t.test('branches stand side by side, and meet where they have forked', async (t) => {
  const tree = revisionTree([branch('3-c 2-b! 1-a!'), branch('3-x 2-b! 1-a!'), branch('2-y 1-a!', true)])
  t.equal(shown(tree.rows), '0:3-c 1:3-x 0:2-b 2:2-y 0:1-a')
  t.same(tree.lines, [
    { from: 0, to: 2, fromLane: 0, toLane: 0 },
    { from: 1, to: 2, fromLane: 1, toLane: 0 },
    { from: 2, to: 4, fromLane: 0, toLane: 0 },
    { from: 3, to: 4, fromLane: 2, toLane: 0 },
  ])
  t.match(tree.rows[3], { isLeaf: true, isDeleted: true, isWinner: false })
  t.match(tree.rows[2], { isStored: false, isLeaf: false })
})

t.test('branches without a common ancestor stay apart', async (t) => {
  const tree = revisionTree([branch('5-e 4-d'), branch('2-b 1-a')])
  t.equal(shown(tree.rows), '0:5-e 0:4-d 1:2-b 1:1-a')
  t.same(tree.lines[1], { from: 1, to: null, fromLane: 0, toLane: 0 }, 'older revisions were forgotten')
})

t.test('a long history is shortened, and opened on request', async (t) => {
  const revs = (from: number) => Array.from({ length: from }, (_, n) => `${from - n}-${from - n}`)
  const long = revs(1000).join(' ')
  const tree = revisionTree([branch(long)])
  t.equal(shown(tree.rows), '0:1000-1000 0:999-999 0:998-998 0:997-997 0…994 0:2-2 0:1-1')
  t.equal(tree.lines.length, 6)
  t.equal(revisionTree([branch(long)], new Set(['996-996'])).rows.length, 1000)
  const forked = revisionTree([branch(long), branch(`501-x ${revs(500).join(' ')}`)])
  t.equal(
    shown(forked.rows),
    '0:1000-1000 0:999-999 0:998-998 0:997-997 0…495 0:501-501 1:501-x 0:500-500 0:499-499 0:498-498 0:497-497 0…494 0:2-2 0:1-1',
  )
})
