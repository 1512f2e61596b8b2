/** The keyed hash of sequence tokens. */
import t from 'tap'
import { codeKey, codeOf, halfSipHash } from '../../src/storage/token-code.ts'

t.test('the hash is that of the reference', async (t) => {
  // The key 00 01 ... 07, and the same as the eight bytes that are hashed.
  const bytes = Buffer.alloc(4)
  bytes.writeInt32LE(halfSipHash([0x03020100, 0x07060504], 0x03020100, 0x07060504))
  t.equal(bytes.toString('hex'), 'd0b8848f')
})

t.test('codes of numbers, keys and epochs differ, also beyond 32 bits', async (t) => {
  const key = codeKey('secret', 'epoch')
  const numbers = [0, 1, 2 ** 31, 2 ** 32, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER]
  const codes = numbers.map((seq) => codeOf(key, seq))
  for (const code of codes) t.match(code, /^[\w-]{5}$/)
  const others = [codeOf(codeKey('secrets', 'epoch'), 1), codeOf(codeKey('secret', 'epochs'), 1)]
  t.equal(new Set([...codes, ...others]).size, 8)
  t.equal(codeOf(codeKey('secret', 'epoch'), 1), codes[1])
})

t.test('codes stay the same, since clients keep their tokens', async (t) => {
  const key = codeKey('secret', 'epoch')
  const codes = [0, 1, 2 ** 32, Number.MAX_SAFE_INTEGER].map((seq) => codeOf(key, seq))
  t.same(codes, ['MkE0Z', 'bOiyM', '_Zu6b', 'zWzvZ'])
})
