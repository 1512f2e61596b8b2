import { Buffer } from 'node:buffer'
import t from 'tap'
import { DEFAULT_RULES, type UserCtx } from '../../src/core/types.ts'
import { storeFind } from '../../src/query/find.ts'
import { storeIndexes } from '../../src/query/index-changes.ts'
import { IndexList } from '../../src/query/index-list.ts'
import { ADMIN, type Json, NOBODY, openDatabase } from '../documents/helpers.ts'
import { memoryIndexes } from './memory-index.ts'
import { bodyOf, textOf } from './view-helpers.ts'

async function openSource() {
  const { database, store } = await openDatabase()
  const indexes = new IndexList(store)
  const openIndex = memoryIndexes(store)
  const rules = () => DEFAULT_RULES.find
  const source = {
    ...storeFind({ store, name: 'db', rules, indexes, openIndex }),
    ...storeIndexes({ store, indexes, put: database.put, cleanUp: async () => {}, fileBytes: async () => 0 }),
  }
  const put = (id: string, doc: Json) => database.put(ADMIN, id, bodyOf(doc), {})
  const find = async (request: Json, user: UserCtx = ADMIN): Promise<Json> =>
    JSON.parse(await textOf(source.find(user, bodyOf(request))))
  return { database, store, source, put, find }
}

async function openFilled() {
  const opened = await openSource()
  await opened.put('_design/d', { type: 'note' })
  await opened.put('a', { type: 'note', n: 1, at: { x: 'left', y: 2 }, 'a.b': 'dot' })
  await opened.put('b', { type: 'leaf', n: 2 })
  await opened.put('h:1', { type: 'leaf', n: 3 })
  await opened.put('h:2', { type: 'leaf', n: 4 })
  await opened.put('i', { type: 'note', n: 5, list: [{ a: 1 }, { a: 2 }] })
  const ids = async (request: Json) => (await opened.find(request)).docs.map(({ _id }: Json) => _id)
  return { ...opened, ids }
}

const NO_INDEX = 'No matching index found, create an index to optimize query time.'

t.test('_find returns the matching documents in the order of their ids', async (t) => {
  const { find, ids, source } = await openFilled()
  const answer = await find({ selector: { type: 'leaf' }, limit: 1 })
  t.match(answer, { docs: [{ _id: 'b', _rev: /^1-/, type: 'leaf', n: 2 }], warning: NO_INDEX })
  t.strictSame(Object.keys(answer), ['docs', 'bookmark', 'warning'])
  t.strictSame(await ids({ selector: {} }), ['a', 'b', 'h:1', 'h:2', 'i'], 'design documents never match')
  t.strictSame(await ids({ selector: { $or: [] } }), [])
  t.strictSame(await ids({ selector: {}, skip: 1, limit: 2 }), ['b', 'h:1'])
  t.strictSame(await ids({ selector: {}, limit: 0 }), [])
  const none = await textOf(source.find(ADMIN, bodyOf({ selector: { no: 1 } })))
  t.equal(none, `{"docs":[\r\n],\r\n"bookmark": "nil",\r\n"warning": "${NO_INDEX}"}\r\n`)
})

t.test('the queries with which LiveSync opens an encrypted vault examine few documents', async (t) => {
  const { find } = await openFilled()
  const below = await find({ selector: { _id: { $lt: 'h:' }, type: 'leaf' }, execution_stats: true })
  t.match(below, {
    docs: [{ _id: 'b' }],
    // The design document, `a` and `b`, but no chunk.
    execution_stats: { total_docs_examined: 3, results_returned: 1 },
  })
  const above = await find({ selector: { _id: { $gt: 'h;' }, type: 'leaf' }, execution_stats: true })
  t.match(above, { docs: [], execution_stats: { total_docs_examined: 1, results_returned: 0 } })
})

t.test('a long document is found like any other, in its order', async (t) => {
  const { put, ids, find } = await openFilled()
  const long = { type: 'note', text: 'x'.repeat(2_500_000), list: [1, [2, null], { a: '\n' }] }
  await put('c', long)
  await put('d', { ...long, type: 'leaf' })
  t.strictSame(await ids({ selector: { type: 'note' } }), ['a', 'c', 'i'])
  t.strictSame(await ids({ selector: { type: 'note' }, limit: 2 }), ['a', 'c'])
  t.strictSame(await ids({ selector: { type: 'note' }, skip: 2 }), ['i'])
  const { docs } = await find({ selector: { list: { $elemMatch: { a: '\n' } } }, fields: ['_id', 'list'] })
  t.strictSame(
    docs,
    ['c', 'd'].map((_id) => ({ _id, list: long.list })),
  )
})

