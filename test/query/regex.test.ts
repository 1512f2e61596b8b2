import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { patternCost } from '../../src/query/pattern-cost.ts'
import { Budget, compileRegex } from '../../src/query/regex.ts'
import { cpuMs } from '../helpers/cpu-time.ts'

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
  const start = cpuMs()
  t.notOk(compileRegex('^(a|aa)+$')(`${'a'.repeat(10_000)}b`))
  t.notOk(compileRegex('(x+x+)+y')('x'.repeat(10_000)))
  t.ok(cpuMs() - start < 2000)
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
    refusalOf(() => compileRegex('(?:a{20}){51}')),
    /not a valid RE2 pattern/,
  )
  t.match(
    refusalOf(() => compileRegex('[ab]{500}c')('ab'.repeat(50_000))),
    /too much/,
  )
  t.ok(compileRegex('^a')('a'.repeat(1_000_000)))
})

t.test('patterns that take RE2JS seconds are refused before it reads them', async (t) => {
  const patterns = {
    'folded ranges': `(?i)[${'B-\u{1E942}'.repeat(490)}]`,
    'one folded range, again and again': '(?i)[B-\\x{1E942}]'.repeat(4),
    'folded ranges with leading zeros': `(?i)[${`B-\\x{${'0'.repeat(12)}1e942}`.repeat(85)}]`,
    'folded ranges within flags of a group': `(?s-U:(?mi:[${'\\n-\\x{1E942}'.repeat(100)}]))`,
    'counted repeats side by side': `(${'a{1000}'.repeat(250)})`,
    'counted repeats in each other': '((a{100}){100}){100}',
    'an open repeat of many': `(?:${'ab'.repeat(500)}){1000,}`,
    'Unicode classes': `[${'\\p{Lu}\\PL'.repeat(200)}]`,
    'alternatives of Unicode classes': '\\pL|\\pN|'.repeat(200),
    'a Unicode class in many instructions': '\\pL{1000}'.repeat(2),
  }
  for (const [name, pattern] of Object.entries(patterns)) {
    const { steps, program } = patternCost(pattern)
    t.ok(steps > 350_000 || program > 3000, `${name}: ${steps} steps, ${program} instructions`)
    t.match(
      refusalOf(() => compileRegex(pattern)),
      /it is too large|longer than/,
      name,
    )
  }
})

t.test('a folded range costs the same however its end is spelled', async (t) => {
  const spelled = ['\u{1E942}', ...[0, 1, 3, 4, 12, 1900].map((zeros) => `\\x{${'0'.repeat(zeros)}1E942}`)]
  for (const end of spelled) {
    const { steps } = patternCost(`(?i)[B-${end}]`)
    t.ok(steps > 0x1e942, `${end.slice(0, 20)}: ${steps} steps`)
  }
})

t.test('patterns that people write are far from the limits', async (t) => {
  const patterns = [
    '(?i)[а-яё]+\\s\\w+',
    '(?i)[一-龥]{2,5}',
    '^(?:note|book|tag):[a-z0-9-]{1,200}$',
    '[\\p{L}\\d.]{1,64}@[\\p{L}\\d.-]{1,64}',
    '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}(?::\\d{2}(?:\\.\\d{1,9})?)?Z?$',
    '\\Q[x]{99999}\\E|[]{99999}]|\\{99999}',
  ]
  for (const pattern of patterns) {
    t.ok(patternCost(pattern).steps < 175_000, `${pattern}: ${patternCost(pattern).steps} steps`)
    t.doesNotThrow(() => compileRegex(pattern), pattern)
  }
})

t.test('the patterns of a selector are limited together', async (t) => {
  const compileAll = (patterns: readonly string[]) => {
    const budget = new Budget()
    return refusalOf(() => {
      for (const pattern of patterns) compileRegex(pattern, budget)
    })
  }
  const words = (count: number) => Array.from({ length: count }, (_, i) => `(?i)word${i}`)
  t.equal(compileAll(words(50)), 'nothing was thrown')
  t.match(compileAll(words(51)), /more than 50 patterns/)
  t.match(compileAll(Array.from({ length: 20 }, (_, i) => `(a?){300}${i}`)), /too large together/)
})

t.test('the states of a search stay small', async (t) => {
  const before = process.memoryUsage().heapUsed
  const matches = compileRegex('[ab]*a[ab]{14}c')
  let text = ''
  for (let i = 0; i < 100_000; i++) text += (Math.imul(i, 2654435761) >>> 16) & 1 ? 'a' : 'b'
  t.notOk(matches(text))
  t.ok(process.memoryUsage().heapUsed - before < 4_000_000, 'RE2JS would keep 8 MB of states')
})
