/** Batches of messages, bytes and errors between threads, and flow control of streams. */
import { setImmediate as turn } from 'node:timers/promises'
import { MessageChannel, type TransferListItem } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { addOutgoing, removeOutgoing } from '../../src/core/bytes.ts'
import { CouchError, packError, unpackError } from '../../src/core/errors.ts'
import { ownBytes, packArgs, shortBytesAsTexts, unpackArgs } from '../../src/threads/message-bytes.ts'
import { Batch } from '../../src/threads/rpc.ts'
import { Flow } from '../../src/threads/rpc-stream.ts'

function isWhole(bytes: Uint8Array): boolean {
  return bytes.byteLength === bytes.buffer.byteLength
}

/** A port, and the batches that arrive at its other end. */
function channel(t: Test) {
  const { port1, port2 } = new MessageChannel()
  const batches: unknown[][] = []
  port2.on('message', (messages) => batches.push(messages))
  t.teardown(() => port1.close())
  const arrived = async (count: number) => {
    while (batches.length < count) await turn()
    return batches
  }
  return { batch: new Batch(port1), arrived }
}

const message = (n: number) => ({ type: 't', n })

/** A value that owns its bytes, and its list of transfers. */
function owned<T>(value: T): [own: T, transfers: TransferListItem[]] {
  const transfers: TransferListItem[] = []
  return [ownBytes(value, transfers) as T, transfers]
}

t.test('the messages of one turn are posted together, in order', async (t) => {
  const { batch, arrived } = channel(t)
  batch.post(message(1))
  batch.post(message(2))
  await arrived(1)
  batch.post(message(3))
  t.same(await arrived(2), [[message(1), message(2)], [message(3)]])
})

t.test('a batch can be posted before the turn ends', async (t) => {
  const { batch, arrived } = channel(t)
  batch.post(message(1))
  batch.flush()
  batch.flush()
  batch.post(message(2))
  t.same(await arrived(2), [[message(1)], [message(2)]])
})

t.test('a batch has 16 messages at most, so that the other thread begins earlier', async (t) => {
  const { batch, arrived } = channel(t)
  for (let n = 1; n <= 40; n++) batch.post(message(n))
  const batches = await arrived(3)
  t.same(
    batches.map(({ length }) => length),
    [16, 16, 8],
  )
  t.same(
    batches.flat(),
    Array.from({ length: 40 }, (_, n) => message(n + 1)),
  )
})

t.test('small Buffers, which share Node’s pool, are copied and never detached', async (t) => {
  const pooled = Buffer.from('pooled')
  const neighbour = Buffer.from('neighbour')
  t.notOk(isWhole(pooled))
  const { batch, arrived } = channel(t)
  const [own, transfers] = owned({ body: { bytes: pooled }, bytes: pooled })
  batch.post({ type: 't', own }, transfers)
  t.match(await arrived(1), [[{ own: { bytes: new Uint8Array(Buffer.from('pooled')) } }]])
  t.equal(pooled.toString(), 'pooled')
  t.equal(neighbour.toString(), 'neighbour')
  t.equal(Buffer.from('after').toString(), 'after', 'the pool still works')
})

t.test('bytes that own their memory are transferred', async (t) => {
  const large = Buffer.alloc(100_000, 'x')
  const { batch, arrived } = channel(t)
  const [own, transfers] = owned(large)
  t.notOk(Buffer.isBuffer(own))
  batch.post({ type: 't', own }, transfers)
  const [[message]] = (await arrived(1)) as [[{ own: Uint8Array }]]
  t.equal(message.own.length, 100_000)
  t.equal(large.length, 0, 'nothing was copied')
})

t.test('only the used part of a larger buffer is copied', async (t) => {
  const whole = new Uint8Array(1000).fill(7)
  const [own] = owned(whole.subarray(10, 20))
  t.ok(isWhole(own))
  t.same(own, new Uint8Array(10).fill(7))
})

t.test('the same memory can be sent twice in one turn', async (t) => {
  const bytes = new Uint8Array(10_000).fill(1)
  const { batch, arrived } = channel(t)
  const [own, transfers] = owned({ a: bytes, b: bytes })
  batch.post({ type: 't', own }, transfers)
  batch.post({ type: 't', own }, transfers)
  const [messages] = (await arrived(1)) as { own: { a: Uint8Array; b: Uint8Array } }[][]
  for (const { own: got } of messages ?? []) t.same([got.a.length, got.b.length], [10_000, 10_000])
})

t.test('nested byte arrays and byte arrays in lists are copied', async (t) => {
  const deep = Buffer.alloc(10_000, 'd')
  const listed = Buffer.from('listed')
  const { batch, arrived } = channel(t)
  const value = { at: { bytes: deep }, list: [listed] }
  t.same(owned(value), [value, []])
  t.same(owned(value.list), [value.list, []])
  batch.post({ type: 't', value })
  const [[message]] = (await arrived(1)) as [[{ value: { at: { bytes: Uint8Array } } }]]
  t.equal(message.value.at.bytes.length, 10_000)
  t.equal(deep.length, 10_000)
  t.equal(listed.toString(), 'listed')
})

