/** Pages and ranges of `_all_docs`, `_design_docs` and `_local_docs` (protocol.md 8), beyond the rows of test/surface. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type IdQuery, kindRange, queryRange, rangeBefore } from '../../src/documents/all-docs-query.ts'
import type { AllDocsKind } from '../../src/documents/database.ts'
import type { IdRange } from '../../src/storage/engine.ts'
import { compareBytes, idsInRange } from '../storage/memory/state.ts'
import { ADMIN, body, chunksOf, jsonOf, openDatabase, text } from './helpers.ts'

t.test('keys that are invalid ids match no document', async (t) => {
  const { put, database } = await openDatabase()
  await put('\ufffd', {})
  const answer = await text(database.allDocs(ADMIN, 'all', {}, body('{"keys":["\\ud800"]}')))
  t.match(answer, '{"key":"\\ud800","error":"not_found"}')
})

t.test('a long list is read in pages, without repeated or missing rows', async (t) => {
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

t.test('all queries are read before the first chunk', async (t) => {
  const { database } = await openDatabase()
  const refused = database.allDocsQueries(ADMIN, 'all', {}, body({ queries: [{}, { limit: 'x' }] }))
  await t.rejects(refused[Symbol.asyncIterator]().next(), { code: 'query_parse_error' })
  const stranger = { name: 'x', roles: [] }
  await t.rejects(jsonOf(database.allDocsQueries(stranger, 'all', {}, body({ queries: [] }))), {
    code: 'forbidden',
  })
})

// Ranges of ids agree with a plain filter over the sorted ids, for every query of every kind.

/** Ids close to each other and to the borders of the kinds; surrogates sort differently in UTF-16. */
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
const QUERY: fc.Arbitrary<IdQuery> = fc.record(
  {
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
function ordered(kind: AllDocsKind, query: IdQuery, ids: readonly string[]): string[] {
  const sorted = ids.filter((id) => isOfKind(kind, id)).sort(compareBytes)
  return query.descending ? sorted.reverse() : sorted
}

/** Compares an id with a key in the direction of a query: negative if the id is first. */
function place(query: IdQuery, id: string, key: string): number {
  return compareBytes(id, key) * (query.descending ? -1 : 1)
}

function isAsked(query: IdQuery, id: string): boolean {
  if (query.startKey !== undefined && place(query, id, query.startKey) < 0) return false
  if (query.endKey === undefined) return true
  const order = place(query, id, query.endKey)
  return query.inclusiveEnd === false ? order < 0 : order <= 0
}

function idsOf(ids: readonly string[], range: IdRange | null): string[] {
  return range === null ? [] : idsInRange(ids, range)
}

t.test('a query’s range has the ids that a filter passes, in the same order', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, QUERY, (ids, kind, query) => {
      const expected = ordered(kind, query, ids).filter((id) => isAsked(query, id))
      assert.deepEqual(idsOf(ids, queryRange(kind, query)), expected)
    }),
    { numRuns: 2000 },
  )
})

t.test('the range before a query has the ids before its first key', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, QUERY, (ids, kind, query) => {
      const first = query.startKey
      const before = ordered(kind, query, ids).filter(
        (id) => first !== undefined && place(query, id, first) < 0,
      )
      return idsOf(ids, rangeBefore(kind, query)).length === before.length
    }),
    { numRuns: 2000 },
  )
})

t.test('a kind’s range has the ids of the kind', async () => {
  fc.assert(
    fc.property(fc.uniqueArray(ID), KIND, (ids, kind) => {
      const found = idsOf(ids, kindRange(kind))
      return found.length === ids.filter((id) => isOfKind(kind, id)).length
    }),
  )
})
