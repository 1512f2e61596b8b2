import fc from 'fast-check'
import t from 'tap'
import { DEFAULT_RULES, type UserCtx } from '../../src/core/types.ts'
import { storeFind } from '../../src/query/find.ts'
import { storeIndexes } from '../../src/query/index-changes.ts'
import { IndexList } from '../../src/query/index-list.ts'
import { ADMIN, type Json, NOBODY, openDatabase } from '../documents/helpers.ts'
import { memoryIndexes } from './memory-index.ts'
import { bodyOf, textOf } from './view-helpers.ts'

/** @param pageRows the rows of one page of an index */
async function openSource(pageRows?: number) {
  const { database, store } = await openDatabase()
  const indexes = new IndexList(store)
  const openIndexes = () =>
    storeIndexes({
      store,
      indexes: new IndexList(store),
      put: database.put,
      cleanUp: async () => {},
      fileBytes: async () => 0,
    })
  const source = {
    ...storeFind({
      store,
      name: 'db',
      rules: () => DEFAULT_RULES.find,
      indexes,
      openIndex: memoryIndexes(store, pageRows),
    }),
    ...openIndexes(),
  }
  const read = async (answer: Promise<Uint8Array>): Promise<Json> =>
    JSON.parse(Buffer.from(await answer).toString())
  return {
    database,
    store,
    source,
    put: (id: string, doc: Json) => database.put(ADMIN, id, bodyOf(doc), {}),
    find: async (request: Json): Promise<Json> =>
      JSON.parse(await textOf(source.find(ADMIN, bodyOf(request)))),
    create: (request: Json, user: UserCtx = ADMIN) => read(source.createIndex(user, bodyOf(request))),
    openIndexes,
    removeMany: (request: Json) => read(source.deleteIndexes(ADMIN, bodyOf(request))),
    list: async () => (await read(source.indexes(ADMIN, 0, undefined))).indexes.slice(1),
    design: async (id: string): Promise<Json> =>
      JSON.parse(Buffer.from((await database.open(ADMIN, id, {})).json as Uint8Array).toString()),
  }
}

async function openFilled(pageRows?: number) {
  const opened = await openSource(pageRows)
  for (const [id, doc] of [
    ['d1', { a: 2, b: 'x', t: 1.5 }],
    ['d2', { a: 1, b: 'y' }],
    ['d3', { a: 2, b: 'w', more: ['text'] }],
    ['d4', { b: 'x' }],
    ['d5', { a: 3, b: null }],
  ] as const)
    await opened.put(id, doc)
  await opened.create({ index: { fields: ['a', 'b'] }, ddoc: 'i', name: 'ab' })
  const ids = async (request: Json) => (await opened.find(request)).docs.map(({ _id }: Json) => _id)
  return { ...opened, ids }
}

t.test('_find reads documents in the order of the index, and no others', async (t) => {
  const { find, ids } = await openFilled(2)
  const selector = { a: { $gt: 0 }, b: { $exists: true } }
  t.strictSame(await ids({ selector }), ['d2', 'd3', 'd1', 'd5'])
  t.strictSame(await ids({ selector, sort: [{ a: 'desc' }] }), ['d5', 'd1', 'd3', 'd2'])
  t.strictSame(await ids({ selector, skip: 1, limit: 2 }), ['d3', 'd1'])
  t.strictSame(await ids({ selector, limit: 0 }), [])
  t.strictSame(await ids({ selector: { a: 2, b: { $gte: 'x' } } }), ['d1'])
  const answer = await find({
    selector: { a: 2, b: { $gt: null }, more: { $exists: true } },
    execution_stats: true,
  })
  t.match(answer, {
    docs: [{ _id: 'd3', _rev: /^1-/, a: 2, more: ['text'] }],
    execution_stats: { total_keys_examined: 2, total_docs_examined: 2, results_returned: 1 },
  })
  t.equal(answer.warning, undefined)
  t.match(await find({ selector, r: 2, execution_stats: true }), {
    execution_stats: { total_keys_examined: 4, total_docs_examined: 0, total_quorum_docs_examined: 4 },
  })
  t.strictSame((await find({ selector: { a: { $gt: 3, $lt: 2 }, b: 1 } })).docs, [])
})

