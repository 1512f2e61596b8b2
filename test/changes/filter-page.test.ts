import t from 'tap'
import type { FilterFunctionContext } from '../../src/changes/filter-function.ts'
import { changesPage } from '../../src/changes/filtered-page.ts'
import type { ChangesPage, Since } from '../../src/changes/page.ts'
import type { ChangesFilter, ChangesOptions } from '../../src/changes/rows.ts'
import type { UserCtx } from '../../src/core/types.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { attachment, put, remove, write } from '../storage/conformance/edits.ts'
import { rejectsWith } from '../storage/conformance/setup.ts'
import {
  ADMIN,
  ANNA,
  FILTER_CONTEXT,
  type JsonRow,
  numberOf,
  OPTIONS,
  openStore,
  openVectors,
  rowsOf,
} from './helpers.ts'

interface PageOptions extends Partial<ChangesOptions> {
  readonly since?: Since
  readonly limit?: number
  readonly user?: UserCtx
  readonly functionContext?: FilterFunctionContext
}

function pageOf(store: DatabaseStore, options: PageOptions): Promise<ChangesPage> {
  const { since = '0', limit = Infinity, user = ADMIN, functionContext = FILTER_CONTEXT, ...others } = options
  return changesPage(store, user, { since, limit, options: { ...OPTIONS, ...others } }, functionContext)
}

interface Whole extends Omit<ChangesPage, 'bytes'> {
  readonly found: readonly JsonRow[]
}

/** All pages of a feed, since a page on a slow machine may end anywhere. */
async function feedOf(store: DatabaseStore, options: PageOptions): Promise<Whole> {
  const { limit = Infinity } = options
  const page = await pageOf(store, options)
  const found = rowsOf(page)
  if (page.atTip || page.rows >= limit) return { ...page, found }
  const rest = await feedOf(store, { ...options, since: page.lastSeq, limit: limit - page.rows })
  return { ...rest, found: [...found, ...rest.found] }
}

async function idsOf(store: DatabaseStore, options: PageOptions): Promise<string[]> {
  return (await feedOf(store, options)).found.map(({ id }) => id)
}

function selector(wanted: object, fields?: readonly string[]): ChangesFilter {
  return { kind: 'selector', selector: JSON.stringify(wanted), ...(fields && { fields }) }
}

function named(name: string, request: object = { query: {} }): ChangesFilter {
  return { kind: 'function', ddoc: '_design/d', name, request: JSON.stringify(request) }
}

function view(name: string): ChangesFilter {
  return { kind: 'view', ddoc: '_design/d', name }
}

const DESIGN = {
  filters: {
    sync: "function(doc, req) { return doc._id.indexOf('file:') === -1 }",
    all: '(doc) => !!doc',
    alive: '(doc) => !doc._deleted',
    echo: '(doc, req) => { throw {echo: [doc, req]} }',
    odd: '(doc) => doc.n % 2',
    truthy: "(doc) => doc.n === 2 ? 'yes' : ''",
  },
  views: {
    odd: { map: 'doc => { if (doc.n % 2) { emit(doc.n); emit(null) } }' },
    throws: { map: "doc => { emit(1); throw 'x' }" },
  },
}

/** The vectors, a at 6 (n absent), b deleted at 7, c at 8 (n is 5), and the design document at 9. */
async function openDesigned(): Promise<DatabaseStore> {
  const store = await openVectors()
  await store.updateDocs([put('_design/d', JSON.stringify(DESIGN))])
  return store
}

