import fc from 'fast-check'
import t from 'tap'
import { compareJson } from '../../src/query/collation.ts'
import { readViewQuery } from '../../src/query/view-query.ts'
import {
  mergeSorted,
  Runs,
  rowOrder,
  sortInSteps,
  stretchOf,
  type ViewRow,
} from '../../src/query/view-rows.ts'

const key = fc.oneof(fc.integer({ min: 0, max: 5 }), fc.constantFrom(null, 'a', 'B', 'b', [1], [1, 2], {}))
const row: fc.Arbitrary<ViewRow> = fc.record({
  id: fc.constantFrom('a', 'b', 'c', 'd'),
  seq: fc.constant(1),
  key,
  keyText: fc.constant(''),
  valueText: fc.constant(''),
})

const inOrder = (rows: readonly ViewRow[]) => rows.map((one) => `${JSON.stringify(one.key)} ${one.id}`)

t.test('merging runs gives the same list as sorting all rows, however the runs are cut', async (t) => {
  const property = fc.asyncProperty(fc.array(fc.array(row, { maxLength: 12 })), async (pages) => {
    const compare = rowOrder(compareJson)
    const runs = new Runs(compare)
    for (const page of pages) await runs.add(await sortInSteps([...page], compare))
    const all = pages.flat().sort(compare)
    t.strictSame(inOrder(await runs.all()), inOrder(all))
    t.strictSame(inOrder(await mergeSorted(all, [], compare)), inOrder(all))
  })
  await fc.assert(property, { numRuns: 200 })
})

t.test('sorting in steps gives the same list as a stable sort', async (t) => {
  const property = fc.asyncProperty(fc.array(row, { minLength: 300, maxLength: 1500 }), async (rows) => {
    const compare = rowOrder(compareJson)
    const sorted = [...rows].sort(compare)
    t.ok((await sortInSteps([...rows], compare)).every((one, at) => one === sorted[at]))
  })
  await fc.assert(property, { numRuns: 50 })
})

t.test('a stretch holds exactly the rows within the bounds', async (t) => {
  const bounds = fc.record({
    start: fc.option(key, { nil: undefined }),
    end: fc.option(key, { nil: undefined }),
    inclusiveEnd: fc.boolean(),
    descending: fc.boolean(),
  })
  const property = fc.property(fc.array(row), bounds, (unsorted, range) => {
    const rows = [...unsorted].sort(rowOrder(compareJson))
    const edge = (at: unknown) => (at === undefined ? undefined : { key: at, docId: undefined })
    const query = { ...readViewQuery([], null), ...range, start: edge(range.start), end: edge(range.end) }
    const { from, to } = stretchOf(rows, query, compareJson)
    const sign = range.descending ? -1 : 1
    const expected = rows.filter((one) => {
      const isBehind = range.start === undefined || sign * compareJson(one.key, range.start) >= 0
      const toEnd = range.end === undefined ? -1 : sign * compareJson(one.key, range.end)
      return isBehind && (toEnd < 0 || (toEnd === 0 && range.inclusiveEnd))
    })
    t.strictSame(inOrder(rows.slice(from, to)), inOrder(expected))
  })
  fc.assert(property, { numRuns: 500 })
})
