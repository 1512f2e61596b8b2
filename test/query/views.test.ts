import t, { type Test } from 'tap'
import { ADMIN, type Json, NOBODY } from '../documents/helpers.ts'
import { bodyOf, openViews, textOf } from './view-helpers.ts'

const BY_KIND = {
  language: 'javascript',
  views: {
    kind: { map: 'function (doc) { emit(doc.kind, doc.size) }', reduce: '_sum' },
    counted: { map: 'function (doc) { emit(doc.kind, null) }', reduce: '_count' },
    stats: { map: 'function (doc) { emit([doc.kind, doc._id], doc.size) }', reduce: '_stats' },
    distinct: { map: 'function (doc) { emit(doc.kind) }', reduce: '_approx_count_distinct' },
    best: { map: 'function (doc) { emit(null, doc.size) }', reduce: '_top_2' },
    own: {
      map: 'doc => emit(doc.kind, doc.size)',
      reduce: '(keys, values, rereduce) => values.reduce((a, b) => a + b, 0)',
    },
    long: { map: 'doc => emit(doc.kind)', reduce: '() => "x".repeat(6000)' },
    plain: { map: 'function (doc) { emit(doc.kind) }' },
    linked: { map: 'doc => emit(doc._id, { _id: "a" })' },
    throwing: { map: 'function (doc) { if (doc._id === "b") throw new Error("no"); emit(doc._id) }' },
  },
}

async function openFilled(t: Pick<Test, 'teardown'>) {
  const opened = await openViews(t)
  await opened.put('_design/d', BY_KIND)
  await opened.put('a', { kind: 'note', size: 1 })
  await opened.put('b', { kind: 'book', size: 2 })
  await opened.put('c', { kind: 'note', size: 4 })
  return opened
}

const ids = ({ rows }: { rows: { id: string }[] }) => rows.map(({ id }) => id)

t.test('rows are sorted by key, then by id, and the answer has their offset', async (t) => {
  const { query } = await openFilled(t)
  const rows = [
    { id: 'b', key: 'book', value: 2 },
    { id: 'a', key: 'note', value: 1 },
    { id: 'c', key: 'note', value: 4 },
  ]
  t.strictSame(await query('kind', { reduce: false }), { total_rows: 3, offset: 0, rows })
  const descending = await query('kind', { reduce: false, descending: true })
  t.strictSame(descending.rows, rows.toReversed?.() ?? [...rows].reverse())
  t.strictSame(await query('kind', { reduce: false, limit: 1, skip: 1 }), {
    total_rows: 3,
    offset: 1,
    rows: [rows[1]],
  })
})

t.test('rows of one document with the same key are sorted by value, in both directions', async (t) => {
  const { put, query } = await openViews(t)
  const values = ['\uff5e', [], {}, true, null, false, 'b', 2, 10, { a: 1 }, [1]]
  const map = `doc => { for (const value of ${JSON.stringify(values)}) { emit(doc.kind, value); emit('y', value) } }`
  await put('_design/d', { views: { many: { map } } })
  await put('a', { kind: 'x' })
  await put('b', { kind: 'x' })
  const ordered = [2, 10, false, null, true, {}, { a: 1 }, [], [1], 'b', '\uff5e']
  const valuesOf = ({ rows }: Json) => rows.map(({ value }: Json) => value)
  const ascending = await query('many', { key: 'x' })
  t.strictSame(valuesOf(ascending), [...ordered, ...ordered])
  t.strictSame(ids(ascending), [...ordered.map(() => 'a'), ...ordered.map(() => 'b')])
  const descending = await query('many', { descending: true })
  t.strictSame(valuesOf(descending), [...ordered, ...ordered, ...ordered, ...ordered])
  t.strictSame(
    ids(descending),
    ['b', 'a', 'b', 'a'].flatMap((id) => ordered.map(() => id)),
  )
  t.strictSame(valuesOf(await query('many', { descending: true, skip: 10, limit: 2 })), ['\uff5e', 2])
})

