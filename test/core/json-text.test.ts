import { equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { quoted } from '../../src/core/json.ts'

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
