import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { encodeTexts } from '../../src/core/bytes.ts'
import { quoted } from '../../src/core/json.ts'

const LENGTHS = [0, 1, 7, 1023, 1024, 1025, 3000, 100_000, 200_000, 400_000]
/** One to four bytes of UTF-8 each. */
const CHARACTERS = ['a', 'ü', '€', '\u{1f600}']

t.test('texts become the bytes that they are together', async () => {
  const text = fc
    .tuple(fc.constantFrom(...LENGTHS), fc.constantFrom(...CHARACTERS))
    .map(([length, character]) => character.repeat(length / character.length))
  const texts = fc.array(fc.oneof(text, fc.string({ unit: 'binary' })), { maxLength: 12 })
  fc.assert(
    fc.property(texts, fc.constantFrom('', ',\r\n'), (some, separator) => {
      deepEqual(Buffer.from(encodeTexts(some, separator)), Buffer.from(some.join(separator)))
    }),
    { numRuns: 200 },
  )
})

t.test('the memory is of these bytes alone', async () => {
  for (const length of LENGTHS) {
    const bytes = encodeTexts(['x'.repeat(length), 'y'])
    equal(bytes.byteLength, bytes.buffer.byteLength)
    encodeTexts(['z'.repeat(length + 1)])
    equal(Buffer.from(bytes).toString(), `${'x'.repeat(length)}y`)
  }
})

t.test('a quoted text is what JSON.stringify gives', async () => {
  const unit = fc.oneof(
    fc.constantFrom('"', '\\', '\n', '\0', '\x7f', '\u2028', '\ud800', '\udfff'),
    fc.string(),
  )
  fc.assert(
    fc.property(fc.array(unit), (units) => {
      const text = units.join('')
      equal(quoted(text), JSON.stringify(text))
    }),
    { numRuns: 500 },
  )
})

t.test('every character by itself', async () => {
  for (let code = 0; code <= 0xffff; code++) {
    const text = `a${String.fromCharCode(code)}b`
    equal(quoted(text), JSON.stringify(text))
  }
})
