/** `_all_docs`, `_design_docs`, `_local_docs`: protocol.md 8. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { kindRange, queryRange, rangeBefore } from '../../src/documents/all-docs-query.ts'
import type { AllDocsKind, AllDocsQuery } from '../../src/documents/database.ts'
import type { IdRange } from '../../src/storage/engine.ts'
import { compareBytes, idsInRange } from '../storage/memory/state.ts'
import { ADMIN, body, chunksOf, jsonOf, openDatabase, text } from './helpers.ts'

/** Live `a b c _design/d Z é`, a deleted `gone`, `_local/k _local/l`. */
async function stored() {
  const opened = await openDatabase()
  const revs = new Map<string, string>()
  for (const id of ['c', 'a', 'b', '_design/d', 'Z', 'é', '_local/l', '_local/k']) {
    revs.set(id, await opened.put(id, { of: id }))
  }
  const gone = await opened.database.remove(ADMIN, 'gone', await opened.put('gone', {}))
  revs.set('gone', gone.rev)
  const list = (query: AllDocsQuery = {}, kind: AllDocsKind = 'all') =>
    jsonOf(opened.database.allDocs(ADMIN, kind, query, null))
  const ids = async (query: AllDocsQuery, kind: AllDocsKind = 'all') =>
    (await list(query, kind)).rows.map((row: { key: unknown }) => row.key)
  const post = (request: unknown, query: AllDocsQuery = {}, kind: AllDocsKind = 'all') =>
    jsonOf(opened.database.allDocs(ADMIN, kind, query, body(request)))
  return { ...opened, revs, list, ids, post }
}

t.test('all live documents in byte order', async (t) => {
  const { list, revs } = await stored()
  const answer = await list()
  t.same([answer.total_rows, answer.offset], [6, 0])
  t.same(
    answer.rows,
    ['Z', '_design/d', 'a', 'b', 'c', 'é'].map((id) => ({ id, key: id, value: { rev: revs.get(id) } })),
  )
})

t.test('the text of an answer is CouchDB’s', async (t) => {
  const { database, put } = await openDatabase()
  t.equal(
    await text(database.allDocs(ADMIN, 'all', {}, null)),
    '{"total_rows":0,"offset":0,"rows":[\r\n\r\n]}\n',
  )
  const a = await put('a', {})
  await put('b', {})
  t.equal(
    await text(database.allDocs(ADMIN, 'all', {}, null)),
    `{"total_rows":2,"offset":0,"rows":[\r\n{"id":"a","key":"a","value":{"rev":"${a}"}},\r\n` +
      `{"id":"b","key":"b","value":{"rev":"${a}"}}\r\n]}\n`,
  )
})

const RANGES: [query: AllDocsQuery, ids: string[], offset: number][] = [
  [{ startKey: 'b' }, ['b', 'c', 'é'], 3],
  [{ startKey: 'aa' }, ['b', 'c', 'é'], 3],
  [{ endKey: 'a' }, ['Z', '_design/d', 'a'], 0],
  [{ endKey: 'a', inclusiveEnd: false }, ['Z', '_design/d'], 0],
  [{ startKey: 'a', endKey: 'b' }, ['a', 'b'], 2],
  [{ startKey: 'b', endKey: 'a' }, [], 3],
  [{ key: 'b' }, ['b'], 3],
  [{ key: 'b', inclusiveEnd: false }, ['b'], 3],
  [{ key: 'no' }, [], 5],
  [{ key: 'gone' }, [], 5],
  [{ descending: true }, ['é', 'c', 'b', 'a', '_design/d', 'Z'], 0],
  [{ descending: true, startKey: 'b' }, ['b', 'a', '_design/d', 'Z'], 2],
  [{ descending: true, startKey: 'b', endKey: 'a' }, ['b', 'a'], 2],
  [{ descending: true, startKey: 'b', endKey: 'a', inclusiveEnd: false }, ['b'], 2],
  [{ descending: true, startKey: 'a', endKey: 'b' }, [], 3],
  [{ descending: true, key: 'b' }, ['b'], 2],
  [{ limit: 2 }, ['Z', '_design/d'], 0],
  [{ limit: 0 }, [], 0],
  [{ skip: 4 }, ['c', 'é'], 4],
  [{ skip: 2, limit: 2 }, ['a', 'b'], 2],
  [{ skip: 100 }, [], 6],
  [{ startKey: 'b', skip: 1, limit: 1 }, ['c'], 4],
  [{ descending: true, skip: 1, limit: 2 }, ['c', 'b'], 1],
  [{ startKey: '_design/', endKey: '_design0' }, ['_design/d'], 1],
  [{ startKey: 'zz\uffff' }, ['é'], 5],
]