t.test('keys select a range of rows', async (t) => {
  const { query } = await openFilled(t)
  t.strictSame(ids(await query('plain', { key: 'note' })), ['a', 'c'])
  t.strictSame(ids(await query('plain', { startkey: 'c' })), ['a', 'c'])
  t.strictSame(ids(await query('plain', { endkey: 'note', inclusive_end: false })), ['b'])
  t.strictSame(ids(await query('plain', { startkey: 'note', startkey_docid: 'b' })), ['c'])
  t.strictSame(ids(await query('plain', { endkey: 'note', endkey_docid: 'b' })), ['b', 'a'])
  const down = { descending: true, startkey: 'note', endkey: 'book' }
  t.strictSame(ids(await query('plain', down)), ['c', 'a', 'b'])
  t.strictSame(ids(await query('plain', { ...down, inclusive_end: false })), ['c', 'a'])
  t.strictSame(ids(await query('plain', { keys: ['note', 'x', 'book'] })), ['a', 'c', 'b'])
  t.strictSame(ids(await query('plain', {}, { keys: ['book'] })), ['b'])
  t.strictSame((await query('plain', { key: 'x' })).rows, [])
})

t.test('document ids also bound the rows of each key of `keys`', async (t) => {
  const { query, put } = await openFilled(t)
  await put('d', { kind: 'book' })
  const keys = ['note', 'book']
  t.strictSame(ids(await query('plain', { keys, startkey_docid: 'b' })), ['c', 'b', 'd'])
  t.strictSame(ids(await query('plain', { keys, endkey_docid: 'b' })), ['a', 'b'])
  t.strictSame(ids(await query('plain', { keys, descending: true, startkey_docid: 'b' })), ['b', 'a'])
  const one = { keys: ['note'], startkey_docid: 'b', endkey_docid: 'c' }
  t.strictSame(ids(await query('plain', one)), ['c'])
})

t.test('the first row of `keys` decides the offset', async (t) => {
  const { query } = await openFilled(t)
  t.match(await query('plain', { keys: ['a', 'note'] }), { offset: 1, rows: { length: 2 } })
  t.match(await query('plain', { keys: ['o', 'a'] }), { offset: 3, rows: { length: 0 } })
})

t.test('a later key replaces an earlier one, a single key of `keys` too', async (t) => {
  const { query } = await openFilled(t)
  t.strictSame(ids(await query('plain', { key: 'book', endkey: 'note' })), ['b', 'a', 'c'])
  t.strictSame(ids(await query('plain', { endkey: 'note', key: 'book' })), ['b'])
  t.strictSame(ids(await query('plain', { startkey: 'note', keys: ['book'] })), ['b'])
  t.strictSame(ids(await query('plain', { keys: ['note'], key: 'book' })), ['b'])
  await t.rejects(query('plain', { keys: ['book'], startkey: 'note' }), { code: 'query_parse_error' })
  t.strictSame(ids(await query('plain', { keys: [], startkey: 'note' })), [])
  await t.rejects(query('plain', { keys: ['book', 'note'], startkey: 'note' }), { code: 'query_parse_error' })
  await t.rejects(query('plain', {}, { keys: null }), { code: 'bad_request' })
})

t.test('`collation` is an option of a view, not of its design document', async (t) => {
  const { put, query } = await openViews(t)
  const map = 'doc => emit(doc.key)'
  await put('_design/d', {
    options: { collation: 'raw' },
    views: { raw: { map, options: { collation: 'raw' } }, plain: { map } },
  })
  for (const [at, key] of ['b', 'B', 'a', null, 1].entries()) await put(`doc${at}`, { key })
  const keysOf = ({ rows }: Json) => rows.map(({ key }: Json) => key)
  t.strictSame(keysOf(await query('raw')), [1, null, 'B', 'a', 'b'])
  t.strictSame(keysOf(await query('plain')), [null, 1, 'a', 'b', 'B'])
  t.strictSame(keysOf(await query('raw', { startkey: 'B', endkey: 'a' })), ['B', 'a'])
})

