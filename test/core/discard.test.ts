import t from 'tap'
import { discard, share } from '../../src/core/outgoing.ts'

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

t.test('what shares its memory, or is small, stays', async (t) => {
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

t.test('what is shared goes with its last reader', async (t) => {
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