t.test('ranges, row by row', async (t) => {
  const { list } = await stored()
  for (const [query, ids, offset] of RANGES) {
    const answer = await list(query)
    t.same(
      answer.rows.map(({ id }: { id: string }) => id),
      ids,
      JSON.stringify(query),
    )
    t.same([answer.total_rows, answer.offset], [6, offset], JSON.stringify(query))
  }
})

t.test('a start of "2" over ids 0 to 3 has the offset 2', async (t) => {
  const { put, database } = await openDatabase()
  for (const id of ['0', '1', '2', '3']) await put(id, {})
  t.match(await jsonOf(database.allDocs(ADMIN, 'all', { startKey: '2' }, null)), { total_rows: 4, offset: 2 })
})

t.test('keys: a row a key in the given order, whatever there is', async (t) => {
  const { list, revs } = await stored()
  const keys = ['c', 'no', 'gone', 'a', 'c', 1, null]
  const rows = [
    { id: 'c', key: 'c', value: { rev: revs.get('c') } },
    { key: 'no', error: 'not_found' },
    { id: 'gone', key: 'gone', value: { rev: revs.get('gone'), deleted: true } },
    { id: 'a', key: 'a', value: { rev: revs.get('a') } },
    { id: 'c', key: 'c', value: { rev: revs.get('c') } },
    { key: 1, error: 'not_found' },
    { key: null, error: 'not_found' },
  ]
  t.same(await list({ keys }), { total_rows: 6, offset: null, rows })
  t.same((await list({ keys, descending: true })).rows, rows.toReversed())
  t.same((await list({ keys, skip: 1, limit: 2 })).rows, rows.slice(1, 3))
  t.same((await list({ keys: [] })).rows, [])
})

t.test('keys that can be no id match no document', async (t) => {
  const { put, database } = await openDatabase()
  await put('\ufffd', {})
  const answer = await text(database.allDocs(ADMIN, 'all', {}, body('{"keys":["\\ud800"]}')))
  t.match(answer, '{"key":"\\ud800","error":"not_found"}')
})

t.test('keys are not combined with a range', async (t) => {
  const { list } = await stored()
  const expected = {
    code: 'query_parse_error',
    reason: '`keys` is incompatible with `key`, `start_key` and `end_key`',
  }
  for (const other of [{ key: 'a' }, { startKey: 'a' }, { endKey: 'a' }]) {
    await t.rejects(list({ keys: ['a'], ...other }), expected)
  }
})

t.test('include_docs adds the winner, and null for a deleted one', async (t) => {
  const { list, replicate } = await stored()
  const { rows } = await list({ keys: ['a', 'gone', 'no'], includeDocs: true })
  t.match(rows[0].doc, { _id: 'a', of: 'a' })
  t.equal(rows[1].doc, null)
  t.notOk('doc' in rows[2])
  await replicate('x', { start: 2, ids: ['a'] }, { start: 2, ids: ['b'] })
  const query = { key: 'x', includeDocs: true }
  t.same((await list(query)).rows[0].doc, { _id: 'x', _rev: '2-b' })
  t.same((await list({ ...query, conflicts: true })).rows[0].doc._conflicts, ['2-a'])
})

t.test('attachments come with the documents when asked for', async (t) => {
  const { list, put } = await stored()
  await put('x', { _attachments: { f: { data: 'aGVsbG8=' } } })
  const fileOf = async (query: AllDocsQuery) =>
    (await list({ key: 'x', includeDocs: true, ...query })).rows[0].doc._attachments.f
  t.match(await fileOf({}), { stub: true })
  t.match(await fileOf({ attachments: true }), { data: 'aGVsbG8=' })
})

t.test('update_seq is a token, null with keys', async (t) => {
  const { list } = await stored()
  t.match((await list({ updateSeq: true })).update_seq, /^8-[0-9A-Za-z_-]+$/)
  t.equal((await list({ updateSeq: true, keys: [] })).update_seq, null)
  t.notOk('update_seq' in (await list()))
})

t.test('_design_docs are a kind of their own', async (t) => {
  const { list, ids, revs } = await stored()
  t.same(await list({}, 'design'), {
    total_rows: 1,
    offset: 0,
    rows: [{ id: '_design/d', key: '_design/d', value: { rev: revs.get('_design/d') } }],
  })
  t.same(await ids({ startKey: '_design/e' }, 'design'), [])
  t.same(await ids({ startKey: 'a', descending: true }, 'design'), ['_design/d'])
  t.same(await ids({ endKey: 'a' }, 'design'), ['_design/d'])
  t.same(await ids({ key: 'a' }, 'design'), [])
  t.same(await ids({ keys: ['a', '_design/d', '_design/no'] }, 'design'), ['_design/d', '_design/no'])
})

