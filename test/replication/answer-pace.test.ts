/** An answer that drips ends, and one that waits, is read slowly or is slow in bursts does not. */
import t from 'tap'
import { AnswerPace } from '../../src/replication/remote/answer-pace.ts'

const WINDOW_MS = 30_000
const HEAD = '{"results":[\n'

/** A chunk, and how long its reader waits for it, in s. */
type Sent = readonly [seconds: number, text: string]

/** @param reading how long the reader takes for each chunk, in s */
async function read(sent: Iterable<Sent>, { isFeed = false, reading = 0 } = {}): Promise<number> {
  let now = 0
  const pace = new AnswerPace({ windowMs: WINDOW_MS, isFeed, now: () => now })
  const chunks = async function* () {
    for (const [seconds, text] of sent) {
      now += seconds * 1000
      yield Buffer.from(text)
    }
  }
  let bytes = 0
  for await (const chunk of pace.watch(chunks())) {
    bytes += chunk.length
    now += reading * 1000
  }
  return bytes
}

function* repeated(count: number, ...sent: readonly Sent[]): Generator<Sent> {
  for (let n = 0; n < count; n++) yield* sent
}

const slow = { name: 'PeerError', fault: 'timeout', message: /less than 30 bytes a second/ }

t.test('an answer that drips has too little in one of its windows', async (t) => {
  for (const seconds of [0.1, 5, 29]) await t.rejects(read(repeated(1000, [seconds, 'x'])), slow)
  const begun: Sent[] = [[0, 'x'.repeat(1_000_000)]]
  await t.rejects(read([...begun, ...repeated(1000, [5, 'x'])]), slow, 'after a fast beginning')
  await t.rejects(read(repeated(1000, [5, '\n'])), slow, 'heartbeats of an answer that does not wait')
})

t.test('the reader of a slow answer has all of it', async (t) => {
  t.equal(await read(repeated(1000, [1, 'x'.repeat(31)])), 31_000)
  t.equal(await read(repeated(100, [29, 'x'.repeat(1490)])), 149_000, 'the pieces of a filtered feed')
  t.equal(await read(repeated(1000, [0.02, 'x']), { reading: 5 }), 1000, 'a slowly read answer is not cut')
})

t.test('a feed may wait for news, but not drip them', async (t) => {
  const news = '{"id":"a","seq":"1-x","changes":[{"rev":"1-y"}]}'
  const waits: Sent[] = [[0, HEAD], ...repeated(1000, [10, '\n'])]
  const end: Sent = [10, `${news}\n],"last_seq":"1-x"}`]
  t.ok(await read([...waits, end], { isFeed: true }))
  await t.rejects(read([...waits, end, ...repeated(100, [10, '\n'])], { isFeed: true }), slow)
  await t.rejects(read([...waits, ...repeated(1000, [10, ' x'])], { isFeed: true }), slow)
})

t.test('empty blocks of gzip, which bring nothing to the reader, end an answer', async (t) => {
  let now = 0
  const pace = new AnswerPace({ windowMs: WINDOW_MS, isFeed: false, now: () => now })
  const never = pace.watch(
    (async function* () {
      yield await new Promise<Uint8Array>(() => undefined)
    })(),
  )
  void never.next()
  const drip = async () => {
    for (let n = 0; n < 10; n++) {
      now += 5000
      pace.check()
    }
  }
  await t.rejects(drip, slow)
})
