import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  addOutgoing,
  BytesInTransit,
  discard,
  encodeTexts,
  joinOutgoing,
  outgoingBytes,
  outgoingMemory,
  pieceBytes,
  removeOutgoing,
  share,
} from '../../src/core/bytes.ts'
import { escaped, quoted } from '../../src/core/json.ts'

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

t.test('quoted() equals JSON.stringify, and escaped() what is between its quotes', async () => {
  const unit = fc.oneof(
    fc.constantFrom('"', '\\', '\n', '\0', '\x7f', '\u2028', '\ud800', '\udfff'),
    fc.string(),
  )
  fc.assert(
    fc.property(fc.array(unit), (units) => {
      const text = units.join('')
      equal(quoted(text), JSON.stringify(text))
      equal(`"${escaped(text)}"`, JSON.stringify(text))
    }),
    { numRuns: 500 },
  )
})

t.test('every character by itself', async () => {
  for (let code = 0; code <= 0xffff; code++) {
    const text = `a${String.fromCharCode(code)}b`
    equal(quoted(text), JSON.stringify(text))
    equal(`"${escaped(text)}"`, JSON.stringify(text))
  }
})

const KB = 1024
const MB = 1024 * KB

t.test('pieces get smaller by halves as more waits, and are never nothing', async (t) => {
  t.equal(outgoingBytes(), 0)
  const seen = [0, 4, 1, 1, 1, 100].map((more) => {
    addOutgoing(more * MB)
    return pieceBytes(256 * KB) / KB
  })
  t.same(seen, [256, 256, 128, 128, 64, 32])
  t.equal(pieceBytes(16 * KB), 16 * KB, 'small pieces are not shortened')
  removeOutgoing(107 * MB)
  t.equal(outgoingBytes(), 0)
  t.equal(pieceBytes(256 * KB), 256 * KB)
})

t.test('bytes held and released add up to zero, whatever their size', async (t) => {
  for (const bytes of [1, 1023, 1025, 70_001]) {
    addOutgoing(bytes)
    t.ok(outgoingBytes() >= bytes)
    removeOutgoing(bytes)
    t.equal(outgoingBytes(), 0)
  }
})

t.test('unsent bytes count until they arrive or are lost', async (t) => {
  const here = new BytesInTransit()
  const there = new BytesInTransit(here.memory)
  there.send(3 * MB)
  there.send(2 * MB)
  t.equal(outgoingBytes(), 5 * MB)
  here.arrive(2 * MB)
  t.equal(outgoingBytes(), 3 * MB)
  here.lose()
  t.equal(outgoingBytes(), 0)
  here.lose()
  t.equal(outgoingBytes(), 0, 'the bytes are subtracted once')
})

t.test('threads share one count', async (t) => {
  const memory = new SharedArrayBuffer(4)
  joinOutgoing(memory)
  t.equal(outgoingMemory(), memory)
  addOutgoing(MB)
  t.equal(Atomics.load(new Int32Array(memory), 0), 1024)
  removeOutgoing(MB)
})

t.test('memory comes back at once', async (t) => {
  const before = process.memoryUsage().arrayBuffers
  let most = 0
  for (let i = 0; i < 200; i++) {
    const bytes = new Uint8Array(1024 * 1024).fill(i)
    discard(bytes)
    t.equal(bytes.length, 0)
    most = Math.max(most, process.memoryUsage().arrayBuffers - before)
  }
  t.ok(most < 4 * 1024 * 1024, `${most} bytes more at the most`)
})

t.test('buffers that are small or share memory are not discarded', async (t) => {
  const whole = new Uint8Array(64 * 1024)
  const half = whole.subarray(0, 32 * 1024)
  const small = new Uint8Array(100)
  const pooled = Buffer.from('settee')
  const shared = new Uint8Array(new SharedArrayBuffer(64 * 1024))
  for (const bytes of [half, small, pooled, shared]) {
    const { length } = bytes
    discard(bytes)
    t.equal(bytes.length, length)
  }
  t.equal(whole.length, 64 * 1024)
})

t.test('a shared buffer is discarded after its last reader', async (t) => {
  const bytes = new Uint8Array(64 * 1024)
  share(bytes, 3)
  discard(bytes)
  discard(bytes)
  t.equal(bytes.length, 64 * 1024)
  discard(bytes)
  t.equal(bytes.length, 0)
  const alone = new Uint8Array(64 * 1024)
  share(alone, 1)
  discard(alone)
  t.equal(alone.length, 0)
})
