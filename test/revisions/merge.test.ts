import t from 'tap'
import { extend, merge, stem } from '../../src/revisions/merge.ts'
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

t.test('a replicated write loads what can know its revisions, and no more', async (t) => {
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
