import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { FeedRequest } from '../../src/changes/changes-feed.ts'
import type { ChangesFilter } from '../../src/changes/rows.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { put, remove } from '../storage/conformance/edits.ts'
import { rejectsWith } from '../storage/conformance/setup.ts'
import {
  ANNA,
  BERT,
  type Bench,
  bench,
  type FakeOutput,
  FILTER_CONTEXT,
  feedOptions,
  numberOf,
  openStore,
  settled,
} from './helpers.ts'

const SYNC: ChangesFilter = {
  kind: 'function',
  ddoc: '_design/mobile',
  name: 'sync',
  request: '{"uuid":"1"}',
}
const NOTES: ChangesFilter = { kind: 'selector', selector: '{"_id":{"$beginsWith":"note:"}}' }
const MAPPED: ChangesFilter = { kind: 'view', ddoc: '_design/mobile', name: 'notes' }

const DESIGN = {
  filters: { sync: "(doc) => doc._id.indexOf('file:') === -1 && doc._id[0] !== '_'" },
  views: { notes: { map: "(doc) => { if (doc._id.startsWith('note:')) emit(null) }" } },
}

/** A store with the design document of the mobile filter at 1, followed by this many files. */
async function openFiles(files: number): Promise<DatabaseStore> {
  const store = await openStore()
  await store.updateDocs([put('_design/mobile', JSON.stringify(DESIGN))])
  await store.updateDocs(Array.from({ length: files }, (_, i) => put(`file:${i}`)))
  return store
}

/** The store, with pages of a selector feed that scan at most 100 documents. */
function withShortPages(store: DatabaseStore): DatabaseStore {
  const readChanges = store.readChanges.bind(store) as DatabaseStore['readChanges']
  store.readChanges = (range, paging, read) => readChanges(range, { ...paging, limit: 100 }, read)
  return store
}

function requestOf(kind: FeedRequest['kind'], filter: ChangesFilter, changes: Partial<FeedRequest> = {}) {
  return { kind, options: feedOptions({ filter }), ...changes }
}

function answerOf(out: FakeOutput) {
  const { results, last_seq, pending } = JSON.parse(out.text) as {
    results: { id: string }[]
    last_seq: string
    pending: number
  }
  return { ids: results.map(({ id }) => id), last: numberOf(last_seq), pending }
}

function idsIn(text: string): string[] {
  return [...text.matchAll(/"id":"([^"]*)"/g)].map(([, id]) => id ?? '')
}

/** The clock of these tests stands still. */
async function untilTurn(isSo: () => boolean): Promise<void> {
  for (let turns = 0; turns < 20_000 && !isSo(); turns++) await turn()
}

for (const filter of [SYNC, NOTES, MAPPED]) {
  t.test(`feeds of all kinds work with a ${filter.kind} filter`, async (t) => {
    const store = await openFiles(600)
    const { start } = bench(t, store)
    const normal = await start(requestOf('normal', filter))
    await normal.done
    t.same(answerOf(normal.out), { ids: [], last: 601, pending: 0 }, 'filtered changes advance last_seq')
    const longpoll = await start(requestOf('longpoll', filter))
    const continuous = await start(requestOf('continuous', filter, { heartbeat: 1000 }))
    const events = await start(requestOf('eventsource', filter, { heartbeat: 1000 }))
    await untilTurn(() => longpoll.out.text !== '')
    await store.updateDocs([put('file:x'), remove('file:1')])
    await settled()
    t.notOk(longpoll.out.ended, 'a longpoll keeps waiting')
    await store.updateDocs([put('note:1')])
    await untilTurn(() => longpoll.out.ended && events.out.text.includes('note:1'))
    t.same(answerOf(longpoll.out), { ids: ['note:1'], last: 604, pending: 0 })
    await store.updateDocs([remove('note:1')])
    await untilTurn(() => idsIn(continuous.out.text).length === 2 && idsIn(events.out.text).length === 2)
    t.same(idsIn(continuous.out.text), ['note:1', 'note:1'])
    t.same(idsIn(events.out.text), ['note:1', 'note:1'])
    const limited = await start(requestOf('normal', filter, { limit: 1 }))
    await limited.done
    t.same(answerOf(limited.out), { ids: ['note:1'], last: 605, pending: 0 })
  })
}

