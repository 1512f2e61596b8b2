/** Views with their rows by partitions, against the rows of each partition in a sorted list. */
import fc from 'fast-check'
import t from 'tap'
import { compareJson } from '../../src/query/collation.ts'
import { ADMIN, type Json, openPartitioned } from '../documents/helpers.ts'
import { bodyOf, openViews, textOf } from './view-helpers.ts'

interface Row {
  readonly id: string
  readonly key: unknown
  readonly value: number
}

/** In the order of their bytes. Some begin like others, and two are equal for the collation. */
const PARTITIONS = ['A', 'a', 'a\0b', 'a b', 'aa', 'ab', 'b', 'é'].sort((a, b) =>
  Buffer.compare(Buffer.from(a), Buffer.from(b)),
)
const DOCS = 600
const MAP = 'function (doc) { for (const [key, value] of doc.rows) emit(key, value) }'
const VIEWS = {
  sum: { map: MAP, reduce: '_sum' },
  own: { map: MAP, reduce: 'function (keys, values) { return values.reduce((a, b) => a + b, 0) }' },
  raw: { map: MAP, reduce: '_sum', options: { collation: 'raw' } },
}

const byKey = (a: Row, b: Row) =>
  compareJson(a.key, b.key) || Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)) || a.value - b.value

function docsAndRows() {
  const rows: Row[] = []
  const docs = Array.from({ length: DOCS }, (_, n) => {
    const _id = `${PARTITIONS[n % PARTITIONS.length]}:${n % 97}-${n}`
    const emitted = Array.from({ length: n % 3 }, (_, at) => [[n % 5, n % 7], n + at] as const)
    for (const [key, value] of emitted) rows.push({ id: _id, key, value })
    return { _id, rows: emitted }
  })
  return { docs, rows: rows.sort(byKey) }
}

const partition = fc.constantFrom(...PARTITIONS, 'none')
const keys = fc.tuple(fc.nat(5), fc.nat(7)).map(([a, b]) => [a, b] as const)

t.test('each partition has its own rows', async (t) => {
  const { bulk, query } = await openViews(t, openPartitioned())
  const { docs, rows } = docsAndRows()
  await bulk({ docs: [...docs, { _id: '_design/d', views: VIEWS }] })
  const of = (name: string) => rows.filter(({ id }) => id.startsWith(`${name}:`))
  const before = (name: string) =>
    PARTITIONS.filter((other) => Buffer.compare(Buffer.from(other), Buffer.from(name)) < 0).reduce(
      (sum, other) => sum + of(other).length,
      0,
    )

  await t.test('map rows, with the number of all rows and of those before', (t) =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom('sum', 'raw'),
        partition,
        fc.option(keys, { nil: undefined }),
        fc.boolean(),
        fc.nat(60),
        fc.nat(40),
        async (view, name, start, descending, skip, limit) => {
          const all = of(name)
          const ordered = descending ? descend(all) : all
          const isIn = ({ key }: Row) =>
            start === undefined || compareJson(key, start) * (descending ? -1 : 1) >= 0
          const wanted = ordered.filter(isIn)
          const startkey = start === undefined ? {} : { startkey: start }
          const asked = { ...startkey, partition: name, descending, skip, limit, reduce: false }
          const answer = await query(view, asked)
          t.strictSame(answer.rows, wanted.slice(skip, skip + limit))
          t.equal(answer.total_rows, rows.length)
          const ahead = descending ? rows.length - before(name) - all.length : before(name)
          t.equal(answer.offset, ahead + ordered.length - wanted.length + Math.min(skip, wanted.length))
        },
      ),
      { numRuns: 60 },
    ),
  )

  await t.test('reductions and groups', (t) =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom('sum', 'own', 'raw'),
        partition,
        fc.constantFrom(0, 1, 2, 3),
        async (view, name, level) => {
          const sums = new Map<string, number>()
          for (const { key, value } of of(name)) {
            const group = level === 0 ? 'null' : JSON.stringify((key as unknown[]).slice(0, level))
            sums.set(group, (sums.get(group) ?? 0) + value)
          }
          const expected = [...sums].map(([key, value]) => ({ key: JSON.parse(key), value }))
          t.strictSame((await query(view, { partition: name, group_level: level })).rows, expected)
        },
      ),
      { numRuns: 30 },
    ),
  )

  await t.test('keys', (t) =>
    fc.assert(
      fc.asyncProperty(partition, fc.array(keys, { minLength: 2, maxLength: 6 }), async (name, asked) => {
        const expected = asked.flatMap((key) => of(name).filter((row) => compareJson(row.key, key) === 0))
        const answer = await query('sum', { partition: name, reduce: false }, { keys: asked })
        t.strictSame(answer.rows, expected)
        const grouped = await query('sum', { partition: name, group: true }, { keys: asked })
        const sumOf = (key: readonly number[]) => {
          const same = of(name).filter((row) => compareJson(row.key, key) === 0)
          return same.length === 0 ? [] : [{ key, value: same.reduce((sum, { value }) => sum + value, 0) }]
        }
        t.strictSame(grouped.rows, asked.flatMap(sumOf))
      }),
      { numRuns: 20 },
    ),
  )
})

