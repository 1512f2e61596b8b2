import t from 'tap'
import type { FeedRequest } from '../../src/changes/changes-feed.ts'
import { PAGE_ROWS } from '../../src/changes/rows.ts'
import { CouchError } from '../../src/core/errors.ts'
import { sequenceToken } from '../../src/storage/sequence.ts'
import { put } from '../storage/conformance/edits.ts'
import { rejectsWith } from '../storage/conformance/setup.ts'
import {
  ANNA,
  BERT,
  bench,
  type FakeOutput,
  feedOptions,
  numberOf,
  openStore,
  openVectors,
  settled,
} from './helpers.ts'

interface Answer {
  readonly results: readonly { readonly id: string; readonly seq: string | null }[]
  readonly last_seq: string
  readonly pending: number
}

function answerOf(out: FakeOutput) {
  const { results, last_seq, pending } = JSON.parse(out.text) as Answer
  return { seqs: results.map(({ seq }) => numberOf(seq)), last: numberOf(last_seq), pending }
}

/** The lines of a continuous feed: sequence numbers, '' for blank lines, and the last line. */
function linesOf(out: FakeOutput): unknown[] {
  const lines = out.text.split('\n').slice(0, -1)
  return lines.map((line) => {
    if (line === '') return ''
    const { seq, last_seq, pending } = JSON.parse(line) as { seq: string } & Partial<Answer>
    return last_seq === undefined ? numberOf(seq) : { last: numberOf(last_seq), pending }
  })
}

t.test('normal feeds answer as in protocol.md 19.5', async (t) => {
  const { start } = bench(t, await openVectors())
  const vectors: [request: Partial<FeedRequest>, seqs: (number | null)[], last: number, pending: number][] = [
    [{}, [6, 7, 8], 8, 0],
    [{ limit: 1 }, [6], 6, 2],
    [{ limit: 0 }, [], 0, 3],
    [{ since: 'now' }, [], 8, 0],
    [{ options: feedOptions({ descending: true }) }, [8, 7, 6], 6, 0],
    [{ options: feedOptions({ descending: true }), limit: 1 }, [8], 8, 2],
    [{ options: feedOptions({ descending: true }), limit: 0 }, [], 8, 3],
    [{ options: feedOptions({ seqInterval: 3 }) }, [null, 7, null], 8, 0],
    [{ heartbeat: 1000 }, [6, 7, 8], 8, 0],
  ]
  for (const [request, seqs, last, pending] of vectors) {
    const { out, done } = await start(request)
    await done
    t.same(answerOf(out), { seqs, last, pending }, JSON.stringify(request))
    t.ok(out.ended)
  }
})