t.test('a longpoll that still scans ends after 90 seconds at its position', async (t) => {
  const store = withShortPages(await openFiles(2000))
  const { start, clock, database } = bench(t, store)
  const changes = database.changes.bind(database)
  database.changes = async (user, request) => {
    const page = await changes(user, request)
    await clock.pass(40_000)
    return page
  }
  const { out, done } = await start(requestOf('longpoll', NOTES, { heartbeat: 10_000 }))
  await untilTurn(() => out.ended)
  await done
  const { ids, last, pending } = answerOf(out)
  t.same(ids, [])
  t.equal((last ?? 0) + pending, 2001)
  t.ok((last ?? 0) > 0 && pending > 0)
  t.match(out.text, /^\{"results":\[\n\n+/, 'it sends white space while it scans')
})

/** Makes the filter function take seven seconds per document, on the fake clock, and pass none. */
function slowDown(t: Test, { database, clock }: Bench): void {
  const filter = async (_fn: unknown, docs: readonly string[]) => {
    await clock.pass(docs.length * 7000)
    return docs.map(() => false)
  }
  database.functionContext = { ...FILTER_CONTEXT, sandbox: { ...FILTER_CONTEXT.sandbox, filter } }
  performance.now = () => clock.now()
  t.teardown(() => Reflect.deleteProperty(performance, 'now'))
}

for (const kind of ['normal', 'longpoll', 'continuous', 'eventsource'] as const) {
  t.test(
    `${kind}: a feed with a slow function that passes nothing sends heartbeats and makes progress`,
    async (t) => {
      const feeds = bench(t, await openFiles(49))
      slowDown(t, feeds)
      const { out, done } = await feeds.start(requestOf(kind, SYNC, { heartbeat: 10_000 }))
      await untilTurn(() => out.ended || feeds.database.requests.length > 4)
      const beats = out.text.split(kind === 'eventsource' ? 'event: heartbeat\ndata: \n\n' : '\n').length
      t.ok(beats >= 7, `${beats} beats in 70 seconds`)
      const positions = feeds.database.requests.map(({ since }) => since)
      t.same(positions.slice(0, 2), ['0', 10], 'a page scans ten documents')
      if (kind === 'longpoll') {
        await done
        t.same(answerOf(out), { ids: [], last: 20, pending: 30 }, 'it ends after 90 seconds at its position')
        const again = await feeds.start(requestOf(kind, SYNC, { since: '20' }))
        await again.done
        t.same(answerOf(again.out), { ids: [], last: 40, pending: 10 }, 'the next one continues from there')
      } else t.same(positions.slice(2, 5), [20, 30, 40])
      if (kind === 'continuous') t.match(out.text, /^\n+$/)
    },
  )
}

t.test('scanning does not use up the timeout', async (t) => {
  const store = withShortPages(await openFiles(2000))
  const { start, clock, database } = bench(t, store)
  const changes = database.changes.bind(database)
  let atTip = false
  database.changes = async (user, request) => {
    await clock.pass(400)
    const page = await changes(user, request)
    atTip = page.atTip
    return page
  }
  const { out } = await start(requestOf('continuous', NOTES, { timeout: 1000 }))
  await untilTurn(() => atTip)
  await settled()
  await store.updateDocs([put('note:1')])
  await untilTurn(() => out.text !== '')
  t.same(idsIn(out.text), ['note:1'])
})

t.test('a disconnected reader ends the scan between two pages', async (t) => {
  const store = withShortPages(await openFiles(3000))
  const { start, database } = bench(t, store)
  const { out, done } = await start(requestOf('longpoll', NOTES))
  await untilTurn(() => database.requests.length > 1)
  out.disconnect()
  await done
  const requests = database.requests.length
  await settled()
  t.ok(Number(database.requests.at(-1)?.since) < 3000 && database.requests.length === requests)
  t.notOk(out.ended)
})

t.test('a feed with a long scan does not delay another', async (t) => {
  const store = await openFiles(5000)
  const { start, database } = bench(t, store)
  let batches = 0
  let quick = 0
  const sandbox = {
    ...FILTER_CONTEXT.sandbox,
    filter: async (_fn: unknown, docs: readonly string[]) => {
      batches += 1
      await turn()
      return docs.map(() => false)
    },
  }
  database.functionContext = { ...FILTER_CONTEXT, sandbox }
  const slow = await start(requestOf('longpoll', SYNC, { heartbeat: 1000 }))
  for (let round = 0; round < 5; round++) {
    const other = await start({ kind: 'longpoll', since: String(5000 + round) })
    await other.done
    quick += answerOf(other.out).ids.length
    await store.updateDocs([put('file:again')])
  }
  t.ok(quick >= 5)
  await untilTurn(() => batches >= 13)
  t.notOk(slow.out.ended)
})

t.test('a feed breaks if its design document is deleted or its function fails', async (t) => {
  const store = await openFiles(1)
  const { start } = bench(t, store)
  const continuous = await start(requestOf('continuous', SYNC))
  const longpoll = await start(requestOf('longpoll', MAPPED))
  const filters = { sync: "() => { throw 'no' }" }
  await store.updateDocs([put('_design/mobile', JSON.stringify({ filters }))])
  await untilTurn(() => continuous.out.failure !== undefined && longpoll.out.failure !== undefined)
  t.match(continuous.out.failure, { code: 'function_error' })
  t.match(longpoll.out.failure, { code: 'not_found', reason: 'missing json key: views' })
  t.notOk(continuous.out.ended || longpoll.out.ended)
  await rejectsWith(t, start(requestOf('longpoll', SYNC)), 'function_error')
  await store.updateDocs([remove('_design/mobile')])
  await rejectsWith(t, start(requestOf('longpoll', SYNC)), 'deleted')
})

t.test('feeds share pages if their filters are equal', async (t) => {
  const store = await openFiles(1)
  await store.updateSettings(() => ({ result: null, write: { security: { members: {} } } }))
  const cases: [name: string, filters: ChangesFilter[], pages: number][] = [
    ['equal selectors', [NOTES, NOTES, NOTES], 1],
    ['different selectors', [NOTES, { kind: 'selector', selector: '{"a":1}' }, NOTES], 2],
    ['equal views', [MAPPED, MAPPED, MAPPED], 1],
    ['filter functions are never shared', [SYNC, SYNC, SYNC], 3],
  ]
  for (const [name, filters, pages] of cases) {
    await t.test(name, async (t) => {
      const { start, database } = bench(t, store)
      for (const [i, filter] of filters.entries()) {
        await start(requestOf('continuous', filter, { since: 'now' }), () => (i % 2 === 0 ? ANNA : BERT))
      }
      const before = database.requests.length
      await store.updateDocs([put('note:1')])
      await untilTurn(() => database.requests.length >= before + pages)
      await settled()
      t.equal(database.requests.length - before, pages)
    })
  }
})