t.test('rows are reduced by built-in and own functions', async (t) => {
  const { query } = await openFilled(t)
  t.strictSame(await query('kind'), { rows: [{ key: null, value: 7 }] })
  t.strictSame(await query('kind', { key: 'x' }), { rows: [] })
  const groups = {
    rows: [
      { key: 'book', value: 2 },
      { key: 'note', value: 5 },
    ],
  }
  t.strictSame(await query('kind', { group: true }), groups)
  t.strictSame(await query('own', { group: true }), groups)
  t.strictSame(await query('own'), { rows: [{ key: null, value: 7 }] })
  t.strictSame((await query('counted', { group: true, limit: 1 })).rows, [{ key: 'book', value: 1 }])
  t.strictSame((await query('counted', { group: true, skip: 1 })).rows, [{ key: 'note', value: 2 }])
  t.strictSame((await query('stats', { group_level: 1 })).rows[1], {
    key: ['note'],
    value: { sum: 5, count: 2, min: 1, max: 4, sumsqr: 17 },
  })
  t.strictSame((await query('distinct')).rows, [{ key: null, value: 2 }])
  t.strictSame((await query('best')).rows, [{ key: null, value: [4, 2] }])
  const keys = await query('kind', { group: true, keys: ['note', 'book'] })
  t.strictSame(keys.rows, [...groups.rows].reverse())
  t.match(await query('long'), { rows: [{ key: null, error: 'reduce_overflow_error' }] })
  t.match((await query('long', { group: true })).rows[1], { key: null, error: 'reduce_overflow_error' })
})

// The values and results are those of CouchDB 3.5.0.
t.test('_top and _bottom keep different values, in the order of JSON', async (t) => {
  const { put, query } = await openViews(t)
  const map = 'doc => { for (const value of doc.values ?? []) emit(null, value) }'
  const views = { top: { map, reduce: '_top_100' }, bottom: { map, reduce: '_bottom_3' } }
  await put('_design/d', { views })
  const values = ['a', 'B', 'A', 'b', 'ä', 1, 1, 2, null, true, false, [1], [], {}, { a: 1 }, 'a']
  await put('a', { values })
  const all = [{ a: 1 }, {}, [1], [], 'B', 'b', 'ä', 'A', 'a', 2, 1, true, false, null]
  t.strictSame((await query('top')).rows, [{ key: null, value: all }])
  t.strictSame((await query('bottom')).rows, [{ key: null, value: [null, false, true] }])
})

// The values and results are those of CouchDB 3.5.0.
t.test('_stats adds statistics that documents have stored', async (t) => {
  const { put, query } = await openViews(t)
  await put('_design/d', { views: { v: { map: 'doc => emit(doc.key, doc.value)', reduce: '_stats' } } })
  const many = { sum: 10, count: 3, min: 1, max: 6, sumsqr: 50 }
  await put('a', { key: 1, value: { ...many, more: 'is left out' } })
  await put('b', { key: 1, value: 2 })
  await put('c', { key: 2, value: [1, many] })
  await put('d', { key: 2, value: [many, 2] })
  await put('e', { key: 3, value: { ...many, sumsqr: '50' } })
  await put('f', { key: 4, value: { sum: 1, count: 1, min: 1, max: 1 } })
  const { rows } = await query('v', { group: true })
  const lists = [
    { sum: 11, count: 4, min: 1, max: 6, sumsqr: 51 },
    { sum: 12, count: 4, min: 1, max: 6, sumsqr: 54 },
  ]
  t.strictSame(rows.slice(0, 2), [
    { key: 1, value: { sum: 12, count: 4, min: 1, max: 6, sumsqr: 54 } },
    { key: 2, value: lists },
  ])
  t.match(
    rows.slice(2),
    Array.from({ length: 2 }, () => ({ value: { error: 'builtin_reduce_error' } })),
  )
})

