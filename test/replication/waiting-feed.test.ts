/** A feed that waits gives up its turn until it has news. */
import t from 'tap'
import { type FeedTurn, FeedTurns } from '../../src/replication/remote/feed-turns.ts'
import type { Query } from '../../src/replication/remote/remote-client.ts'
import { waitingFeed } from '../../src/replication/remote/waiting-feed.ts'

const never = new AbortController().signal
const NEWS = '{"results":[{"id":"a","seq":"8-x","changes":[]}],"last_seq":"8-x"}'
const NONE = '{"results":[],"last_seq":"7-x","pending":0}'

async function read(
  turn: FeedTurn,
  chunks: (signal: AbortSignal) => AsyncIterable<string>,
): Promise<{ readonly text: string; readonly query: Query }> {
  let query: Query = {}
  const open = async (asked: Query, signal: AbortSignal) => {
    query = asked
    const bytes = async function* () {
      for await (const chunk of chunks(signal)) yield Buffer.from(chunk)
    }
    return {
      status: 200,
      type: 'application/json',
      retryAfterMs: null,
      chunks: bytes(),
      text: async () => '',
    }
  }
  let text = ''
  const feed = waitingFeed({ turn, since: '7-x', timeoutMs: 30_000, signal: never, open })
  for await (const chunk of feed) text += Buffer.from(chunk)
  return { text, query }
}

t.test('news comes as it is, in whatever pieces', async (t) => {
  const turns = new FeedTurns(1)
  const { text, query } = await read(await turns.take(never), async function* () {
    yield '{"results":[\n'
    yield '\n\n'
    yield* NEWS.slice(12).match(/.{1,7}/g) ?? []
  })
  t.same(JSON.parse(text), JSON.parse(NEWS))
  t.strictSame(query, { feed: 'longpoll', heartbeat: '10000' })
  t.ok(turns.isIdle)
})

t.test('a turn that is taken away ends in an empty page, but not when there is news', async (t) => {
  const turns = new FeedTurns(1)
  const turn = await turns.take(never)
  const next = turns.take(never)
  const { text } = await read(turn, async function* (signal) {
    yield '{"results":[\n'
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    signal.throwIfAborted()
  })
  t.equal(text, NONE)
  const others = await next
  turns.take(never).then((turn) => turn.end())
  const kept = await read(others, async function* (signal) {
    yield NEWS.slice(0, 50)
    await new Promise((resolve) => setTimeout(resolve, 200))
    t.notOk(signal.aborted)
    yield NEWS.slice(50)
  })
  t.equal(kept.text, NEWS)
})

t.test('endless heartbeats take no memory, and failures pass through', async (t) => {
  const turns = new FeedTurns(1)
  const { text } = await read(await turns.take(never), async function* () {
    yield '{"results":['
    for (;;) yield '\n'.repeat(500)
  })
  t.equal(text, NONE)
  const broken = async function* () {
    yield '{'
    throw new Error('broken')
  }
  await t.rejects(read(await turns.take(never), broken), /broken/)
  t.ok(turns.isIdle)
})
