import { readFile } from 'node:fs/promises'
import fc from 'fast-check'
import t from 'tap'
import { type Compare, compareJson, compareRaw, compareStrings } from '../../src/query/collation.ts'
import { encodeKey } from '../../src/query/sort-keys.ts'

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

t.test('strings are in the order of CouchDB 3.5', async (t) => {
  // Made by a view of CouchDB 3.5.0 with ICU 72.1; strings that it finds equal are in a list of their own.
  const listed: readonly (string | readonly string[])[] = JSON.parse(
    await readFile(new URL('collation-order.json', import.meta.url), 'utf8'),
  )
  const groups = listed.map((item) => (typeof item === 'string' ? [item] : item))
  const wrong: string[] = []
  for (const [i, group] of groups.entries()) {
    const next = groups[i + 1]?.[0] ?? '\uffff\uffff'
    for (const text of group) {
      if (compareStrings(text, group[0]!) !== 0 || compareStrings(text, next) >= 0) wrong.push(text)
      if (encodeKey(text, 'json').compare(encodeKey(next, 'json')) !== -1) wrong.push(text)
    }
  }
  t.same(wrong, [])
  t.ok(groups.length > 1600)
})

t.test('the order does not depend on the language of the machine', async (t) => {
  const signs = '_-,;:!?.\'"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCzZ'
  const shuffled = [...signs].reverse().sort(compareStrings)
  t.equal(shuffled.join(''), signs)
  // Swedish puts ä after z, German next to a.
  t.ok(compareStrings('ä', 'b') < 0)
  t.ok(compareStrings('中', 'あ') > 0 && compareStrings('я', 'z') > 0)
})

t.test('letters are in the order of Node’s own collator', async () => {
  const collator = new Intl.Collator('en')
  const text = fc.string({ unit: fc.constantFrom(...'aAáàâbBßzZéøñ 019αΩωбЯё'), maxLength: 12 })
  fc.assert(fc.property(text, text, (a, b) => Math.sign(compareStrings(a, b)) === collator.compare(a, b)))
})

t.test('strings that collate as equal stay equal', async (t) => {
  t.equal(compareStrings('a\u0000', 'a'), 0)
  t.equal(compareStrings('\u00e9', 'e\u0301'), 0)
  t.equal(compareJson({ '\u00e9': 1 }, { 'e\u0301': 1 }), 0)
})

t.test('accents that are stored in another order are another text, as in CouchDB', async (t) => {
  t.ok(compareStrings('a\u0323\u0301', 'a\u0301\u0323') > 0)
  t.ok(compareStrings('\u1ea1\u0301', '\u00e1\u0323') > 0)
})

t.test('long strings are compared as short ones', async (t) => {
  for (const [a, b] of [
    ['a', 'b'],
    ['é', 'e\u0301'],
    ['e', 'é'],
    ['a', 'A'],
    ['', 'a'],
  ] as const) {
    for (const fill of ['x', '\u0000', 'é', '中', '\u0301', 'เก']) {
      for (const [before, after] of [
        [fill.repeat(3000), ''],
        ['y', fill.repeat(3000)],
        [fill.repeat(1000), fill.repeat(1000)],
      ] as const) {
        const keys = [a, b].map((text) => encodeKey(`${before}.${text}.${after}`, 'json')) as [Buffer, Buffer]
        const found = compareStrings(`${before}.${a}.${after}`, `${before}.${b}.${after}`)
        t.equal(Math.sign(found), keys[0].compare(keys[1]), JSON.stringify([a, b, fill]))
      }
    }
  }
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

t.test('what follows 65,536 units is compared by code point', (t) => {
  const long = 'é'.repeat(65_536)
  t.ok(compareStrings(`${long}a`, `${long}B`) > 0)
  t.equal(compareStrings(`${long}a`, `${long}a`), 0)
  t.ok(compareStrings(`a${long}`, `B${long}`) < 0)
  t.ok(compareStrings(long, `${long}\0`) < 0, 'ignored characters count there')
  t.end()
})
