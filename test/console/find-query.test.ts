/** The console's queries: bodies, values, explanations in words. */
import t from 'tap'
import {
  columnsFor,
  ExactNumber,
  fieldOf,
  parseExactly,
  shortText,
} from '../../console/src/screens/queries/exact-values.ts'
import {
  type Explanation,
  explainedQuery,
  nameOf,
  suggestedFields,
} from '../../console/src/screens/queries/explain-words.ts'
import { explainBody, pageBody, pageOf, sortFields } from '../../console/src/screens/queries/find-body.ts'
import { FIRST_OPTIONS, viewFaults, viewParameters } from '../../console/src/screens/queries/view-query.ts'

t.test('a page of a query, whose other members stay as they are written', async (t) => {
  const text = '{ "selector": {"n": 9007199254740993}, "limit": 10, "bookmark": "old", "x": 1.0 }'
  t.equal(
    pageBody(text, 'next'),
    '{"selector": {"n": 9007199254740993},"x": 1.0,"limit":10,"execution_stats":true,"bookmark":"next"}',
  )
  t.equal(explainBody(text), '{"selector": {"n": 9007199254740993},"x": 1.0}')
  t.equal(pageBody('{}', null), '{"limit":25,"execution_stats":true}')
  t.equal(pageOf('{"limit": 100000}'), 200, 'a page has a bound')
  t.match(pageBody('{"limit": "ten"}', null), '"limit":"ten"', 'the server says what is wrong')
  t.throws(() => pageBody('[', null), SyntaxError)
  t.same(sortFields('{"sort": ["a", {"b": "desc"}, 7]}'), ['a', 'b'])
})

t.test('values in a table', async (t) => {
  const [big] = parseExactly('[9007199254740993]') as [unknown]
  t.ok(big instanceof ExactNumber || big === 9007199254740992, 'exact where the engine tells the source')
  t.equal(shortText({ a: [1, 'x', null] }, 80), '{"a": [1, "x", null]}')
  t.equal(shortText('abcdef', 4), 'abc…')
  t.ok(
    shortText(
      Array.from({ length: 100_000 }, () => 'long'),
      50,
    ).length <= 50,
  )
  const docs = [
    { _id: '1', a: 1, b: { c: 2 } },
    { _id: '2', a: 1, rare: 1 },
  ]
  t.same(columnsFor(docs, []), ['a', 'b', 'rare'])
  t.same(columnsFor(docs, ['_id', 'b.c']), ['b.c'])
  t.equal(fieldOf(docs[0]!, 'b.c'), 2)
  t.equal(fieldOf(docs[0]!, 'b.c.d'), undefined)
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`f${n}`, n]))
  t.equal(columnsFor([many], []).length, 7)
})

const base: Explanation = {
  index: { ddoc: null, name: '_all_docs', type: 'special', def: { fields: [{ _id: 'asc' }] } },
  mrargs: { start_key: null, end_key: '<MAX>', direction: 'fwd', partition: null },
  index_candidates: [],
  selector_hints: [{ indexable_fields: ['type'], unindexable_fields: ['text'] }],
}

t.test('explanations in words', async (t) => {
  const scan = explainedQuery(base)
  t.ok(scan.isFullScan)
  t.match(scan.steps[0], /every document/)
  t.match(scan.steps[1], /“type”, “text”/)
  const ids = explainedQuery({ ...base, mrargs: { ...base.mrargs!, start_key: 'a', end_key: 'b' } })
  t.notOk(ids.isFullScan)
  t.match(ids.steps[0], /from “a” to “b”/)
  const index = { ddoc: '_design/by', name: 'type', type: 'json', def: { fields: [{ type: 'asc' }] } }
  const used: Explanation = {
    ...base,
    index,
    mrargs: { start_key: ['task'], end_key: ['task', '<MAX>'], direction: 'rev', partition: 'p' },
    index_candidates: [{ index, analysis: { usable: false, reasons: [{ name: 'field_mismatch' }] } }],
  }
  const { steps, others } = explainedQuery(used)
  t.match(steps[0], /by \/ type on type, and reads the entries for “task”/)
  t.match(steps.join(' '), /partition “p”.*backwards.*checks “text”/)
  t.match(others, [{ name: 'by / type', reason: /no condition/ }])
  const digest = '458b331165753cc426af26b56eb49bb468c9d85c'
  t.equal(nameOf({ ddoc: `_design/${digest}`, name: digest }), '458b3311…')
  t.same(suggestedFields(base, ['created']), ['created', 'type'])
})

t.test('the parameters of a view', async (t) => {
  const between = { ...FIRST_OPTIONS, range: 'between', startKey: '["a"]', endKey: '' } as const
  t.same(viewFaults(between), [])
  t.same(viewFaults({ ...between, startKey: 'a' }), ['startKey'])
  t.same(viewFaults({ ...FIRST_OPTIONS, range: 'key' }), ['key'])
  t.match(viewParameters(between, false, 50), {
    start_key: '["a"]',
    end_key: undefined,
    limit: '51',
    skip: '50',
  })
  const down = viewParameters({ ...between, isDescending: true, grouping: '2' }, true, 0)
  t.match(down, {
    start_key: undefined,
    end_key: '["a"]',
    descending: 'true',
    group_level: '2',
    reduce: 'true',
  })
})