t.test('the bytes around the rows are those of protocol.md 5.3', async (t) => {
  const store = await openVectors()
  const { epochs } = await store.view()
  const token = (seq: number) => sequenceToken(epochs, seq)
  const { start } = bench(t, store)
  const empty = await start({ since: 'now' })
  t.equal(empty.out.text, `{"results":[\n\n],\n"last_seq":"${token(8)}","pending":0}\n\n`)
  const { out } = await start()
  t.match(
    out.text,
    /^\{"results":\[\n\{"seq":.*\},\r\n\{.*\},\r\n\{.*\}\n\],\n"last_seq":"8-[^"]*","pending":0\}\n\n$/,
  )
  const continuous = await start({ kind: 'continuous', timeout: 0, since: 'now' })
  t.equal(continuous.out.text, `{"last_seq":"${token(8)}","pending":0}\n`)
  const events = await start({ kind: 'eventsource', limit: 1 })
  t.match(events.out.text, /^data: \{"seq":"6-[^\n]*\}\nid: "6-[^"]*"\n\n$/)
  t.ok(events.out.ended)
})

t.test('a longpoll with changes answers at once with all of them', async (t) => {
  const { start } = bench(t, await openVectors())
  const { out } = await start({ kind: 'longpoll' })
  t.same(answerOf(out), { seqs: [6, 7, 8], last: 8, pending: 0 })
})

t.test('a longpoll at the tip waits for a change, its timeout or 90 seconds', async (t) => {
  const store = await openVectors()
  const { start, clock } = bench(t, store)
  const changed = await start({ kind: 'longpoll', since: 'now' })
  t.equal(changed.out.text, '{"results":[\n', 'the first bytes are sent at once')
  const late = await start({ kind: 'longpoll', since: 'now', timeout: 10 })
  await clock.pass(9)
  t.notOk(late.out.ended)
  await clock.pass(1)
  t.same(answerOf(late.out), { seqs: [], last: 8, pending: 0 })
  await store.updateDocs([put('d')])
  await settled()
  t.same(answerOf(changed.out), { seqs: [9], last: 9, pending: 0 })
  const beating = await start({ kind: 'longpoll', since: 'now', heartbeat: 10_000, timeout: 10 })
  await clock.pass(89_999)
  t.notOk(beating.out.ended)
  t.equal(beating.out.text, `{"results":[\n${'\n'.repeat(8)}`)
  await clock.pass(1)
  t.same(answerOf(beating.out), { seqs: [], last: 9, pending: 0 })
})

t.test('a longpoll without heartbeat and timeout ends after 60 seconds', async (t) => {
  const { start, clock } = bench(t, await openVectors())
  const { out } = await start({ kind: 'longpoll', since: 'now' })
  await clock.pass(59_999)
  t.notOk(out.ended)
  t.equal(out.text, '{"results":[\n\n\n', 'white space after 25 and 50 seconds')
  await clock.pass(1)
  t.same(answerOf(out), { seqs: [], last: 8, pending: 0 })
})

t.test('a longpoll with limit=0 waits for its timeout even if there are changes', async (t) => {
  const store = await openVectors()
  const { start, clock, database } = bench(t, store)
  const { out } = await start({ kind: 'longpoll', limit: 0, timeout: 100 })
  await store.updateDocs([put('d')])
  await settled()
  t.equal(database.requests.length, 1)
  t.notOk(out.ended)
  await clock.pass(100)
  t.same(answerOf(out), { seqs: [], last: 0, pending: 3 })
})

t.test('a longpoll keeps waiting if no change passes its filter', async (t) => {
  const store = await openVectors()
  const { start } = bench(t, store)
  const { out } = await start({ kind: 'longpoll', since: 'now', options: feedOptions({ docIds: ['x'] }) })
  await store.updateDocs([put('d')])
  await settled()
  t.notOk(out.ended)
  await store.updateDocs([put('x')])
  await settled()
  t.same(answerOf(out), { seqs: [10], last: 10, pending: 0 })
})

t.test('a continuous feed ends with last_seq at its limit or timeout', async (t) => {
  const store = await openVectors()
  const { start, clock } = bench(t, store)
  const limited = await start({ kind: 'continuous', limit: 3 })
  t.same(linesOf(limited.out), [6, 7, 8, { last: 8, pending: 0 }])
  const idle = await start({ kind: 'continuous', limit: 4, timeout: 600 })
  t.same(linesOf(idle.out), [6, 7, 8])
  await clock.pass(600)
  t.same(linesOf(idle.out), [6, 7, 8, { last: 8, pending: 0 }])
  const one = await start({ kind: 'continuous', limit: 1, timeout: 600 })
  t.same(linesOf(one.out), [6, { last: 6, pending: 2 }])
  const none = await start({ kind: 'continuous', limit: 0 })
  t.same(linesOf(none.out), [{ last: 0, pending: 3 }])
  const now = await start({ kind: 'continuous', timeout: 0 })
  t.same(linesOf(now.out), [6, 7, 8, { last: 8, pending: 0 }])
})

t.test('the timeout starts again with each change', async (t) => {
  const store = await openVectors()
  const { start, clock } = bench(t, store)
  const { out } = await start({ kind: 'continuous', since: 'now', timeout: 1000 })
  for (const id of ['d', 'e', 'f']) {
    await clock.pass(900)
    await store.updateDocs([put(id)])
    await settled()
  }
  t.same(linesOf(out), [9, 10, 11])
  await clock.pass(1000)
  t.same(linesOf(out), [9, 10, 11, { last: 11, pending: 0 }])
})

t.test('a continuous feed sends blank lines only if the client asked for a heartbeat', async (t) => {
  const { start, clock } = bench(t, await openVectors())
  const quiet = await start({ kind: 'continuous', since: 'now' })
  const beating = await start({ kind: 'continuous', since: 'now', heartbeat: 10_000 })
  await clock.pass(59_999)
  t.equal(quiet.out.text, '')
  t.equal(beating.out.text, '\n'.repeat(5))
  await clock.pass(120_000)
  t.ok(quiet.out.ended)
  t.notOk(beating.out.ended)
})

t.test('a feed sends no heartbeat while its answer ends', async (t) => {
  const store = await openVectors()
  const { start, clock } = bench(t, store)
  const { out, done } = await start({ kind: 'longpoll', since: 'now', heartbeat: 1000 })
  const { promise, resolve } = Promise.withResolvers<void>()
  out.endGate = promise
  await store.updateDocs([put('d')])
  await settled()
  t.ok(out.ended)
  const { text } = out
  await clock.pass(5000)
  t.equal(out.text, text)
  resolve()
  await done
})

t.test('an eventsource feed sends comments or heartbeats', async (t) => {
  const { start, clock } = bench(t, await openVectors())
  const plain = await start({ kind: 'eventsource', since: 'now' })
  const beating = await start({ kind: 'eventsource', since: 'now', heartbeat: 20_000 })
  t.equal(plain.out.text, ':\n\n', 'the first bytes are sent at once')
  await clock.pass(25_000)
  t.equal(plain.out.text, ':\n\n:\n\n')
  t.equal(beating.out.text, ':\n\nevent: heartbeat\ndata: \n\n')
  await clock.pass(35_000)
  t.ok(plain.out.ended, 'no change for 60 seconds')
  t.equal(plain.out.text, ':\n\n:\n\n:\n\n', 'the feed ends without a last record')
})

t.test('a normal feed sends white space while it waits for a slow page, and is complete', async (t) => {
  const store = await openStore()
  await store.updateDocs(Array.from({ length: PAGE_ROWS + 1 }, (_, i) => put(`d${i}`)))
  const { start, clock, database } = bench(t, store)
  let open = () => {}
  const gate = new Promise<void>((resolve) => {
    open = resolve
  })
  const changes = database.changes.bind(database)
  database.changes = async (user, request) => {
    if (typeof request.since === 'number') await gate
    return changes(user, request)
  }
  const { out, done } = await start()
  await clock.pass(200_000)
  t.notOk(out.ended)
  t.match(out.text, /\n{8}$/)
  open()
  await done
  t.equal(answerOf(out).seqs.length, PAGE_ROWS + 1)
})

t.test('descending feeds end when they have caught up', async (t) => {
  const { start } = bench(t, await openVectors())
  for (const kind of ['longpoll', 'continuous', 'eventsource'] as const) {
    const { out } = await start({ kind, options: feedOptions({ descending: true }), heartbeat: 1000 })
    t.ok(out.ended, kind)
  }
})

t.test('feeds end with last_seq when their database is deleted', async (t) => {
  const { start, database } = bench(t, await openVectors())
  const longpoll = await start({ kind: 'longpoll', since: 'now', heartbeat: 1000 })
  const continuous = await start({ kind: 'continuous', since: 'now' })
  database.emit({ type: 'closed' })
  const late = await start({ kind: 'continuous', since: 'now' })
  t.same(answerOf(longpoll.out), { seqs: [], last: 8, pending: 0 })
  t.same(linesOf(continuous.out), [{ last: 8, pending: 0 }])
  t.ok(late.out.ended, 'so does a feed that starts before the others have ended')
})

t.test('feeds end with last_seq when the server stops, even those of clients that reconnect', async (t) => {
  const { start, hub } = bench(t, await openVectors())
  const { out } = await start({ kind: 'longpoll', since: 'now', heartbeat: 1000 })
  hub.close()
  await settled()
  t.same(answerOf(out), { seqs: [], last: 8, pending: 0 })
  const back = await start({ kind: 'longpoll', since: 'now', heartbeat: 1000 })
  t.same(answerOf(back.out), { seqs: [], last: 8, pending: 0 })
  const behind = await start({ kind: 'longpoll', since: '7' })
  t.same(answerOf(behind.out), { seqs: [8], last: 8, pending: 0 })
})

t.test('a feed ends with last_seq when a page fails: database deleted, store not reached', async (t) => {
  for (const code of ['no_database', 'store_unavailable'] as const) {
    const { start, database } = bench(t, await openVectors())
    const { out } = await start({ kind: 'continuous', since: 'now' })
    database.gate = Promise.reject(new CouchError(code))
    database.gate.catch(() => {})
    database.emit({ type: 'committed', updateSeq: 9 })
    await settled()
    t.same(linesOf(out), [{ last: 8, pending: 0 }], code)
  }
})

t.test('a fault breaks the connection, so the answer does not look complete', async (t) => {
  const { start, database } = bench(t, await openVectors())
  const { out } = await start({ kind: 'continuous', since: 'now' })
  database.gate = Promise.reject(new Error('disk'))
  database.gate.catch(() => {})
  database.emit({ type: 'committed', updateSeq: 9 })
  await settled()
  t.match(out.failure, { message: 'disk' })
  t.notOk(out.ended)
})

t.test('a feed ends at once when its client disconnects', async (t) => {
  const { start, hub, clock } = bench(t, await openVectors())
  const { out, done } = await start({ kind: 'continuous', since: 'now', heartbeat: 1000 })
  out.disconnect()
  await done
  t.equal(hub.watched, 0)
  t.equal(clock.timers, 0)
  t.equal(out.text, '')
})

t.test('a feed ends when its reader loses the rights, and other feeds continue', async (t) => {
  const store = await openVectors()
  await store.updateSettings(() => ({ result: null, write: { security: { members: {} } } }))
  const { start, database } = bench(t, store)
  const anna = await start({ kind: 'longpoll', since: 'now', heartbeat: 1000 }, () => ANNA)
  const bert = await start({ kind: 'continuous', since: 'now', heartbeat: 1000 }, () => BERT)
  await database.secure({ members: { names: ['anna'] } })
  await settled()
  t.notOk(anna.out.ended)
  t.same(linesOf(bert.out), [{ last: 8, pending: 0 }])
  await store.updateDocs([put('d')])
  await settled()
  t.same(answerOf(anna.out), { seqs: [9], last: 9, pending: 0 })
})

t.test('a feed ends when its account or its admin role is gone', async (t) => {
  const { start, hub } = bench(t, await openVectors())
  let roles = ['_admin']
  const party = await start({ kind: 'continuous', since: 'now', heartbeat: 1000 }, () => ({
    name: null,
    roles,
  }))
  const gone = await start({ kind: 'continuous', since: 'now', heartbeat: 1000 }, () => {
    if (roles.length === 0) throw new CouchError('wrong_credentials')
    return ANNA_ADMIN
  })
  hub.recheckAccounts('all')
  await settled()
  t.same([party.out.text, gone.out.text], ['', ''])
  roles = []
  hub.recheckAccounts('all')
  await settled()
  t.same(linesOf(party.out), [{ last: 8, pending: 0 }])
  t.same(linesOf(gone.out), [{ last: 8, pending: 0 }])
})

const ANNA_ADMIN = { name: 'anna', roles: ['_admin'] }

t.test('a request is refused before the first byte', async (t) => {
  const { start, hub } = bench(t, await openVectors())
  await rejectsWith(
    t,
    start({ kind: 'longpoll' }, () => ANNA),
    'forbidden',
  )
  await rejectsWith(t, start({ kind: 'longpoll', since: 'rubbish' }), 'bad_request')
  t.equal(hub.watched, 0)
})

t.test('a slow reader delays only its own feed, which sends no heartbeats in the meantime', async (t) => {
  const store = await openVectors()
  const { start, clock } = bench(t, store)
  const slow = await start({ kind: 'continuous', since: 'now', heartbeat: 1000 })
  const quick = await start({ kind: 'continuous', since: 'now', heartbeat: 100_000 })
  let drain = () => {}
  slow.out.gate = new Promise((resolve) => {
    drain = resolve
  })
  await store.updateDocs([put('d')])
  await settled()
  await store.updateDocs([put('e')])
  await settled()
  await clock.pass(10_000)
  t.same(linesOf(quick.out), [9, 10])
  t.same(linesOf(slow.out), [9])
  drain()
  await settled()
  t.same(linesOf(slow.out), [9, 10])
})