t.test('a value that cannot be summed gives an error in place of the sum', async (t) => {
  const { put, query } = await openFilled(t)
  await put('d', { kind: 'odd', size: 'much' })
  const { rows } = await query('kind', { group: true })
  t.match(rows[2], { key: 'odd', value: { error: 'builtin_reduce_error', caused_by: 'much' } })
})

t.test('a missing value and null cannot be summed', async (t) => {
  const { put, query } = await openFilled(t)
  await put('d', { kind: 'none' })
  await put('e', { kind: 'nulls', size: [1, null] })
  const { rows } = await query('kind', { group: true, startkey: 'none' })
  const error = 'builtin_reduce_error'
  const refused = { value: { error, caused_by: null } }
  t.match(rows, [refused, { value: 5 }, refused])
})

t.test('views require modules of views.lib, and are made anew when these change', async (t) => {
  const { put, query } = await openViews(t)
  const designDoc = (n: number) => ({
    other: { m: `exports.n = ${n}` },
    views: {
      lib: { m: `exports.n = ${n}` },
      inside: { map: 'doc => emit(require("views/lib/m").n)' },
      outside: { map: 'doc => emit(require("other/m").n)' },
    },
  })
  const rev = await put('_design/d', designDoc(1))
  await put('a', {})
  const keysOf = ({ rows }: Json) => rows.map(({ key }: Json) => key)
  t.strictSame(keysOf(await query('inside')), [1])
  t.strictSame(keysOf(await query('outside')), [], 'as in CouchDB, the map function throws')
  await put('_design/d', { ...designDoc(2), _rev: rev })
  t.strictSame(keysOf(await query('inside')), [2])
})

t.test('a value links to a revision with `_rev`, and to another document with `_id`', async (t) => {
  const { put, query } = await openViews(t)
  const map = 'doc => { if (doc.link) emit(null, doc.link) }'
  await put('_design/d', { views: { links: { map } } })
  const earlier = await put('a', { n: 1 })
  await put('a', { n: 2, _rev: earlier, link: { _rev: earlier } })
  await put('b', { link: { _id: 'a', _rev: earlier } })
  await put('c', { link: { _id: 'a' } })
  await put('d', { link: { _rev: `9-${'0'.repeat(32)}` } })
  await put('e', { link: { _id: 5 } })
  await put('f', { link: { n: 1 } })
  const { rows } = await query('links', { include_docs: true })
  const shown = rows.map(({ id, doc }: Json) => [id, doc && [doc._id, doc.n]])
  t.strictSame(shown, [
    ['a', ['a', 1]],
    ['b', ['a', 1]],
    ['c', ['a', 2]],
    ['d', null],
    ['e', null],
    ['f', ['f', undefined]],
  ])
})

t.test('include_docs adds the documents of the rows', async (t) => {
  const { query, put } = await openFilled(t)
  const { rows } = await query('plain', { include_docs: true, key: 'book' })
  t.match(rows, [{ id: 'b', doc: { _id: 'b', kind: 'book', size: 2 } }])
  const linked = await query('linked', { include_docs: true })
  t.strictSame(
    linked.rows.map(({ doc }: { doc: { _id: string } }) => doc._id),
    ['a', 'a', 'a'],
  )
  await put('a', { _deleted: true, _rev: linked.rows[0].doc._rev })
  const gone = await query('linked', { include_docs: true })
  t.strictSame(
    gone.rows.map(({ doc }: { doc: unknown }) => doc),
    [null, null],
  )
})

t.test('a document whose map function throws has no rows, and the others have theirs', async (t) => {
  const { query } = await openFilled(t)
  t.strictSame(ids(await query('throwing')), ['a', 'c'])
})