t.test('_local_docs have no counts', async (t) => {
  const { list, ids } = await stored()
  t.same(await list({ includeDocs: true, limit: 1 }, 'local'), {
    total_rows: null,
    offset: null,
    rows: [
      {
        id: '_local/k',
        key: '_local/k',
        value: { rev: '0-1' },
        doc: { _id: '_local/k', _rev: '0-1', of: '_local/k' },
      },
    ],
  })
  t.same(await ids({ descending: true }, 'local'), ['_local/l', '_local/k'])
  t.same(await ids({ skip: 1 }, 'local'), ['_local/l'])
  t.same(await ids({ key: '_local/l' }, 'local'), ['_local/l'])
  t.same(await ids({ startKey: 'a' }, 'local'), [])
  t.same(await ids({ keys: ['a', '_local/l', '_local/no'] }, 'local'), ['_local/l', '_local/no'])
})

t.test('a POST body has the parameters by CouchDB’s names, and the address overrides them', async (t) => {
  const { post } = await stored()
  const idsOf = (answer: { rows: { id: string }[] }) => answer.rows.map(({ id }) => id)
  t.equal(idsOf(await post({})).length, 6)
  t.same(idsOf(await post({ start_key: 'b', end_key: 'c' })), ['b', 'c'])
  t.same(idsOf(await post({ startkey: 'b', endkey: 'c', inclusive_end: false })), ['b'])
  t.equal(
    idsOf(await post({ startkey: 1, endkey: 'a' })).length,
    3,
    'what is no string stands before every id',
  )
  t.same(idsOf(await post({ startkey: 'b', descending: true, limit: 1, skip: 1 })), ['a'])
  t.same(idsOf(await post({ keys: null, key: 'a', unknown: 1, stale: 'ok' })), ['a'])
  t.same(idsOf(await post({ limit: 1 }, { limit: 2 })), ['Z', '_design/d'])
  const { rows, update_seq: seq } = await post({ key: 'a', include_docs: true, update_seq: true })
  t.match([rows[0].doc, seq], [{ of: 'a' }, /^8-/])
  t.match((await post({ keys: ['a'] })).rows, [{ id: 'a' }])
})

t.test('a POST body that is no good', async (t) => {
  const { post } = await stored()
  const cases: [request: unknown, code: string, reason?: string][] = [
    ['', 'invalid_json'],
    ['[]', 'body_not_object'],
    [{ keys: 1 }, 'bad_request', '`keys` body member must be an array.'],
    [{ keys: {} }, 'bad_request', '`keys` body member must be an array.'],
    [{ keys: [], key: 'a' }, 'query_parse_error'],
    [{ limit: -1 }, 'query_parse_error'],
    [{ limit: 1.5 }, 'query_parse_error'],
    [{ skip: '1' }, 'query_parse_error'],
    [{ descending: 1 }, 'query_parse_error'],
    [{ queries: [] }, 'bad_request', 'The `queries` parameter is no longer supported at this endpoint'],
    [{ reduce: true }, 'query_parse_error', 'Reduce is invalid for map-only views.'],
  ]
  for (const [request, code, reason] of cases) {
    await t.rejects(post(request), reason ? { code, reason } : { code }, JSON.stringify(request))
  }
})

t.test('a long list comes in pages, with no row twice or missing', async (t) => {
  const { bulk, database, put } = await openDatabase()
  const wanted = Array.from({ length: 1700 }, (_, n) => String(n).padStart(4, '0'))
  await bulk({ docs: wanted.map((_id) => ({ _id })) })
  for (let n = 0; n < 1100; n += 1) await put(`_local/${n}`, {})
  const all = await jsonOf(database.allDocs(ADMIN, 'all', {}, null))
  t.same(
    all.rows.map(({ id }: { id: string }) => id),
    wanted,
  )
  const part = await jsonOf(database.allDocs(ADMIN, 'all', { skip: 600, limit: 600, descending: true }, null))
  t.same(
    part.rows.map(({ id }: { id: string }) => id),
    wanted.toReversed().slice(600, 1200),
  )
  t.equal((await jsonOf(database.allDocs(ADMIN, 'local', { skip: 550 }, null))).rows.length, 550)
  const keys = await jsonOf(database.allDocs(ADMIN, 'all', { keys: wanted }, null))
  t.equal(keys.rows.length, 1700)
})