t.test('a page has the passing rows, its end, and the number of rows after it', async (t) => {
  const store = await openDesigned()
  const n5 = selector({ n: 5 })
  const vectors: [
    name: string,
    options: PageOptions,
    seqs: (number | null)[],
    last: number,
    pending: number,
  ][] = [
    ['_design', { filter: { kind: 'design' } }, [9], 9, 0],
    ['_selector', { filter: n5 }, [8], 9, 0],
    ['an empty selector', { filter: selector({}) }, [6, 7, 8, 9], 9, 0],
    ['_selector of tombstones', { filter: selector({ _deleted: true }) }, [7], 9, 0],
    ['_selector of ids', { filter: selector({ _id: { $regex: '^[ab]$' } }) }, [6, 7], 9, 0],
    ['limit counts what passes', { filter: n5, limit: 1 }, [8], 8, 1],
    ['limit above that', { filter: n5, limit: 2 }, [8], 9, 0],
    ['limit=0', { filter: n5, limit: 0 }, [], 0, 4],
    ['nothing passes', { filter: selector({ n: 99 }) }, [], 9, 0],
    ['since', { filter: n5, since: '8' }, [], 9, 0],
    ['descending', { filter: selector({ n: { $exists: false } }), descending: true }, [9, 7, 6], 6, 0],
    ['descending&limit', { filter: n5, descending: true, limit: 1 }, [8], 8, 2],
    ['descending, nothing passes', { filter: selector({ n: 99 }), descending: true }, [], 6, 0],
    ['a function', { filter: named('odd') }, [8], 9, 0],
    ['truthy', { filter: named('truthy') }, [], 9, 0],
    ['a function, limit', { filter: named('all'), limit: 2 }, [6, 7], 7, 2],
    ['a function, since', { filter: named('all'), since: '7' }, [8, 9], 9, 0],
    ['a function, descending&limit', { filter: named('alive'), descending: true, limit: 2 }, [9, 8], 8, 2],
    ['a function, limit=0', { filter: named('all'), limit: 0 }, [], 0, 4],
    ['a view', { filter: view('odd') }, [8], 9, 0],
    ['a view that throws', { filter: view('throws') }, [], 9, 0],
    ['seq_interval', { filter: named('all'), seqInterval: 4, limit: 4 }, [6, null, null, null], 9, 0],
  ]
  for (const [name, options, seqs, last, pending] of vectors) {
    const feed = await feedOf(store, options)
    const found = feed.found.map(({ seq }) => numberOf(seq))
    t.same({ found, last: feed.lastSeq, pending: feed.pending }, { found: seqs, last, pending }, name)
    t.equal(feed.atTip, pending === 0, name)
  }
})

t.test('the mobile filter keeps tombstones of notes and drops those of files', async (t) => {
  const store = await openDesigned()
  await store.updateDocs(['note:1', 'file:1', 'xfile:2', 'note:2'].map((id) => put(id)))
  const from = { filter: named('sync'), since: '9' }
  t.same(await idsOf(store, from), ['note:1', 'note:2'])
  await store.updateDocs(['file:1', 'xfile:2', 'note:1'].map((id) => remove(id)))
  t.same(await idsOf(store, from), ['note:2', 'note:1'])
  const [, tombstone] = (await feedOf(store, { ...from, includeDocs: true })).found
  t.match(tombstone, { deleted: true, doc: { _id: 'note:1', _deleted: true } })
})

t.test('main_only filters by the winner, all_docs by each leaf', async (t) => {
  const store = await openDesigned()
  const leaf = (rev: string, n: number, deleted = false) => ({
    rev,
    deleted,
    ancestry: [rev.slice(2), 'aa'],
    content: { body: `{"n":${n}}`, attachments: [] },
  })
  const revisions = [leaf('2-d', 2), leaf('2-c', 1), leaf('2-b', 3), leaf('2-e', 5, true)]
  await store.updateDocs([write('x', { rev: '2-d', deleted: false, sequenced: true, revisions })])
  for (const filter of [named('odd'), view('odd'), selector({ n: { $in: [1, 3, 5] } })]) {
    const of = async (options: PageOptions) => (await feedOf(store, { since: '9', filter, ...options })).found
    t.same(await of({}), [], 'the winner does not pass')
    const [row] = await of({ style: 'all_docs', includeDocs: true, conflicts: true })
    t.same(row?.changes, [{ rev: '2-c' }, { rev: '2-b' }, { rev: '2-e' }], 'only passing leaves are listed')
    t.match(row?.doc, { _rev: '2-d', _conflicts: ['2-c', '2-b'] }, 'the document is the winner')
  }
  const conflicted = selector({ _conflicts: { $exists: true } })
  t.same(await idsOf(store, { filter: conflicted }), ['x'], 'a selector finds conflicts')
  t.same(await idsOf(store, { filter: conflicted, style: 'all_docs' }), [], 'a single leaf has no conflicts')
})

t.test('long documents are filtered like others, in their order', async (t) => {
  const store = await openStore()
  const long = (n: number) =>
    JSON.stringify({ n, text: 'x'.repeat(200_000), list: [1, [2, null], { a: '\n' }] })
  await store.updateDocs([put('a', '{"n":1}'), put('b', long(1)), put('c', long(2)), put('d', '{"n":1}')])
  const leaf = (rev: string, n: number) => ({
    rev,
    deleted: false,
    ancestry: [rev.slice(2), 'aa'],
    content: { body: long(n), attachments: [] },
  })
  const revisions = [leaf('2-d', 2), leaf('2-c', 1), leaf('2-b', 1)]
  await store.updateDocs([write('e', { rev: '2-d', deleted: false, sequenced: true, revisions })])
  const filter = selector({ n: 1 })
  t.same(await idsOf(store, { filter }), ['a', 'b', 'd'])
  t.same(await idsOf(store, { filter: selector({ list: { $elemMatch: { a: '\n' } } }) }), ['b', 'c', 'e'])
  t.same(await idsOf(store, { filter, descending: true, limit: 2 }), ['d', 'b'])
  const { found } = await feedOf(store, { filter, style: 'all_docs' })
  t.same(found.at(-1)?.changes, [{ rev: '2-c' }, { rev: '2-b' }])
})