t.test('conditions on ids become a range of ids', async (t) => {
  const { find } = await openFilled()
  const cases: [selector: Json, examined: number, ids: string[]][] = [
    [{ _id: 'b' }, 1, ['b']],
    [{ _id: { $gt: 'b', $lt: 'h:2' } }, 1, ['h:1']],
    [{ _id: { $gte: 'b', $lte: 'h:2' } }, 3, ['b', 'h:1', 'h:2']],
    [{ _id: { $beginsWith: 'h:' } }, 2, ['h:1', 'h:2']],
    [{ _id: { $beginsWith: 'h\u{10ffff}' } }, 0, []],
    [{ $and: [{ _id: { $gte: 'h' } }, { type: 'leaf' }, { _id: { $lt: 'h:2' } }] }, 1, ['h:1']],
    [{ _id: { $in: ['h:2', 'b', 5] } }, 3, ['b', 'h:2']],
    [{ _id: { $in: [] } }, 0, []],
    [{ $not: { _id: { $gte: 'b' } } }, 2, ['a']],
    [{ $nor: [{ _id: { $lt: 'h:2' } }] }, 2, ['h:2', 'i']],
    [{ $or: [{ _id: 'a' }, { _id: 'b' }] }, 6, ['a', 'b']],
    [{ _id: { $gt: null } }, 6, ['a', 'b', 'h:1', 'h:2', 'i']],
    [{ _id: { $lt: null } }, 0, []],
    [{ _id: { $lt: 'a' }, n: { $gt: 0 } }, 1, []],
    [{ _id: { $gt: 'i' } }, 0, []],
    [{ _id: { $gt: '\ud800' } }, 6, []],
    [{ '\\_id': 'b' }, 6, ['b']],
  ]
  for (const [selector, examined, ids] of cases) {
    const { docs, execution_stats: stats } = await find({ selector, execution_stats: true })
    const name = JSON.stringify(selector)
    t.strictSame(
      docs.map(({ _id }: Json) => _id),
      ids,
      name,
    )
    t.equal(stats.total_docs_examined, examined, name)
    t.equal(stats.total_keys_examined, examined, name)
  }
})

t.test('fields selects and orders the fields of the answer', async (t) => {
  const { find } = await openFilled()
  const fields = async (id: string, ...names: string[]) =>
    (await find({ selector: { _id: id }, fields: names })).docs[0]
  t.strictSame(await fields('a', 'n', '_id'), { n: 1, _id: 'a' })
  t.strictSame(await fields('a', 'at.x', 'no', 'n.x'), { at: { x: 'left' } })
  t.strictSame(await fields('a', 'a\\.b'), { 'a.b': 'dot' })
  t.strictSame(await fields('b', 'no'), {})
})

t.test('sort by id needs a condition on the id', async (t) => {
  const { ids, find } = await openFilled()
  const selector = { _id: { $gt: null }, type: 'leaf' }
  t.strictSame(await ids({ selector, sort: ['_id'] }), ['b', 'h:1', 'h:2'])
  t.strictSame(await ids({ selector, sort: [{ _id: 'desc' }] }), ['h:2', 'h:1', 'b'])
  t.strictSame(await ids({ selector: { _id: { $lt: 'h:2' } }, sort: [{ _id: 'desc' }], limit: 2 }), [
    'h:1',
    'b',
  ])
  const refused = { code: 'no_usable_index' }
  await t.rejects(find({ selector: { type: 'leaf' }, sort: ['_id'] }), refused)
  await t.rejects(find({ selector: { _id: { $in: ['a'] } }, sort: ['_id'] }), refused)
  await t.rejects(find({ selector, sort: ['n'] }), refused)
  await t.rejects(find({ selector, sort: ['_id', 'n'] }), refused)
})

t.test('a bookmark continues after the last document', async (t) => {
  const { find } = await openFilled()
  for (const sort of [[{ _id: 'asc' }], [{ _id: 'desc' }]]) {
    const request = { selector: { _id: { $gt: null } }, sort, limit: 2 }
    const seen: string[] = []
    let bookmark: string | undefined
    for (let n = 2; n > 0; ) {
      const answer: Json = await find({ ...request, ...(bookmark !== undefined && { bookmark }) })
      seen.push(...answer.docs.map(({ _id }: Json) => _id))
      n = answer.docs.length
      if (n === 0) t.equal(answer.bookmark, bookmark, 'the bookmark stays the same at the end')
      bookmark = answer.bookmark
    }
    const all = ['a', 'b', 'h:1', 'h:2', 'i']
    t.strictSame(seen, sort[0]?._id === 'asc' ? all : all.reverse())
  }
  for (const bookmark of ['nil', '', null]) {
    t.equal((await find({ selector: {}, bookmark })).docs.length, 5, JSON.stringify(bookmark))
  }
  const ends = await find({ selector: {}, skip: 9 })
  t.strictSame(ends.docs, [])
  t.equal((await find({ selector: {}, bookmark: ends.bookmark })).docs.length, 0)
})

