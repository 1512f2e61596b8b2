import t from 'tap'
import { hashOf, parseHash } from '../../console/src/shell/hash.ts'

t.test('an address and its parts are the same', async (t) => {
  const rows: readonly (readonly [readonly string[], Record<string, string>])[] = [
    [[], {}],
    [['databases', 'a/b+c d', '_design/ü%'], {}],
    [['databases'], { prefix: 'x&y=z?#', at: '2025-03-01T14:05Z' }],
  ]
  for (const [path, query] of rows) t.same(parseHash(hashOf(path, query)), { path, query })
})

t.test('an address that somebody typed', async (t) => {
  t.same(parseHash(''), { path: [], query: {} })
  t.same(parseHash('#databases/%zz'), { path: ['databases', '%zz'], query: {} })
})