t.test('large documents make small pages, and no chunk is empty', async (t) => {
  const { bulk, database } = await openDatabase()
  await bulk({ docs: Array.from({ length: 20 }, () => ({ text: 'a'.repeat(100_000) })) })
  const chunks = await chunksOf(database.allDocs(ADMIN, 'all', { includeDocs: true }, null))
  t.ok(chunks.length >= 3)
  for (const { length } of chunks) t.ok(length > 0 && length < 800_000)
  t.equal(JSON.parse(Buffer.concat(chunks).toString()).rows.length, 20)
  const skipped = await chunksOf(database.allDocs(ADMIN, 'all', { skip: 1000 }, null))
  t.ok(skipped.every(({ length }) => length > 0))
})

t.test('queries override what the address says, and all are read before the first chunk', async (t) => {
  const { put, database } = await openDatabase()
  for (const id of ['a', 'b', 'c']) await put(id, {})
  const ask = (queries: unknown, asked = {}) =>
    jsonOf(database.allDocsQueries(ADMIN, 'all', asked, body({ queries })))
  const { results } = await ask([{ startkey: 'b' }, { limit: 1 }, {}], { limit: 2, descending: true })
  t.same(
    results.map(({ rows }: { rows: { id: string }[] }) => rows.map(({ id }) => id)),
    [['b', 'a'], ['c'], ['c', 'b']],
  )
  t.same(await ask([]), { results: [] })
  const refused = database.allDocsQueries(ADMIN, 'all', {}, body({ queries: [{}, { limit: 'x' }] }))
  await t.rejects(refused[Symbol.asyncIterator]().next(), { code: 'query_parse_error' })
  const stranger = { name: 'x', roles: [] }
  await t.rejects(jsonOf(database.allDocsQueries(stranger, 'all', {}, body({ queries: [] }))), {
    code: 'forbidden',
  })
})

// Ranges of ids agree with a plain filter over the sorted ids, for every query of every kind.

/** Ids near each other and near the borders of the kinds; surrogates sort otherwise in UTF-16. */
const ID = fc.constantFrom(
  '_design/',
  '_design/a',
  '_design/b',
  '_design/\u{1f600}',
  '_design0',
  '_design',
  '_local/',
  '_local/a',
  '_local/z',
  '_local0',
  'A',
  'Z',
  '_',
  'a',
  'aa',
  'b',
  '\uff00',
  '\u{1f600}',
  '0',
)
const KIND = fc.constantFrom<AllDocsKind>('all', 'design', 'local')
const QUERY: fc.Arbitrary<AllDocsQuery> = fc.record(
  {
    key: ID,
    startKey: ID,
    endKey: ID,
    inclusiveEnd: fc.boolean(),
    descending: fc.boolean(),
  },
  { requiredKeys: [] },
)

function isOfKind(kind: AllDocsKind, id: string): boolean {
  return kind === 'all' || id.startsWith(kind === 'design' ? '_design/' : '_local/')
}

/** The ids of a kind in the direction of a query. */
function ordered(kind: AllDocsKind, query: AllDocsQuery, ids: readonly string[]): string[] {
  const sorted = ids.filter((id) => isOfKind(kind, id)).sort(compareBytes)
  return query.descending ? sorted.reverse() : sorted
}

/** Where an id stands against a key in the direction of a query: negative before it. */
function place(query: AllDocsQuery, id: string, key: string): number {
  return compareBytes(id, key) * (query.descending ? -1 : 1)
}

function isAsked(query: AllDocsQuery, id: string): boolean {
  if (query.key !== undefined) return id === query.key
  if (query.startKey !== undefined && place(query, id, query.startKey) < 0) return false
  if (query.endKey === undefined) return true
  const order = place(query, id, query.endKey)
  return query.inclusiveEnd === false ? order < 0 : order <= 0
}

function idsOf(ids: readonly string[], range: IdRange | null): string[] {
  return range === null ? [] : idsInRange(ids, range)
}

t.test('a query’s range holds what a filter lets through, in the same order', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, QUERY, (ids, kind, query) => {
      const expected = ordered(kind, query, ids).filter((id) => isAsked(query, id))
      assert.deepEqual(idsOf(ids, queryRange(kind, query)), expected)
    }),
    { numRuns: 2000 },
  )
})

t.test('the range before a query holds what stands before its first key', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, QUERY, (ids, kind, query) => {
      const first = query.key ?? query.startKey
      const before = ordered(kind, query, ids).filter(
        (id) => first !== undefined && place(query, id, first) < 0,
      )
      return idsOf(ids, rangeBefore(kind, query)).length === before.length
    }),
    { numRuns: 2000 },
  )
})

t.test('a kind’s range holds the ids of the kind', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, (ids, kind) => {
      const found = idsOf(ids, kindRange(kind))
      return found.length === ids.filter((id) => isOfKind(kind, id)).length
    }),
  )
})
