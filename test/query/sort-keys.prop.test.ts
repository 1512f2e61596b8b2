/** Keys as bytes have the order of the keys. */
import fc from 'fast-check'
import { collate } from 'pouchdb-collate'
import t from 'tap'
import { compareJson, compareRaw, compareStrings } from '../../src/query/collation.ts'
import { arrayPrefix, encodeKey, type KeyOrder, MAX_KEY_BYTES } from '../../src/query/sort-keys.ts'

const ORDERS = [
  ['json', compareJson],
  ['raw', compareRaw],
] as const

/** Characters that change how their neighbours are sorted, or are sorted in a way of their own. */
const CHARACTERS =
  'aAbBlL1 _\u0000\u0001·\u00e9\u00c9\u1ead\u0301\u0306\u0323\u0344\u0345\u0438\u05b4\u0e40\u0e41\u0e01\u0e02\u0f71\u0f72\u0f73\u0f80\u0fb2' +
  '\u1100\u1161\uac00\uac01ぁあアｱか\u3099中一\uf900\ufffe\uffff\ufffd\ue000\u0378😀\u{20000}\u{10ffff}\u{1d165}'
const character = fc.constantFrom(...CHARACTERS, '\ud800', '\udc00')
const text = fc.oneof(
  fc.string({ unit: character, maxLength: 8 }),
  fc.string({ unit: fc.constantFrom(...'aAbBl1 _\u0000'), maxLength: 6 }),
  fc.string({ unit: 'binary', maxLength: 4 }),
)
const number = fc.oneof(
  fc.double({ noNaN: true }),
  fc.integer({ min: -3, max: 3 }),
  fc.constantFrom(0, -0, Number.POSITIVE_INFINITY, Number.MIN_VALUE, -Number.MIN_VALUE, 2 ** 53),
)

function jsonWith(string: fc.Arbitrary<string>): fc.Arbitrary<unknown> {
  return fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom(null, false, true),
      number,
      string,
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(string, tie('value'), { maxKeys: 3, noNullPrototype: true }),
    ),
  })).value
}

const value = jsonWith(text)
const RUNS = { numRuns: 5000 }

for (const [order, compare] of ORDERS) {
  t.test(`the bytes of keys are in the order ${order}`, async () => {
    fc.assert(
      fc.property(
        value,
        value,
        (a, b) => encodeKey(a, order).compare(encodeKey(b, order)) === Math.sign(compare(a, b)),
      ),
      RUNS,
    )
    fc.assert(
      fc.property(
        text,
        text,
        (a, b) => encodeKey(a, order).compare(encodeKey(b, order)) === Math.sign(compare(a, b)),
      ),
      { numRuns: 20_000 },
    )
  })

  t.test(`no key begins with another one, order ${order}`, async () => {
    fc.assert(
      fc.property(value, value, (a, b) => {
        const [left, right] = [encodeKey(a, order), encodeKey(b, order)]
        return left.equals(right) || !left.subarray(0, right.length).equals(right)
      }),
      RUNS,
    )
  })

  t.test(`arrays with equal first elements begin alike, and no others, order ${order}`, async () => {
    fc.assert(
      fc.property(fc.array(value, { maxLength: 3 }), fc.array(value, { maxLength: 3 }), (first, others) => {
        const prefix = arrayPrefix(first, order)
        const begins = (key: unknown) => encodeKey(key, order).subarray(0, prefix.length).equals(prefix)
        const equals = others.length >= first.length && compare(others.slice(0, first.length), first) === 0
        return begins([...first, ...others]) && begins(others) === equals
      }),
      RUNS,
    )
  })
}

t.test('a part of a string does not change how the rest is sorted', async () => {
  fc.assert(
    fc.property(text, text, text, (before, a, b) => {
      const [left, right] = [`${before} ${a}`, `${before} ${b}`]
      return Math.sign(compareStrings(left, right)) === Math.sign(compareStrings(` ${a}`, ` ${b}`))
    }),
    RUNS,
  )
})

t.test('values without strings are in PouchDB’s order', async () => {
  const plain = jsonWith(fc.constantFrom('a', 'b', 'c'))
  const finite = (json: unknown) => JSON.parse(JSON.stringify(json))
  fc.assert(
    fc.property(plain.map(finite), plain.map(finite), (a, b) => {
      return Math.sign(collate(a, b)) === Math.sign(compareJson(a, b))
    }),
    RUNS,
  )
})

t.test('a key has at most 64 kB', async (t) => {
  const tooLong = { code: 'key_too_long', status: 400 }
  for (const order of ['json', 'raw'] satisfies KeyOrder[]) {
    // A type byte, a byte for each letter, a zero byte.
    t.equal(encodeKey('x'.repeat(MAX_KEY_BYTES - 2), order).length, MAX_KEY_BYTES)
    for (const key of [
      'x'.repeat(MAX_KEY_BYTES - 1),
      '中'.repeat(MAX_KEY_BYTES),
      'a\u0301'.repeat(MAX_KEY_BYTES),
      'xX'.repeat(MAX_KEY_BYTES),
      Array(8000).fill(1),
    ]) {
      t.throws(() => encodeKey(key, order), tooLong)
      t.throws(() => arrayPrefix([key], order), tooLong)
    }
  }
  t.throws(() => encodeKey('\u0301'.repeat(MAX_KEY_BYTES), 'json'), tooLong)
  t.throws(() => encodeKey('\0'.repeat(MAX_KEY_BYTES + 1), 'json'), tooLong, 'ignored characters count')
  t.equal(encodeKey('\u0000'.repeat(MAX_KEY_BYTES), 'json').length, 2)
  t.same(encodeKey('short', 'json'), encodeKey('short', 'json'))
})
