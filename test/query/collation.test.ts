import fc from 'fast-check'
import t from 'tap'
import { type Compare, compareJson, compareRaw, compareStrings } from '../../src/query/collation.ts'

/** Checks that the values are strictly ascending. */
function checkOrder(t: { ok(found: boolean, name: string): unknown }, values: unknown[], compare: Compare) {
  for (const [i, a] of values.entries()) {
    for (const [j, b] of values.entries()) {
      const order = Math.sign(compare(a, b))
      t.ok(order === Math.sign(i - j), `${JSON.stringify(a)} and ${JSON.stringify(b)}: ${order}`)
    }
  }
}

t.test('view keys are ordered as in protocol.md 9.4', async (t) => {
  const ordered = [
    null,
    false,
    true,
    Number.NEGATIVE_INFINITY,
    -1.5,
    0,
    1,
    2,
    10,
    1e300,
    Number.POSITIVE_INFINITY,
    '',
    '_',
    '-',
    '^',
    '1',
    '10',
    '2',
    'a',
    'A',
    'á',
    'aa',
    'Aa',
    'b',
    'B',
    'ba',
    'bb',
    'ñ',
    'Ω',
    '\ufff0',
    [],
    [null],
    ['a'],
    ['a', 'a'],
    ['b'],
    ['b', 'c'],
    ['b', 'c', 'a'],
    [{}],
    {},
    { a: 1 },
    { a: 1, b: 1 },
    { a: 2 },
    { a: 2, b: 1 },
    { b: 1 },
    { b: 2, a: 1 },
  ]
  checkOrder(t, ordered, compareJson)
})

t.test('raw keys are ordered as in protocol.md 9.4', async (t) => {
  const ordered = [
    1,
    2,
    false,
    null,
    true,
    {},
    { a: 1 },
    { b: 0 },
    [],
    ['a'],
    '',
    'A',
    'B',
    'a',
    'é',
    '\uffff',
    '😀',
  ]
  checkOrder(t, ordered, compareRaw)
})

t.test('Node collates by ICU’s root collation, whatever the language of the machine', async (t) => {
  const signs = '_-,;:!?.\'"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCzZ'
  const shuffled = [...signs].reverse().sort(compareStrings)
  t.equal(shuffled.join(''), signs)
  // Swedish puts ä after z, German next to a.
  t.ok(compareStrings('ä', 'b') < 0)
  t.ok(compareStrings('中', 'あ') > 0 && compareStrings('я', 'z') > 0)
})

t.test('strings that collate as equal stay equal', async (t) => {
  t.equal(compareStrings('a\u0000', 'a'), 0)
  t.equal(compareStrings('\u00e9', 'e\u0301'), 0)
  t.equal(compareJson({ '\u00e9': 1 }, { 'e\u0301': 1 }), 0)
})

t.test('both orders are total', async () => {
  const value = fc.jsonValue({ maxDepth: 3 })
  for (const compare of [compareJson, compareRaw]) {
    fc.assert(
      fc.property(value, value, value, (a, b, c) => {
        if (compare(a, a) !== 0) return false
        if (Math.sign(compare(a, b)) !== -Math.sign(compare(b, a))) return false
        if (compare(a, b) === 0 && Math.sign(compare(a, c)) !== Math.sign(compare(b, c))) return false
        const [x, y, z] = [a, b, c].sort(compare)
        return compare(x, y) <= 0 && compare(y, z) <= 0 && compare(x, z) <= 0
      }),
      { numRuns: 3000 },
    )
  }
})

t.test('a prefix of an array comes before the array', async () => {
  fc.assert(
    fc.property(
      fc.array(fc.jsonValue(), { minLength: 1 }),
      (list) => compareJson(list.slice(0, -1), list) < 0,
    ),
  )
})
