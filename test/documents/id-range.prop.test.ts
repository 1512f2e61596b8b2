/** Ranges of ids agree with a plain filter over the sorted ids, for every query of every kind. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { kindRange, queryRange, rangeBefore } from '../../src/documents/all-docs-query.ts'
import type { AllDocsKind, AllDocsQuery } from '../../src/documents/database.ts'
import type { IdRange } from '../../src/storage/engine.ts'
import { compareBytes, idsInRange } from '../storage/memory/state.ts'

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
