/** Queries of a view over some thousand rows, against the same rows in a sorted list. */
import fc from 'fast-check'
import t from 'tap'
import { compareJson } from '../../src/query/collation.ts'
import type { Json } from '../documents/helpers.ts'
import { openViews } from './view-helpers.ts'

interface Row {
  readonly id: string
  readonly key: unknown
  readonly value: number
}

const DOCS = 900

/** Some documents have no row, most one, some three, and two of these with the same key. */
function emittedBy(n: number): readonly [key: unknown, value: number][] {
  if (n % 10 === 0) return []
  const key = n % 3 === 0 ? [n % 4, n % 7] : [n % 4, n % 7, n % 2 === 0 ? 'A' : 'a']
  return n % 5 === 0
    ? [
        [n % 11, n],
        [n % 11, n + 1],
        [key, n],
      ]
    : [[key, n]]
}

const MAP = `function (doc) { for (const [key, value] of doc.rows) emit(key, value) }`
const VIEWS = {
  count: { map: MAP, reduce: '_count' },
  stats: { map: MAP, reduce: '_stats' },
  distinct: { map: MAP, reduce: '_approx_count_distinct' },
  first: { map: MAP, reduce: '_first' },
  own: { map: MAP, reduce: 'function (keys, values, re) { return values.reduce((a, b) => a + b, 0) }' },
}

type Reduce = (rows: readonly Row[]) => unknown

const REDUCES: Readonly<Record<keyof typeof VIEWS, Reduce>> = {
  count: (rows) => rows.length,
  stats: (rows) => {
    const values = rows.map(({ value }) => value)
    const sum = values.reduce((a, b) => a + b, 0)
    const sumsqr = values.reduce((a, b) => a + b * b, 0)
    return { sum, count: values.length, min: Math.min(...values), max: Math.max(...values), sumsqr }
  },
  distinct: (rows) => new Set(rows.map(({ key }) => JSON.stringify(key))).size,
  first: ([row]) => row?.value,
  own: (rows) => rows.reduce((sum, { value }) => sum + value, 0),
}

const byKey = (a: Row, b: Row) =>
  compareJson(a.key, b.key) || Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)) || a.value - b.value

/** The rows of an answer: those of one document with the same key keep their order when a query is descending. */
function expectedRows(rows: readonly Row[], query: Json): Row[] {
  const { startkey, endkey, inclusive_end: inclusive = true, descending = false, keys } = query
  const [low, high] = descending ? [endkey, startkey] : [startkey, endkey]
  const isIn = ({ key }: Row) => {
    const above = low === undefined ? 1 : compareJson(key, low)
    const below = high === undefined ? -1 : compareJson(key, high)
    const isOpenEnd = !inclusive && (descending ? above === 0 : below === 0)
    return above >= 0 && below <= 0 && !isOpenEnd
  }
  if (keys !== undefined) {
    const ordered = descending ? keys.toReversed() : keys
    return ordered.flatMap((key: unknown) =>
      directed(
        rows.filter((row) => compareJson(row.key, key) === 0),
        descending,
      ),
    )
  }
  return directed(rows.filter(isIn), descending)
}

function directed(rows: readonly Row[], descending: boolean): Row[] {
  if (!descending) return [...rows]
  const entries: Row[][] = []
  for (const row of rows) {
    const last = entries.at(-1)?.[0]
    if (last !== undefined && last.id === row.id && compareJson(last.key, row.key) === 0)
      entries.at(-1)?.push(row)
    else entries.push([row])
  }
  return entries.toReversed().flat()
}

function groupsOf(rows: readonly Row[], level: number | 'exact' | 'none'): { key: unknown; rows: Row[] }[] {
  const groups: { key: unknown; rows: Row[] }[] = []
  const keyOf = ({ key }: Row) =>
    level === 'none' ? null : typeof level === 'number' && Array.isArray(key) ? key.slice(0, level) : key
  for (const row of rows) {
    const last = groups.at(-1)
    if (last !== undefined && compareJson(last.key, keyOf(row)) === 0) last.rows.push(row)
    else groups.push({ key: keyOf(row), rows: [row] })
  }
  for (const { rows } of groups) rows.sort(byKey)
  return groups
}