t.test('values without bytes stay the same', async (t) => {
  for (const value of [null, undefined, 1, 'text', {}, [1], { a: { b: 1 } }]) {
    t.equal(owned(value)[0], value)
    t.equal(shortBytesAsTexts(value), value)
  }
  t.equal(owned(new Uint8Array(0))[0].length, 0)
})

t.test('a CouchError keeps its code and reason, and its cause becomes text', async (t) => {
  const cause = new Error('the disk')
  const packed = structuredClone(packError(new CouchError('forbidden', { why: [1] }, { cause })))
  const error = unpackError(packed)
  t.match(error, { code: 'forbidden', reason: { why: [1] }, status: 403 })
  t.match(error.cause, /^Error: the disk\n/)
  t.equal(unpackError(packError(new CouchError('conflict'))).cause, undefined)
})

t.test('any other thrown value becomes an internal_server_error', async (t) => {
  for (const thrown of [new TypeError('x is no function'), 'text', undefined]) {
    t.equal(unpackError(structuredClone(packError(thrown))).code, 'internal_server_error')
  }
  t.match(unpackError(packError(new TypeError('x is no function'))).cause, /x is no function/)
})

t.test('short bytes become one character each, whatever their value', async (t) => {
  const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte)
  const text = shortBytesAsTexts(bytes.subarray(1))
  t.equal(text, String.fromCharCode(...bytes.subarray(1)))
  t.same(shortBytesAsTexts({ etag: 'é', json: Buffer.from('{"ä":"€"}') }), {
    etag: 'é',
    json: '{"\xc3\xa4":"\xe2\x82\xac"}',
  })
  const long = new Uint8Array(16 * 1024 + 1)
  t.equal(shortBytesAsTexts(long), long)
})

t.test('a short body becomes bytes again at the other end, and no other value does', async (t) => {
  const bytes = Buffer.from('{"ä":"€"}')
  const look = { bytes: 'what a user has named so' }
  for (const args of [[look, { bytes }], [{ bytes }, look], [look], [null, 'text', { rev: '1-a' }]]) {
    const transfers: TransferListItem[] = []
    t.same(unpackArgs(structuredClone(packArgs(args, transfers))), args)
    t.equal(transfers.length, 0)
  }
  const transfers: TransferListItem[] = []
  const long = { bytes: new Uint8Array(17 * 1024) }
  t.same(packArgs([long], transfers), { args: [long], textAt: -1 })
  t.equal(transfers.length, 1)
})

/** The outcome of a call so far. */
function outcomeOf<T>(promise: Promise<T>) {
  const outcome: { value?: T; error?: unknown } = {}
  promise.then(
    (value) => {
      outcome.value = value
    },
    (error) => {
      outcome.error = error
    },
  )
  return outcome
}

/** A flow that has sent its first two chunks, so the reader must pull. */
async function startedFlow(): Promise<Flow> {
  const flow = new Flow()
  await flow.next()
  await flow.next()
  return flow
}

t.test('two chunks are sent at once, and each further one when the reader has consumed one', async (t) => {
  const flow = new Flow()
  t.equal(await flow.next(), true)
  t.equal(await flow.next(), true)
  const third = outcomeOf(flow.next())
  await turn()
  t.same(third, {})
  flow.pull()
  await turn()
  t.same(third, { value: true })
})

t.test('no chunk is sent ahead while many bytes wait for slow readers', async (t) => {
  const crowd = 8 * 1024 * 1024
  addOutgoing(crowd)
  t.teardown(() => removeOutgoing(crowd))
  const flow = new Flow()
  t.equal(await flow.next(), true)
  const second = outcomeOf(flow.next())
  await turn()
  t.same(second, {}, 'the reader still holds the first')
  flow.pull()
  await turn()
  t.same(second, { value: true })
})

t.test('early pulls are remembered', async (t) => {
  const flow = new Flow()
  flow.pull()
  flow.pull()
  for (let n = 0; n < 4; n += 1) t.equal(await flow.next(), true)
  const fifth = outcomeOf(flow.next())
  await turn()
  t.same(fifth, {})
})

t.test('a cancel ends the current wait and every later one', async (t) => {
  const flow = await startedFlow()
  const waiting = flow.next()
  flow.cancel()
  t.equal(await waiting, false)
  t.equal(await flow.next(), false)
  t.equal(flow.isWanted(), false)
})

t.test('a cancel before the start is not lost', async (t) => {
  const flow = new Flow()
  flow.cancel()
  t.equal(flow.isWanted(), false)
  t.equal(await flow.next(), false)
})

t.test('a failure ends the wait with the first error', async (t) => {
  const flow = await startedFlow()
  const waiting = flow.next()
  flow.fail(new Error('first'))
  flow.fail(new Error('second'))
  await t.rejects(waiting, { message: 'first' })
  t.throws(() => flow.isWanted(), { message: 'first' })
})