t.test('a function sees the document and the request as in CouchDB', async (t) => {
  const store = await openStore()
  await store.updateDocs([put('_design/d', JSON.stringify(DESIGN))])
  const revisions = Array.from({ length: 30 }, (_, i) => `${30 - i}`)
  const file = attachment('x.txt', Buffer.from('hello'))
  const content = { body: '{"n":1}', attachments: [file] }
  const leaves = [
    { rev: '30-30', deleted: false, ancestry: revisions, content },
    {
      rev: '30-3',
      deleted: false,
      ancestry: ['3', ...revisions.slice(1)],
      content: { body: '{}', attachments: [] },
    },
  ]
  await store.updateDocs([write('x', { rev: '30-30', deleted: false, sequenced: true, revisions: leaves })])
  const request = { method: 'GET', query: { a: 'b' } }
  const reason = await pageOf(store, { filter: named('echo', request), since: '1' }).then(
    () => null,
    (error: { reason?: unknown }) => error.reason,
  )
  const [doc, req] = (typeof reason === 'string' ? JSON.parse(reason.slice(reason.indexOf('{'))) : reason)
    .echo
  t.match(doc, { _id: 'x', _rev: '30-30', n: 1, _conflicts: ['30-3'] })
  t.same(doc._revisions, { start: 30, ids: revisions.slice(0, 20) })
  t.match(doc._attachments, { 'x.txt': { stub: true, length: 5 } })
  t.same(req, {
    method: 'GET',
    query: { a: 'b' },
    userCtx: { db: 'notes', name: 'anna', roles: ['_admin'] },
    secObj: { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } },
  })
})

t.test('fields trims the documents of the feed', async (t) => {
  const store = await openVectors()
  const options = { filter: selector({ n: 5 }, ['_id', 'n', 'x']), includeDocs: true }
  t.same((await feedOf(store, options)).found[0]?.doc, { _id: 'c', n: 5 })
  t.equal((await feedOf(store, { ...options, includeDocs: false })).found[0]?.doc, undefined)
})

t.test('an invalid filter is refused before anything is read, even with limit=0', async (t) => {
  const store = await openDesigned()
  const cases: [filter: ChangesFilter, code: string, reason: string | RegExp][] = [
    [selector({ a: { $foo: 1 } }), 'invalid_filter', 'Invalid operator: $foo'],
    [{ kind: 'selector', selector: '[]' }, 'invalid_filter', 'Selector error: expected a JSON object'],
    [{ ...named('all'), ddoc: '_design/x' } as ChangesFilter, 'not_found', 'missing'],
    [{ ...view('odd'), ddoc: '_design/x' } as ChangesFilter, 'not_found', 'missing'],
    [named('none'), 'not_found', 'missing json key: none'],
    [named('toString'), 'not_found', 'missing json key: toString'],
    [view('none'), 'not_found', 'missing json key: none'],
  ]
  for (const [filter, code, reason] of cases) {
    for (const limit of [Infinity, 0]) {
      await t.rejects(
        pageOf(store, { filter, limit }),
        { code, reason },
        `${JSON.stringify(filter)} ${limit}`,
      )
      await rejectsWith(t, pageOf(store, { filter, limit, user: ANNA }), 'forbidden')
    }
  }
  await store.updateDocs([put('_design/d', '{"views":[]}')])
  await t.rejects(pageOf(store, { filter: named('all') }), {
    code: 'not_found',
    reason: 'missing json key: filters',
  })
  await t.rejects(pageOf(store, { filter: view('odd') }), { code: 'not_found', reason: 'json_mismatch' })
  await store.updateDocs([remove('_design/d')])
  await t.rejects(pageOf(store, { filter: named('all') }), { code: 'deleted', reason: 'deleted' })
})

t.test('a function that fails or does not compile is refused', async (t) => {
  const store = await openDesigned()
  const filters = {
    fails: "() => { throw new Error('no') }",
    broken: 'function(doc) {',
    number: 3,
    endless: '() => { for (;;); }',
    greedy: '() => { const a = []; for (;;) a.push(new Array(1000).fill(1)) }',
  }
  await store.updateDocs([put('_design/d', JSON.stringify({ filters }))])
  const functionContext = { ...FILTER_CONTEXT, sandbox: localSandbox({ timeoutMs: 100 }) }
  for (const [name, code] of [
    ['fails', 'function_error'],
    ['broken', 'compilation_error'],
    ['endless', 'function_timeout'],
    ['greedy', /function_memory|function_timeout/],
  ] as const) {
    await t.rejects(pageOf(store, { filter: named(name), functionContext }), { code }, name)
  }
  await t.rejects(pageOf(store, { filter: named('number'), functionContext }))
})

