import fc from 'fast-check'
import t from 'tap'
import { ancestryId, ancestryLength, decodeAncestry, encodeAncestry } from '../../src/revisions/ancestry.ts'

const hex = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 32, maxLength: 32 })
const other = fc.string({ unit: 'binary', minLength: 1, maxLength: 512 })

t.test('an ancestry of hex ids takes 16 bytes an id and one more', (t) => {
  const ids = Array.from({ length: 1000 }, (_, n) => n.toString(16).padStart(32, '0'))
  const bytes = encodeAncestry(ids)
  t.equal(bytes.length, 16001)
  t.strictSame(decodeAncestry(bytes), ids)
  t.end()
})

t.test('an id that only resembles hex is kept as it stands', (t) => {
  const ids = ['A'.repeat(32), 'g'.repeat(32), '0'.repeat(32), 'a', '0'.repeat(31), '0'.repeat(33)]
  t.strictSame(decodeAncestry(encodeAncestry(ids)), ids)
  t.end()
})

t.test('whatever is encoded is decoded, also from the middle of a larger buffer', async () => {
  const ids = fc.oneof(fc.array(hex, { minLength: 1 }), fc.array(fc.oneof(hex, other), { minLength: 1 }))
  fc.assert(
    fc.property(ids, fc.nat(9), (ids, before) => {
      const bytes = encodeAncestry(ids)
      const large = new Uint8Array(before + bytes.length + 3).fill(7)
      large.set(bytes, before)
      const again = decodeAncestry(large.subarray(before, before + bytes.length))
      const part = large.subarray(before, before + bytes.length)
      if (ancestryLength(part) !== ids.length || ancestryId(part, ids.length) !== undefined) return false
      if (ids.some((id, n) => ancestryId(part, n) !== id)) return false
      return again.length === ids.length && again.every((id, n) => id === ids[n])
    }),
    { numRuns: 2000 },
  )
})

t.test('an id may be empty, but not so long that its length is the mark of hex', (t) => {
  t.same(decodeAncestry(encodeAncestry(['', '0'.repeat(32), ''])), ['', '0'.repeat(32), ''])
  t.throws(() => encodeAncestry(['x'.repeat(0x10000)]), RangeError)
  t.end()
})

t.test('damaged bytes are not decoded', (t) => {
  const pure = encodeAncestry(['0'.repeat(32)])
  const mixed = encodeAncestry(['0'.repeat(32), 'abc'])
  const table = [
    new Uint8Array(),
    Uint8Array.of(9),
    pure.subarray(0, 9),
    mixed.subarray(0, 5),
    mixed.subarray(0, 20),
  ]
  for (const bytes of table)
    t.throws(() => decodeAncestry(bytes), RangeError, Buffer.from(bytes).toString('hex'))
  t.end()
})
