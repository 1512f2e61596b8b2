import t from 'tap'
import { FeedHub } from '../../src/changes/hub.ts'
import { put } from '../storage/conformance/edits.ts'
import { ANNA, BERT, bench, FakeClock, FakeDatabase, feedOptions, openVectors, settled } from './helpers.ts'

t.test('one commit wakes a hundred feeds with one request', async (t) => {
  const store = await openVectors()
  const { start, database } = bench(t, store)
  const feeds = []
  for (let i = 0; i < 100; i++) {
    const limit = i % 2 === 0 ? Infinity : 100 + i
    feeds.push(await start({ kind: 'continuous', since: 'now', limit }))
  }
  t.equal(database.requests.length, 100)
  t.equal(database.listeners.size, 1)
  await store.updateDocs([put('d')])
  await settled()
  t.equal(database.requests.length, 101)
  await store.updateDocs([put('d')])
  await settled()
  t.equal(database.requests.length, 102)
  for (const { out } of feeds) t.match(out.text, /^\{"seq":"9-[^\n]*\}\n\{"seq":"10-[^\n]*\}\n$/)
})

t.test('feeds with different options do not share requests', async (t) => {
  const store = await openVectors()
  const { start, database } = bench(t, store)
  await start({ kind: 'continuous', since: 'now' })
  await start({ kind: 'continuous', since: 'now', options: feedOptions({ style: 'all_docs' }) })
  await start({ kind: 'continuous', since: 'now', options: feedOptions({ docIds: ['d'] }) })
  await start({ kind: 'continuous', since: 'now', options: feedOptions({ docIds: ['d'] }) })
  const before = database.requests.length
  await store.updateDocs([put('d')])
  await settled()
  t.equal(database.requests.length - before, 3)
})

t.test('a feed does not use a shared page that is longer than its limit', async (t) => {
  const store = await openVectors()
  const { start } = bench(t, store)
  const all = await start({ kind: 'continuous', since: 'now' })
  const two = await start({ kind: 'continuous', since: 'now', limit: 2 })
  await store.updateDocs(['d', 'e', 'f'].map((id) => put(id)))
  await settled()
  t.equal(all.out.text.match(/"id"/g)?.length, 3)
  t.equal(two.out.text.match(/"id"/g)?.length, 2)
  t.match(two.out.text, /\{"last_seq":"10-[^"]*","pending":1\}\n$/)
})

t.test('only members may share a page', async (t) => {
  const store = await openVectors()
  await store.updateSettings(() => ({ result: null, write: { security: { members: {} } } }))
  const { start } = bench(t, store)
  const bert = await start({ kind: 'continuous', since: 'now' }, () => BERT)
  const anna = await start({ kind: 'continuous', since: 'now' }, () => ANNA)
  // There is no event for this change, so only the page shows it.
  await store.updateSettings(() => ({ result: null, write: { security: { members: { names: ['anna'] } } } }))
  await store.updateDocs([put('d')])
  await settled()
  t.match(anna.out.text, /^\{"seq":"9-/)
  t.match(bert.out.text, /^\{"last_seq":"8-/, 'the feed ended with last_seq, without the row')
  await store.updateSettings(() => ({ result: null, write: { security: { members: { names: ['bert'] } } } }))
  await store.updateDocs([put('d')])
  await settled()
  t.ok(anna.out.ended)
})

t.test('a commit during a page is not missed', async (t) => {
  const store = await openVectors()
  const { start, database } = bench(t, store)
  const { out } = await start({ kind: 'continuous', since: 'now' })
  const original = database.changes.bind(database)
  let writes = 3
  database.changes = async (user, request) => {
    const page = await original(user, request)
    if (writes-- > 0) await store.updateDocs([put('d')])
    return page
  }
  await store.updateDocs([put('d')])
  await settled()
  t.match(out.text, /"seq":"12-[^\n]*\n$/)
})

t.test('feeds check their rights after a change of their account or of all accounts', async (t) => {
  const hub = new FeedHub(new FakeClock())
  const database = new FakeDatabase(await openVectors())
  const subscribers = ['anna', 'bert', 'anna', null].map((account) => hub.join(database, account))
  t.teardown(() => subscribers.map((subscriber) => subscriber.leave()))
  const wakes = subscribers.map((subscriber) => subscriber.wait(8, Infinity))
  const mustCheck = () => subscribers.map((subscriber) => subscriber.takeRevocation())
  hub.recheckAccounts(new Set(['anna', 'carl']))
  t.strictSame(mustCheck(), [true, false, true, false])
  t.strictSame([await wakes[0], await wakes[2]], ['revocation', 'revocation'])
  hub.recheckAccounts('all')
  t.strictSame(mustCheck(), [true, true, true, true])
  t.strictSame([await wakes[1], await wakes[3]], ['revocation', 'revocation'])
})

t.test('many feeds check their rights in several turns, and none sends a page before', async (t) => {
  const hub = new FeedHub(new FakeClock())
  const database = new FakeDatabase(await openVectors())
  const subscribers = Array.from({ length: 350 }, () => hub.join(database, 'anna'))
  t.teardown(() => subscribers.map((subscriber) => subscriber.leave()))
  let woken = 0
  for (const subscriber of subscribers) void subscriber.wait(8, Infinity).then(() => woken++)
  hub.recheckAccounts(new Set(['anna']))
  const steps = [woken]
  while (woken < subscribers.length) {
    await new Promise(setImmediate)
    steps.push(woken)
  }
  t.ok(steps.length > 3, String(steps))
  t.ok(subscribers.every((subscriber) => subscriber.takeRevocation()))
})
