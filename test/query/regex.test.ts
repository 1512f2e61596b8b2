import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { Budget, compileRegex as compileWithin } from '../../src/query/regex.ts'

const compileRegex = (pattern: string) => compileWithin(pattern, new Budget().spend)

function refusalOf(act: () => unknown): unknown {
  try {
    act()
    return 'nothing was thrown'
  } catch (thrown) {
    const isRefusal = thrown instanceof CouchError && ['bad_arg', 'invalid_selector'].includes(thrown.code)
    return isRefusal ? thrown.reason : thrown
  }
}

t.test('a pattern matches as in RE2', async (t) => {
  const cases: [pattern: string, text: string, matches: boolean][] = [
    ['^foo', 'foobar', true],
    ['^foo', 'a foo', false],
    ['o+b', 'foobar', true],
    ['(?i)FOO', 'foo', true],
    ['^.$', 'é', true],
    ['^(?:note|book):', 'note:1', true],
    ['[[:digit:]]{2}$', 'a12', true],
    ['\\bfile:', 'xfile:2', false],
    ['a.b', 'a\nb', false],
    ['(?s)a.b', 'a\nb', true],
    ['', '', true],
  ]
  for (const [pattern, text, matches] of cases) t.equal(compileRegex(pattern)(text), matches, pattern)
})

t.test('invalid patterns and patterns that RE2 does not support are refused', async (t) => {
  for (const pattern of ['a(?=b)', 'a(?!b)', '(?<=a)b', '(a)\\1', 'a++', '(?>a)', '(', '[', '*', 'a{2,1}']) {
    t.match(
      refusalOf(() => compileRegex(pattern)),
      /^Bad argument for operator \$regex: /,
      pattern,
    )
  }
})

t.test('a pattern that would take JavaScript hours is fast', async (t) => {
  const start = performance.now()
  t.notOk(compileRegex('^(a|aa)+$')(`${'a'.repeat(10_000)}b`))
  t.notOk(compileRegex('(x+x+)+y')('x'.repeat(10_000)))
  t.ok(performance.now() - start < 2000)
})

t.test('the size of patterns and the work of a search are limited', async (t) => {
  t.match(
    refusalOf(() => compileRegex('a'.repeat(2001))),
    /longer than 2000 characters/,
  )
  t.match(
    refusalOf(() => compileRegex('(a?){1000}')),
    /too large/,
  )
  t.match(
    refusalOf(() => compileRegex('((a{100}){100}){100}')),
    /not a valid RE2 pattern/,
  )
  t.match(
    refusalOf(() => compileRegex('[ab]{500}c')('ab'.repeat(50_000))),
    /too much/,
  )
  t.ok(compileRegex('^a')('a'.repeat(1_000_000)))
  const { spend } = new Budget()
  t.match(
    refusalOf(() => {
      for (let i = 0; i < 20; i++) compileWithin(`(a?){500}${i}`, spend)
    }),
    /too much/,
    'all patterns of a selector together are limited, too',
  )
})