/** The rows of one document with the same key stay in ascending order. */
function descend(rows: readonly Row[]): Row[] {
  const entries: Row[][] = []
  for (const row of rows) {
    const last = entries.at(-1)
    const [first] = last ?? []
    if (first !== undefined && first.id === row.id && compareJson(first.key, row.key) === 0) last?.push(row)
    else entries.push([row])
  }
  return entries.reverse().flat()
}

t.test('a changed document and a deleted one leave the rows of their partition', async (t) => {
  const { bulk, put, query } = await openViews(t, openPartitioned())
  await bulk({ docs: [{ _id: '_design/d', views: VIEWS }] })
  const first = await put('a:1', { rows: [[[1], 1]] })
  const second = await put('a:2', { rows: [[[1], 2]] })
  await put('b:1', { rows: [[[1], 4]] })
  const sumOf = async (partition: string) => (await query('sum', { partition })).rows[0]?.value
  t.strictSame([await sumOf('a'), await sumOf('b')], [3, 4])
  await put('a:1', { _rev: first, rows: [[[2], 8]] })
  await put('a:2', { _rev: second, _deleted: true })
  t.strictSame([await sumOf('a'), await sumOf('b')], [8, 4])
})

t.test('a design document decides whether its views have partitions', async (t) => {
  const { bulk, views } = await openViews(t, openPartitioned())
  const v = { map: 'function (doc) { emit(doc._id) }' }
  await bulk({
    docs: [
      { _id: '_design/global', options: { partitioned: false, include_design: true }, views: { v } },
      { _id: '_design/own', options: { partitioned: true }, views: { v } },
      { _id: '_design/usual', options: { include_design: true }, views: { v } },
      { _id: 'a:1' },
      { _id: 'b:1' },
    ],
  })
  const ask = async (ddoc: string, partition?: string): Promise<Json> => {
    const parameters = partition === undefined ? [] : [['partition', partition] as const]
    return JSON.parse(await textOf(views.view(ADMIN, `_design/${ddoc}`, 'v', parameters, null)))
  }
  const idsOf = ({ rows }: Json) => rows.map(({ id }: Json) => id)
  t.same(idsOf(await ask('global')), ['_design/global', '_design/own', '_design/usual', 'a:1', 'b:1'])
  t.same(idsOf(await ask('own', 'a')), ['a:1'])
  t.same(idsOf(await ask('usual', 'b')), ['b:1'], 'design documents have no partition')
  const queries = bodyOf({ queries: [{}, { partition: 'b' }] })
  const several = JSON.parse(
    await textOf(views.viewQueries(ADMIN, '_design/own', 'v', queries, [['partition', 'a']])),
  )
  t.same(several.results.map(idsOf), [['a:1'], ['b:1']])
  const mandatory = '`partition` parameter is mandatory for queries to this view.'
  await t.rejects(ask('own'), { code: 'query_parse_error', reason: mandatory })
  await t.rejects(ask('usual'), { code: 'query_parse_error', reason: mandatory })
  await t.rejects(ask('global', 'a'), {
    code: 'query_parse_error',
    reason: '`partition` parameter is not supported in this design doc',
  })
  await t.rejects(ask('own', '_a'), { code: 'illegal_partition' })
})