t.test(
  'a covering index answers without reading documents, with the values as they are stored',
  async (t) => {
    const { create, find, source, put } = await openFilled()
    await put('d6', JSON.parse('{"a":4,"x":{"y":"ü"}}'))
    await create({ index: { fields: ['t'] }, ddoc: 'i', name: 't' })
    await create({ index: { fields: ['x.y', '_id'] }, ddoc: 'i', name: 'xy' })
    const request = { selector: { t: { $gt: 1 } }, fields: ['_id', 't'] }
    t.match(await find({ ...request, execution_stats: true }), {
      docs: [{ _id: 'd1', t: 1.5 }],
      execution_stats: { total_keys_examined: 1, total_docs_examined: 0 },
    })
    t.match(await textOf(source.find(ADMIN, bodyOf(request))), '{"_id":"d1","t":1.5}')
    const nested = { selector: { 'x.y': { $gt: null } }, fields: ['x.y', '_id'] }
    t.strictSame((await find(nested)).docs, [{ x: { y: 'ü' }, _id: 'd6' }])
  },
)

t.test('a bookmark continues after the last document of an index', async (t) => {
  const { find, ids } = await openFilled()
  for (const direction of ['asc', 'desc']) {
    const request = { selector: { a: { $gt: 0 }, b: { $exists: true } }, sort: [{ a: direction }], limit: 1 }
    const seen: string[] = []
    for (let bookmark = 'nil'; ; ) {
      const answer = await find({ ...request, bookmark })
      if (answer.docs.length === 0) break
      seen.push(answer.docs[0]._id)
      bookmark = answer.bookmark
    }
    t.strictSame(seen, await ids({ ...request, limit: 10 }))
  }
  const { bookmark } = await find({ selector: { a: 2, b: 'x' } })
  const { bookmark: ofIds } = await find({ selector: {}, limit: 1 })
  const refused = { code: 'invalid_bookmark' }
  await t.rejects(find({ selector: {}, bookmark }), refused, 'a bookmark of another index')
  await t.rejects(find({ selector: { a: 2, b: 'x' }, bookmark: ofIds }), refused)
  const forged = Buffer.from('["d1",[1]]').toString('base64url')
  await t.rejects(find({ selector: { a: 2, b: 'x' }, bookmark: forged }), refused, 'a key of another length')
})

t.test('an index is a design document as CouchDB stores it', async (t) => {
  const { create, design, list } = await openSource()
  const request = {
    index: { fields: ['a', { 'b.c': 'asc' }], partial_filter_selector: { x: 1, y: { $gt: 2 } } },
    ddoc: 'd',
    name: 'n',
  }
  t.strictSame(await create(request), { result: 'created', id: '_design/d', name: 'n' })
  t.strictSame(await create(request), { result: 'exists', id: '_design/d', name: 'n' })
  t.strictSame(await create({ index: { fields: ['b'] }, ddoc: '_design/d', name: 'm' }), {
    result: 'created',
    id: '_design/d',
    name: 'm',
  })
  const { _rev, ...members } = await design('_design/d')
  t.strictSame(members, {
    _id: '_design/d',
    language: 'query',
    views: {
      n: {
        map: {
          fields: { a: 'asc', 'b.c': 'asc' },
          partial_filter_selector: { $and: [{ x: { $eq: 1 } }, { y: { $gt: 2 } }] },
        },
        reduce: '_count',
        options: { def: request.index },
      },
      m: {
        map: { fields: { b: 'asc' }, partial_filter_selector: {} },
        reduce: '_count',
        options: { def: { fields: ['b'] } },
      },
    },
  })
  t.strictSame(
    (await list()).map(({ name }: Json) => name),
    ['m', 'n'],
  )
  const hashed = await create({ index: { fields: ['a'] } })
  t.equal(hashed.id, `_design/${hashed.name}`)
})