t.test('a changed function applies from the next page on', async (t) => {
  const store = await openDesigned()
  t.same(await idsOf(store, { filter: named('odd') }), ['c'])
  const filters = { odd: '() => true' }
  await store.updateDocs([put('_design/d', JSON.stringify({ filters })), put('e')])
  t.same(await idsOf(store, { filter: named('odd'), since: 8 }), ['_design/d', 'e'])
})

t.test('rights are checked when a function gets the documents', async (t) => {
  const store = await openDesigned()
  await store.updateSettings(() => ({ result: null, write: { security: { members: {} } } }))
  t.same(await idsOf(store, { filter: named('odd'), user: ANNA }), ['c'])
  const readChanges = store.readChanges.bind(store)
  store.readChanges = async (...args) => {
    await store.updateSettings(() => ({
      result: null,
      write: { security: { members: { names: ['bert'] } } },
    }))
    return readChanges(...args)
  }
  let shown = 0
  const { sandbox } = FILTER_CONTEXT
  const watching = {
    ...sandbox,
    filter: async (...args: Parameters<typeof sandbox.filter>) => {
      shown += 1
      return sandbox.filter(...args)
    },
  }
  const functionContext = { ...FILTER_CONTEXT, sandbox: watching }
  await rejectsWith(t, pageOf(store, { filter: named('odd'), user: ANNA, functionContext }), 'forbidden')
  t.equal(shown, 0)
})

t.test('a page with a slow function has few documents and tells its position', async (t) => {
  const store = await openStore()
  await store.updateDocs([put('_design/d', JSON.stringify(DESIGN))])
  await store.updateDocs(Array.from({ length: 500 }, (_, i) => put(`d${i}`)))
  // A stopped clock: on a busy machine, the first batch would end early by itself.
  let late = 0
  performance.now = () => late
  t.teardown(() => Reflect.deleteProperty(performance, 'now'))
  let shown = 0
  const filter = async (_fn: unknown, docs: readonly string[]) => {
    shown += docs.length
    late += docs.length * 1000
    return docs.map(() => false)
  }
  const functionContext = { ...FILTER_CONTEXT, sandbox: { ...FILTER_CONTEXT.sandbox, filter } }
  const options = { filter: named('all'), functionContext }
  const page = await pageOf(store, options)
  t.same(
    { shown, rows: page.rows, lastSeq: page.lastSeq, atTip: page.atTip },
    { shown: 10, rows: 0, lastSeq: 10, atTip: false },
  )
  const next = await pageOf(store, { ...options, since: page.lastSeq })
  t.same({ shown, lastSeq: next.lastSeq }, { shown: 20, lastSeq: 20 })
})

t.test('batches and pages are limited', async (t) => {
  const store = await openStore()
  const text = 'x'.repeat(10_000)
  await store.updateDocs([put('_design/d', JSON.stringify(DESIGN))])
  await store.updateDocs(Array.from({ length: 2000 }, (_, i) => put(`d${i}`, JSON.stringify({ i, text }))))
  const batches: { docs: number; text: number }[] = []
  const sandbox = {
    ...FILTER_CONTEXT.sandbox,
    filter: async (_fn: unknown, docs: readonly string[]) => {
      batches.push({ docs: docs.length, text: docs.join('').length })
      return docs.map(() => false)
    },
  }
  const functionContext = { ...FILTER_CONTEXT, sandbox }
  let since: Since = '0'
  for (let atTip = false; !atTip; ) {
    const page: ChangesPage = await pageOf(store, { filter: named('all'), since, functionContext })
    t.equal(page.rows, 0)
    t.ok(page.lastSeq > (typeof since === 'number' ? since : 0))
    since = page.lastSeq
    atTip = page.atTip
  }
  t.equal(since, 2001)
  t.equal(
    batches.reduce((sum, { docs }) => sum + docs, 0),
    2001,
    'each document is filtered once',
  )
  t.ok(batches.every(({ docs, text }) => docs <= 400 && text < 1_100_000))
  batches.length = 0
  await pageOf(store, { filter: named('all'), limit: 1, since: 5, functionContext })
  t.ok(
    batches.every(({ docs }) => docs <= 100),
    'batches are small for a small limit',
  )
})
