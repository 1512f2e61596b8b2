import t from 'tap'
import { knows, leafRev, makeBranch, parseRevisions } from '../../src/revisions/branch.ts'
import { isKnown, leavesBelow } from '../../src/revisions/branch-index.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branch, branches, lazily } from './helpers.ts'

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
  const table: [rev: string, leaves: string[]][] = [
    ['1-a', ['3-c', '3-d', '2-e']],
    ['2-b', ['3-c', '3-d']],
    ['2-e', ['2-e']],
    ['5-x', ['5-x']],
    ['4-x', []],
    ['1-z', []],
  ]
  for (const [rev, leaves] of table)
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
  const table: [value: unknown, reason: string][] = [
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
  for (const [value, reason] of table) {
    t.throws(
      () => parseRevisions(value),
      { code: 'doc_validation', status: 400, reason },
      JSON.stringify(value),
    )
  }
  t.end()
})