t.test('a design document goes with its last index', async (t) => {
  const { create, design, source, list, removeMany, put } = await openSource()
  for (const name of ['a', 'b']) await create({ index: { fields: [name] }, ddoc: 'd', name })
  await source.deleteIndex(ADMIN, 'd', 'json', 'a')
  t.strictSame(Object.keys((await design('_design/d')).views), ['b'])
  await source.deleteIndex(ADMIN, '_design/d', 'json', 'b')
  await t.rejects(design('_design/d'), { code: 'deleted' })
  for (const [ddoc, type, name] of [
    ['d', 'json', 'b'],
    ['d', 'text', 'a'],
    ['no', 'json', 'a'],
  ] as const)
    await t.rejects(source.deleteIndex(ADMIN, ddoc, type, name), { code: 'not_found' })
  await create({ index: { fields: ['a'] }, ddoc: 'd', name: 'a' })
  await create({ index: { fields: ['b'] }, ddoc: 'd', name: 'b' })
  await create({ index: { fields: ['a'] }, ddoc: 'e', name: 'a', partitioned: false })
  await put('_design/js', { views: {} })
  t.strictSame(await removeMany({ docids: ['d', 'no', '_design/e', '_design/js'] }), {
    success: [
      { id: '_design/e', ok: true },
      { id: '_design/d', ok: true },
    ],
    fail: [
      { id: '_design/js', error: 'not_found' },
      { id: '_design/no', error: 'not_found' },
    ],
  })
  t.strictSame(await list(), [])
  t.match(
    await design('_design/e'),
    { language: 'query', options: { partitioned: false } },
    'options are kept',
  )
})

t.test('several nodes change the indexes of a design document at once', async (t) => {
  const { openIndexes, list } = await openSource()
  const nodes = Array.from({ length: 4 }, openIndexes)
  const made = await Promise.all(
    nodes.flatMap((node, n) =>
      ['same', `own-${n}`].map((name) =>
        node.createIndex(ADMIN, bodyOf({ index: { fields: [name] }, ddoc: 'd', name })),
      ),
    ),
  )
  const results = made.map((answer) => JSON.parse(Buffer.from(answer).toString()).result)
  t.equal(results.filter((result) => result === 'created').length, 5)
  t.strictSame(
    (await list()).map(({ name }: Json) => name),
    ['own-0', 'own-1', 'own-2', 'own-3', 'same'],
  )
  await Promise.all(nodes.map((node, n) => node.deleteIndex(ADMIN, 'd', 'json', `own-${n}`)))
  const removed = await Promise.all(nodes.map((node) => node.deleteIndexes(ADMIN, bodyOf({ docids: ['d'] }))))
  const answers = removed.map((answer) => JSON.parse(Buffer.from(answer).toString()))
  t.equal(answers.filter(({ fail }) => fail.length === 0).length, 1)
  t.ok(answers.every(({ fail }) => fail.every(({ error }: Json) => error === 'not_found')))
  t.strictSame(await list(), [])
})

