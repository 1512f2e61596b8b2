/** Purges in groups that `_purge` accepts. */
import t from 'tap'
import { groupsOf } from '../../src/standby/purge-copies.ts'

t.test('each group is within the limits, and together they have every revision', async (t) => {
  const purges = [
    { id: 'a', revs: ['1-a', '1-b', '1-c'] },
    { id: 'b', revs: ['1-d'] },
    { id: 'c', revs: ['1-e'] },
    { id: 'b', revs: ['2-f'] },
  ]
  const plain = (documents: number, revisions: number) =>
    groupsOf(purges, { documents, revisions }).map((group) => Object.fromEntries(group))
  t.same(plain(100, 1000), [{ a: ['1-a', '1-b', '1-c'], b: ['1-d', '2-f'], c: ['1-e'] }])
  t.same(plain(2, 1000), [
    { a: ['1-a', '1-b', '1-c'], b: ['1-d'] },
    { c: ['1-e'], b: ['2-f'] },
  ])
  t.same(plain(100, 2), [{ a: ['1-a', '1-b'] }, { a: ['1-c'], b: ['1-d'] }, { c: ['1-e'], b: ['2-f'] }])
  t.equal(plain(1, 1).length, 6)
  t.same(groupsOf([], { documents: 1, revisions: 1 }), [])
})