t.test('a map function sees conflicts', async (t) => {
  const { put, replicate, query } = await openViews(t)
  await put('_design/d', { views: { v: { map: 'doc => { if (doc._conflicts) emit(doc._conflicts) }' } } })
  await replicate('a', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
  t.match((await query('v')).rows, [{ id: 'a', key: ['1-a'] }])
})

t.test('an index follows the database and maps only changed documents', async (t) => {
  const { query, put, get, mapped, database } = await openFilled(t)
  await query('plain')
  mapped.length = 0
  const { _rev } = await get('a')
  await put('a', { _rev, kind: 'zoo' })
  t.strictSame(ids(await query('plain')), ['b', 'c', 'a'])
  t.ok(mapped.length > 0 && mapped.every((id) => id === 'a'))
  await database.remove(ADMIN, 'b', (await get('b'))._rev)
  t.strictSame(ids(await query('plain', { update: false })), ['b', 'c', 'a'])
  t.strictSame(ids(await query('plain')), ['c', 'a'])
})

t.test('a purged document leaves the index', async (t) => {
  const { query, get, database } = await openFilled(t)
  await query('plain')
  const { _rev } = await get('b')
  await database.purge(ADMIN, bodyOf({ b: [_rev] }))
  t.strictSame(ids(await query('plain')), ['a', 'c'])
})

t.test('design documents are mapped only with include_design', async (t) => {
  const { query, put, get } = await openFilled(t)
  t.notOk(ids(await query('linked')).includes('_design/d'))
  const { _rev } = await get('_design/d')
  await put('_design/d', { ...BY_KIND, _rev, options: { include_design: true } })
  t.ok(ids(await query('linked')).includes('_design/d'))
})

t.test('a POST can hold several queries of one view', async (t) => {
  const { views } = await openFilled(t)
  const queries = [{ key: 'book' }, { key: 'note', limit: 1 }]
  const answer = await textOf(views.viewQueries(ADMIN, '_design/d', 'plain', bodyOf({ queries }), []))
  const { results } = JSON.parse(answer)
  t.strictSame(results.map(ids), [['b'], ['a']])
  const none = await textOf(views.viewQueries(ADMIN, '_design/d', 'plain', bodyOf({ queries: [] }), []))
  t.strictSame(JSON.parse(none), { results: [] })
})

t.test('invalid queries are refused with the texts of CouchDB', async (t) => {
  const { query, views } = await openFilled(t)
  const refused = (name: string, parameters: Record<string, unknown>, reason: string) =>
    t.rejects(query(name, parameters), { code: 'query_parse_error', reason })
  await refused('plain', { reduce: true }, 'Reduce is invalid for map-only views.')
  await refused('plain', { group: true }, 'Invalid use of grouping on a map view.')
  await refused('kind', { include_docs: true }, '`include_docs` is invalid for reduce')
  await refused('kind', { keys: ['a', 'b'] }, 'Multi-key fetches for reduce views must use `group=true`')
  await refused('plain', { limit: -1 }, 'Invalid value for positive integer: "-1"')
  await refused('plain', { limit: 'x' }, 'Invalid value for integer: "x"')
  await refused('plain', { descending: 'x' }, 'Invalid boolean parameter: "x"')
  await refused('plain', { stale: 'x' }, 'Invalid value for `stale`.')
  await refused('plain', { keys: 1 }, '`keys` must be an array of strings.')
  await refused(
    'plain',
    { startkey: 'b', endkey: 'a' },
    'No rows can match your key range, reverse your start_key and end_key or set descending=true',
  )
  await t.rejects(query('plain', {}, { keys: {} }), { message: '`keys` member must be an array.' })
  await t.rejects(query('nothing'), { code: 'not_found', reason: 'missing_named_view' })
  await t.rejects(query('toString'), { code: 'not_found', reason: 'missing_named_view' })
  await t.rejects(query('plain', {}, undefined, NOBODY), { code: 'unauthorized' })
  await t.rejects(textOf(views.view(ADMIN, '_design/x', 'v', [], null)), { code: 'not_found' })
})

t.test('_info describes the index', async (t) => {
  const { views, query } = await openFilled(t)
  await query('plain')
  const info = JSON.parse(Buffer.from(await views.viewInfo(ADMIN, '_design/d')).toString())
  t.match(info, {
    name: 'd',
    view_index: { language: 'javascript', updater_running: false, updates_pending: { total: 0 } },
  })
})