t.test('invalid requests for indexes are refused with the texts of protocol.md 10.4', async (t) => {
  const { create, removeMany, put, source } = await openSource()
  await put('_design/js', { language: 'javascript', views: {} })
  await create({ index: { fields: ['a'] }, ddoc: 'd', name: 'a' })
  const index = { fields: ['a'] }
  const cases: [request: Json, code: string, reason: string | RegExp][] = [
    [{}, 'missing_required_key', 'Missing required key: index'],
    [{ index: {} }, 'missing_required_key', 'Missing required key: fields'],
    [{ index: 5 }, 'invalid_index', 'JSON indexes must be an object, not: 5'],
    [{ index: { fields: 'a' } }, 'invalid_sort_json', /^Sort must be an array/],
    [{ index: { fields: [1] } }, 'invalid_sort_field', 'Invalid sort field: 1'],
    [{ index: { fields: [{ a: 'asc' }, { b: 'desc' }] } }, 'unsupported_mixed_sort', /single direction/],
    [{ index: { ...index, selector: {} } }, 'invalid_key', 'Invalid key selector for this request.'],
    [{ index: { ...index, partial_filter_selector: 5 } }, 'invalid_selector_json', /not: 5$/],
    [{ index: { ...index, partial_filter_selector: { a: { $x: 1 } } } }, 'invalid_operator', /\$x$/],
    [{ index, name: '' }, 'invalid_empty_string', /cannot be empty/],
    [{ index, ddoc: 7 }, 'invalid_string', 'Invalid string: 7'],
    [{ index, w: 0 }, 'invalid_pos_integer', /^0 is not/],
    [{ index, type: 'text' }, 'index_service_unavailable', /only indexes of the type json/],
    [{ index, type: 'tree' }, 'invalid_index', 'Invalid type for index: tree'],
    [{ index, partitioned: 3 }, 'invalid_value', /partitioned: 3$/],
    [{ index, partitioned: true }, 'invalid_design_doc', /^partitioned option cannot be true/],
    [{ index, partitioned: false, ddoc: 'd' }, 'invalid_partitioned_option', /_design\/d$/],
    [{ index, ddoc: 'js' }, 'invalid_ddoc_lang', /invalid language: "javascript"$/],
    [{ index, more: 1 }, 'invalid_key', 'Invalid key more for this request.'],
    [{ index: { fields: ['a'], partial_filter_selector: { a: 'x'.repeat(70_000) } } }, 'too_large', /65536/],
  ]
  for (const [request, code, reason] of cases) {
    await t.rejects(create(request), { code, reason }, JSON.stringify(request).slice(0, 80))
  }
  await t.rejects(create({ index }, NOBODY), { code: 'unauthorized' })
  await t.rejects(source.deleteIndex(NOBODY, 'd', 'json', 'a'), { code: 'unauthorized' })
  const lists: [docids: unknown, code: string][] = [
    [undefined, 'missing_required_key'],
    ['x', 'invalid_bulk_docs'],
    [[1], 'invalid_index_name'],
    [['a/b/c'], 'invalid_index_name'],
    [Array(1001).fill('a'), 'invalid_bulk_docs'],
  ]
  for (const [docids, code] of lists) await t.rejects(removeMany({ docids }), { code })
})

t.test('an account may have a number of indexes', async (t) => {
  const { create, source } = await openSource()
  const allowance = {
    bytes: { limit: Infinity, others: 0, here: 0 },
    documents: { limit: Infinity, others: 0 },
    indexes: { limit: 5, others: 3 },
    maxDocumentSize: Infinity,
  }
  const owner = { ...ADMIN, allowance }
  const make = (name: string, fields: string[]) => create({ index: { fields }, ddoc: 'd', name }, owner)
  await Promise.all([make('a', ['a']), make('b', ['b'])])
  await t.rejects(make('c', ['c']), { code: 'forbidden', reason: /may have 5 indexes and has 5/ })
  t.match(await make('a', ['z']), { result: 'created' }, 'a replaced index does not count')
  await source.deleteIndex(owner, 'd', 'json', 'b')
  t.match(await make('c', ['c']), { result: 'created' })
  t.equal((await source.indexUsage()).indexes, 2)
})

// The index decides only how documents are found, not which.