const key = fc.oneof(
  fc.constantFrom<unknown>(null, 3, 'x', [], {}),
  fc.nat(12),
  fc.tuple(fc.nat(4), fc.nat(7)),
  fc.tuple(fc.nat(4), fc.nat(7), fc.constantFrom('a', 'A')),
)
const range = fc.record(
  { startkey: key, endkey: key, inclusive_end: fc.boolean(), descending: fc.boolean() },
  { requiredKeys: [] },
)
const paging = fc.record({ skip: fc.nat(1200), limit: fc.nat(700) }, { requiredKeys: [] })
const grouping = fc.constantFrom<Json>(
  {},
  { group: true },
  { group_level: 1 },
  { group_level: 2 },
  { group_level: 3 },
)

t.test('queries of many rows', async (t) => {
  const { bulk, put, query } = await openViews(t)
  await put('_design/d', { views: VIEWS })
  const rows: Row[] = []
  const docs = Array.from({ length: DOCS }, (_, n) => {
    const id = `doc${(n * 7919) % 1000}-${n}`
    const emitted = emittedBy(n)
    for (const [key, value] of emitted) rows.push({ id, key, value })
    return { _id: id, rows: emitted }
  })
  await bulk({ docs })
  rows.sort(byKey)
  const plain = ({ id, key, value }: Row) => ({ id, key, value })
  const isPossible = ({ startkey, endkey, descending }: Json) =>
    startkey === undefined ||
    endkey === undefined ||
    compareJson(startkey, endkey) * (descending ? -1 : 1) <= 0
  await t.test('map rows', (t) =>
    fc.assert(
      fc.asyncProperty(range.filter(isPossible), paging, async (where, { skip = 0, limit = DOCS * 3 }) => {
        const expected = expectedRows(rows, where)
        const answer = await query('count', { ...where, skip, limit, reduce: false })
        t.strictSame(answer.rows, expected.slice(skip, skip + limit).map(plain))
        t.equal(answer.total_rows, rows.length)
        const [first] = expected
        const before = where.descending ? rows.toReversed() : rows
        if (first !== undefined) {
          const at = before.findIndex((row) => row.id === first.id && compareJson(row.key, first.key) === 0)
          t.equal(answer.offset, Math.min(rows.length, at + skip))
        }
      }),
      { numRuns: 60 },
    ),
  )
  await t.test('keys', (t) =>
    fc.assert(
      fc.asyncProperty(
        fc.array(key, { minLength: 2 }),
        fc.boolean(),
        paging,
        async (keys, descending, { skip = 0, limit = DOCS }) => {
          const expected = expectedRows(rows, { keys, descending }).slice(skip, skip + limit)
          const answer = await query('count', { skip, limit, descending, reduce: false }, { keys })
          t.strictSame(answer.rows, expected.map(plain))
        },
      ),
      { numRuns: 40 },
    ),
  )
  for (const [name, reduce] of Object.entries(REDUCES)) {
    await t.test(name, (t) =>
      fc.assert(
        fc.asyncProperty(range.filter(isPossible), grouping, fc.nat(3), async (where, groups, skip) => {
          const level = groups.group ? 'exact' : (groups.group_level ?? 'none')
          const expected = groupsOf(expectedRows(rows, where), level).slice(skip, skip + 20)
          const answer = await query(name, { ...where, ...groups, skip, limit: 20 })
          t.strictSame(
            answer.rows,
            expected.map(({ key, rows }) => ({ key, value: reduce(rows) })),
          )
        }),
        { numRuns: 25 },
      ),
    )
  }
})