t.test('_find sends warnings, statistics and conflicts', async (t) => {
  const { find, put, database } = await openFilled()
  for (let n = 0; n < 20; n++) await put(`m${n}`, { n: -1 })
  const named = await find({ selector: { n: -1 }, use_index: 'x', execution_stats: true, limit: 1 })
  const unused = '_design/x was not used because it does not contain a valid index for this query.'
  t.equal(named.warning, `${unused}\n${NO_INDEX}`)
  t.match(named.execution_stats, { total_quorum_docs_examined: 0, execution_time_ms: Number })
  t.match(await find({ selector: {}, use_index: ['_design/x', 'y'] }), {
    warning: `_design/x, y was not used because it is not a valid index for this query.\n${NO_INDEX}`,
  })
  t.match(
    (await find({ selector: { no: true } })).warning,
    /^No matching .*\nThe number of documents examined is high/,
  )
  await t.rejects(find({ selector: {}, use_index: 'x', allow_fallback: false }), { code: 'invalid_index' })
  await t.rejects(find({ selector: {}, allow_fallback: false }), { code: 'invalid_index' })

  const doc = { _id: 'c', _revisions: { start: 1, ids: ['a'] } }
  const other = { ...doc, _revisions: { start: 1, ids: ['b'] } }
  await textOf(database.bulkDocs(ADMIN, bodyOf({ docs: [doc, other], new_edits: false })))
  t.strictSame((await find({ selector: { _id: 'c' }, conflicts: true })).docs, [
    { _id: 'c', _rev: '1-b', _conflicts: ['1-a'] },
  ])
  t.strictSame((await find({ selector: { _id: 'c' } })).docs, [{ _id: 'c', _rev: '1-b' }])
})

t.test('invalid requests are refused with the texts of protocol.md 10', async (t) => {
  const { find } = await openSource()
  const selector = {}
  const cases: [request: Json, code: string, reason: string | RegExp][] = [
    [{}, 'missing_required_key', 'Missing required key: selector'],
    [{ selector: [] }, 'invalid_selector_json', 'Selector must be a JSON object, not: []'],
    [{ selector, limit: -1 }, 'invalid_non_neg_integer', /^-1 is not an integer/],
    [{ selector, skip: 'x' }, 'invalid_non_neg_integer', /greater than or equal to zero$/],
    [{ selector, sort: 'a' }, 'invalid_sort_json', /^Sort must be an array/],
    [{ selector, sort: [''] }, 'invalid_sort_field', 'Invalid sort field: ""'],
    [{ selector, sort: [{ a: 'asc', b: 'asc' }] }, 'invalid_sort_field', /^Invalid sort field/],
    [{ selector, sort: [{ a: 'up' }] }, 'invalid_sort_field', 'Invalid sort field: {"a":"up"}'],
    [{ selector, sort: [{ a: 'asc' }, { b: 'desc' }] }, 'unsupported_mixed_sort', /single direction/],
    [{ selector, fields: 'a' }, 'invalid_fields', /^Fields must be an array of strings/],
    [{ selector, fields: [1] }, 'invalid_field', 'Invalid JSON for field spec: 1'],
    [{ selector, fields: ['a..b'] }, 'invalid_field_name', 'Invalid field name: a..b'],
    [{ selector, bookmark: 'x' }, 'invalid_bookmark', 'Invalid bookmark value: "x"'],
    [{ selector, bookmark: 5 }, 'invalid_bookmark', 'Invalid bookmark value: 5'],
    [{ selector, use_index: {} }, 'invalid_index_name', 'Invalid index name: {}'],
    [{ selector, use_index: ['a', 'b', 'c'] }, 'invalid_index_name', /^Invalid index name/],
    [{ selector, conflicts: 'yes' }, 'invalid_boolean', 'Invalid boolean value: "yes"'],
    [{ selector, execution_stats: null }, 'invalid_boolean', 'Invalid boolean value: null'],
    [{ selector, stale: true }, 'invalid_value', 'Invalid value for stale: true'],
    [{ selector, r: 0 }, 'invalid_pos_integer', '0 is not an integer greater than zero'],
    [{ selector, partition: 5 }, 'illegal_partition', 'Partition must be a string'],
    [{ selector, partition: 'p' }, 'query_parse_error', '`partition` parameter is not supported on this db'],
    [{ selector, partition: '_p' }, 'illegal_partition', 'Partition must not start with an underscore'],
    [{ selector, more: 1 }, 'invalid_key', 'Invalid key more for this request.'],
    [{ selector: { a: { $x: 1 } } }, 'invalid_operator', 'Invalid operator: $x'],
    [{ selector: { a: { $text: 'x' } } }, 'not_supported', 'Unsupported operator: $text'],
    [{ selector: { a: { $in: 1 } } }, 'bad_arg', 'Bad argument for operator $in: 1'],
    [{ selector: { $nor: [{ a: { $in: 1 } }] } }, 'bad_arg', 'Bad argument for operator $in: 1'],
    [{ selector: { $not: { a: { $nin: 1 } } } }, 'bad_arg', 'Bad argument for operator $nin: 1'],
    [{ selector: { $eq: 1 } }, 'invalid_selector', /missing a field name/],
    [{ selector: { a: { $in: Array(150_000).fill('ä') } } }, 'invalid_selector', /too much work/],
  ]
  for (const [request, code, reason] of cases) {
    await t.rejects(find(request), { code, reason }, JSON.stringify(request).slice(0, 80))
  }
  await t.rejects(find({ selector: { a: 'x'.repeat(1024 * 1024) } }), { code: 'too_large' })
  await t.rejects(find({ selector: {} }, NOBODY), { code: 'unauthorized' })
})