const value = fc.constantFrom<unknown>(null, false, true, 0, 1, 2, 'a', 'A', 'b', 'ab', [], [1], {}, { x: 1 })
const FIELDS = ['a', 'b', 'c']
const condition = fc.oneof(
  fc
    .tuple(fc.constantFrom('$eq', '$lt', '$lte', '$gt', '$gte', '$ne'), value)
    .map(([operator, arg]) => ({ [operator]: arg })),
  fc.constantFrom<object>(
    { $exists: true },
    { $exists: false },
    { $beginsWith: 'a' },
    { $in: [1, 'a'] },
    { $size: 1 },
  ),
)
const { selector } = fc.letrec<{ selector: object }>((tie) => ({
  selector: fc.oneof(
    { maxDepth: 2, withCrossShrink: true },
    fc.dictionary(fc.constantFrom(...FIELDS), condition, { minKeys: 1 }),
    fc.array(tie('selector'), { maxLength: 3 }).map(($and) => ({ $and })),
    fc.array(tie('selector'), { minLength: 1, maxLength: 3 }).map(($or) => ({ $or })),
    tie('selector').map(($not) => ({ $not })),
  ),
}))

t.test('with indexes a query finds the same documents as without', async () => {
  const docs = fc.array(fc.record({ a: value, b: value, c: value }, { requiredKeys: [] }), { maxLength: 25 })
  const indexes = fc.array(fc.uniqueArray(fc.constantFrom(...FIELDS), { minLength: 1, maxLength: 3 }), {
    maxLength: 4,
  })
  const fields = fc.constantFrom([], ['_id', 'a'], ['b', '_id'])
  await fc.assert(
    fc.asyncProperty(
      docs,
      indexes,
      fc.array(selector, { minLength: 1, maxLength: 8 }),
      fields,
      async (...given) => {
        const [docs, indexes, selectors, fields] = given
        const { store, put, find, create } = await openSource(3)
        for (const [n, doc] of docs.entries()) await put(`d${n}`, doc)
        const found = async (selector: object) => {
          const { docs } = await find({ selector, fields: fields.length === 0 ? [] : fields, limit: 100 })
          return docs.map((doc: Json) => JSON.stringify(doc)).sort()
        }
        const without = await Promise.all(selectors.map(found))
        for (const names of indexes) await create({ index: { fields: names } })
        const same = await Promise.all(selectors.map(found))
        await store.close()
        return JSON.stringify(same) === JSON.stringify(without)
      },
    ),
    { numRuns: 60 },
  )
})

t.test('a database has a bounded number of indexes, and those beyond are not used', async (t) => {
  const { put, create, list } = await openSource()
  const views = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, n) => [
        `v${n}`,
        { map: { fields: { [`f${n}`]: 'asc' } }, options: {} },
      ]),
    )
  await put('_design/a', { language: 'query', views: views(299) })
  await create({ index: { fields: ['x'] }, ddoc: 'z', name: 'last' })
  const refused = { code: 'forbidden', reason: 'A database may have 300 indexes.' }
  await t.rejects(create({ index: { fields: ['y'] } }), refused)
  t.match(await create({ index: { fields: ['y'] }, ddoc: 'z', name: 'last' }), { result: 'created' })
  await put('_design/b', { language: 'query', views: views(5) })
  t.equal((await list()).length, 300)
  t.notOk((await list()).some(({ ddoc }: Json) => ddoc === '_design/z'))
})

t.test(
  'an index that was created is listed and can be deleted, however large its definition and names are',
  async (t) => {
    const { create, list, source } = await openSource()
    const refused = {
      code: 'forbidden',
      reason: 'A design document with indexes may have 300000 characters.',
    }
    const filter = (n: number) => ({ partial_filter_selector: { a: 'x'.repeat(40_000) + n } })
    const long = [
      ...[0, 1, 2, 3, 4, 5].map((n) => ({
        index: { fields: ['a'], ...filter(n) },
        ddoc: 'one',
        name: `${n}`,
      })),
      { index: { fields: ['a'] }, name: 'n'.repeat(400_000) },
    ]
    let created = 0
    for (const request of long) {
      const result = await create(request).then(
        () => 'created',
        (error: unknown) => t.match(error, refused),
      )
      if (result === 'created') created += 1
      t.equal((await list()).length, created)
    }
    t.equal(created, 3)
    await source.deleteIndex(ADMIN, 'one', 'json', '0')
    t.equal((await list()).length, 2)
  },
)
