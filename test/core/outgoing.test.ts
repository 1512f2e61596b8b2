import t from 'tap'
import {
  addOutgoing,
  BytesInTransit,
  joinOutgoing,
  outgoingBytes,
  outgoingMemory,
  pieceBytes,
  removeOutgoing,
} from '../../src/core/outgoing.ts'

const KB = 1024
const MB = 1024 * KB

t.test('pieces get smaller by halves as more waits, and are never nothing', async (t) => {
  t.equal(outgoingBytes(), 0)
  const seen = [0, 4, 1, 1, 1, 100].map((more) => {
    addOutgoing(more * MB)
    return pieceBytes(256 * KB) / KB
  })
  t.same(seen, [256, 256, 128, 128, 64, 32])
  t.equal(pieceBytes(16 * KB), 16 * KB, 'those that are small are left')
  removeOutgoing(107 * MB)
  t.equal(outgoingBytes(), 0)
  t.equal(pieceBytes(256 * KB), 256 * KB)
})

t.test('what is held and released comes to nothing, whatever its size', async (t) => {
  for (const bytes of [1, 1023, 1025, 70_001]) {
    addOutgoing(bytes)
    t.ok(outgoingBytes() >= bytes)
    removeOutgoing(bytes)
    t.equal(outgoingBytes(), 0)
  }
})

t.test('what is on its way counts, until it arrives or is lost', async (t) => {
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
  t.equal(outgoingBytes(), 0, 'once')
})

t.test('threads share one count', async (t) => {
  const memory = new SharedArrayBuffer(4)
  joinOutgoing(memory)
  t.equal(outgoingMemory(), memory)
  addOutgoing(MB)
  t.equal(Atomics.load(new Int32Array(memory), 0), 1024)
  removeOutgoing(MB)
})