t.test('_explain shows the index, the range and the normal form of a query', async (t) => {
  const { source } = await openSource()
  const explain = async (request: Json): Promise<Json> =>
    JSON.parse(Buffer.from(await source.explain(ADMIN, bodyOf(request))).toString())
  const index = { ddoc: null, name: '_all_docs', type: 'special', def: { fields: [{ _id: 'asc' }] } }
  const request = {
    selector: { _id: { $gt: 'b', $lt: 'x' }, a: { b: 1 }, $not: { n: { $gt: 5 } } },
    sort: [{ _id: 'desc' }],
    fields: ['a'],
  }
  const answer = await explain(request)
  t.match(answer, {
    dbname: 'db',
    index,
    partitioned: false,
    limit: 25,
    skip: 0,
    fields: ['a'],
    index_candidates: [],
    opts: { use_index: [], bookmark: 'nil', sort: { _id: 'desc' }, r: 1, update: true, allow_fallback: true },
    selector_hints: [{ type: 'json', indexable_fields: ['_id', 'a.b', 'n'], unindexable_fields: [] }],
    mrargs: { start_key: 'x', end_key: 'b', direction: 'rev' },
  })
  t.strictSame(answer.selector, {
    $and: [
      { $and: [{ _id: { $gt: 'b' } }, { _id: { $lt: 'x' } }] },
      { 'a.b': { $eq: 1 } },
      { n: { $lte: 5 } },
    ],
  })
  t.match(await explain({ selector: { a: { $regex: 'x' } } }), {
    selector: { a: { $regex: 'x' } },
    selector_hints: [{ indexable_fields: [], unindexable_fields: ['a'] }],
    mrargs: { start_key: null, end_key: '<MAX>', direction: 'fwd' },
  })
  t.match(await explain({ selector: {}, sort: ['n'] }), {
    index: null,
    index_candidates: [{ index, analysis: { usable: false, reasons: [{ name: 'field_mismatch' }] } }],
  })
  const list = JSON.parse(Buffer.from(await source.indexes(ADMIN, 0, undefined)).toString())
  t.strictSame(list, { total_rows: 1, indexes: [index] })
  t.strictSame(JSON.parse(Buffer.from(await source.indexes(ADMIN, 1, 5)).toString()).indexes, [])
})

t.test(
  'a search yields empty chunks, ends when its reader leaves, and takes turns with others',
  async (t) => {
    const { source, put, find } = await openSource()
    const docs = Array.from({ length: 60 }, (_, n) => ({ n, text: 'x'.repeat(50_000) }))
    for (const doc of docs) await put(`d${String(doc.n).padStart(2, '0')}`, doc)
    const slow = { selector: { text: { $regex: 'y(a|b|c)*z' } } }
    const chunks = source.find(ADMIN, bodyOf(slow))[Symbol.asyncIterator]()
    t.equal((await chunks.next()).value.length, 0, 'the search is still under way')
    await chunks.return?.(undefined)
    // More scans of one caller than may be under way at once.
    const answers = await Promise.all(Array.from({ length: 20 }, () => find(slow)))
    t.ok(answers.every((answer) => answer.docs.length === 0))
  },
)
