import t from 'tap'
import { readFindRequest } from '../../src/query/find-request.ts'
import { chooseIndex, explainChoice, type Plan } from '../../src/query/index-choice.ts'
import { indexesOf, type MangoIndex } from '../../src/query/mango-index.ts'
import { normalSelector } from '../../src/query/normal-selector.ts'

/** Indexes by `ddoc/name`, with their fields; a name that begins with `partial` has a filter. */
const INDEXES = indexesFrom({
  'A/a': ['a'],
  'AB/ab': ['a', 'b'],
  'AB/ba': ['b', 'a'],
  'C/c': ['c'],
  'N/nested': ['x.y'],
  'P/partial': ['a'],
  'P/partial2': ['c', 'a'],
  'Z/a': ['a'],
})

function indexesFrom(all: Readonly<Record<string, readonly string[]>>): MangoIndex[] {
  return Object.entries(all).flatMap(([path, names]) => {
    const [ddoc = '', name = ''] = path.split('/')
    const fields = Object.fromEntries(names.map((field) => [field, 'asc']))
    const filter = name.startsWith('partial') ? { partial_filter_selector: { q: { $gt: 1 } } } : {}
    const views = { [name]: { map: { fields, ...filter }, options: {} } }
    return indexesOf(`_design/${ddoc}`, { language: 'query', views }, false)
  })
}

type Json = Record<string, unknown>

function choose(members: Json): Plan {
  const request = readFindRequest(members, false, 25)
  return chooseIndex(request, normalSelector(request.selector), INDEXES)
}

function chosen(members: Json): string {
  const { index } = choose(members)
  return index == null ? '_all_docs' : `${index.ddoc.slice('_design/'.length)}/${index.name}`
}

t.test(
  'the index with the most fields of the selector is chosen, then the shortest, then by name',
  async (t) => {
    const cases: [members: Json, index: string][] = [
      [{ selector: { a: 1 } }, 'A/a'],
      [{ selector: { a: 1, b: 2 } }, 'AB/ab'],
      [{ selector: { a: 1, c: 2 } }, 'A/a'],
      [{ selector: { c: { $exists: true } } }, 'C/c'],
      [{ selector: { c: { $exists: false } } }, '_all_docs'],
      [{ selector: { 'x.y': { $gt: 1 } } }, 'N/nested'],
      [{ selector: { x: { y: 1 } } }, 'N/nested'],
      [{ selector: { a: { $regex: 'x' } } }, 'A/a'],
      [{ selector: { a: { $in: [1] }, b: 1 } }, 'AB/ba'],
      [{ selector: { $or: [{ a: 1 }, { a: 2 }] } }, 'A/a'],
      [{ selector: { $or: [{ a: 1 }, { b: 2 }] } }, '_all_docs'],
      [{ selector: { $or: [{ a: 1, c: 1 }, { c: 2 }] } }, 'C/c'],
      [{ selector: {} }, '_all_docs'],
      [{ selector: { d: 1 } }, '_all_docs'],
      // A sort decides which index can be used; its fields need no condition.
      [{ selector: { d: 1 }, sort: ['a'] }, 'A/a'],
      [{ selector: { d: 1 }, sort: ['a', 'b'] }, 'AB/ab'],
      [{ selector: { a: 1 }, sort: ['b'] }, 'AB/ab'],
      [{ selector: { a: { $gt: 1 }, b: 1 }, sort: ['a'] }, 'AB/ab'],
      [{ selector: { a: { $gt: 1 } }, sort: ['b', 'a'] }, 'AB/ba'],
      [{ selector: { _id: { $gt: null } }, sort: ['_id'] }, '_all_docs'],
      // An index with a filter is used only if it is named.
      [{ selector: { a: 1 }, use_index: 'P' }, 'P/partial'],
      [{ selector: { a: 1, c: 1 }, use_index: ['P', 'partial2'] }, 'P/partial2'],
      [{ selector: { a: 1 }, use_index: '_design/Z' }, 'Z/a'],
      [{ selector: { a: 1, b: 1 }, use_index: 'AB/ba' }, 'AB/ba'],
      [{ selector: { a: 1 }, use_index: 'none' }, 'A/a'],
      [{ selector: { a: 1 }, allow_fallback: false }, 'A/a'],
      [{ selector: { a: 1 }, use_index: 'Z', allow_fallback: false }, 'Z/a'],
    ]
    for (const [members, index] of cases) t.equal(chosen(members), index, JSON.stringify(members))
  },
)

t.test('the conditions become a range of keys', async (t) => {
  const cases: [selector: Json, low: unknown[] | null, high: unknown[] | null][] = [
    [{ a: 1 }, [1], [1]],
    [{ a: { $gt: 1, $lte: 5 } }, [1], [5]],
    [{ a: { $gt: 1 }, b: 2 }, [1, 2], []],
    [{ a: 1, b: { $lt: 'x' } }, [1], [1, 'x']],
    [{ a: 1, b: { $gte: 2, $gt: 1, $lt: 9, $lte: 8 } }, [1, 2], [1, 8]],
    [{ a: { $beginsWith: 'x' } }, ['x'], ['x\uffff']],
    [{ a: { $exists: true } }, [], []],
    [{ a: null }, [null], [null]],
    [{ $not: { a: { $lt: 3 } } }, [3], []],
    [{ a: { $gt: 3, $lt: 1 } }, null, null],
    [{ a: { $gt: 3, $lt: 3 } }, null, null],
    [{ a: 1, $and: [{ a: 2 }] }, null, null],
  ]
  for (const [selector, low, high] of cases) {
    const plan = choose({ selector })
    const expected = low === null ? null : { low, high }
    t.strictSame(plan.bounds, expected, JSON.stringify(selector))
    t.equal(plan.isEmpty, low === null)
  }
  for (const selector of [{ $or: [] }, { $and: [] }, { $nor: [] }]) t.ok(choose({ selector }).isEmpty)
  t.notOk(choose({ selector: { a: 1, $or: [] } }).isEmpty)
})

t.test('an index covers a query if it has the fields of the answer and of the selector', async (t) => {
  const covering = (members: Json) => choose({ selector: { a: 1 }, ...members }).covering
  t.equal(covering({ fields: ['a', '_id'] }), true)
  t.equal(covering({}), false)
  t.equal(covering({ fields: ['b'] }), false)
  t.equal(covering({ selector: { a: 1, b: 1 }, fields: ['a'] }), true)
  t.equal(covering({ selector: { a: 1, d: 1 }, fields: ['a'] }), false)
  t.equal(covering({ selector: { _id: 'x' }, fields: ['_id'] }), false)
})

t.test('an index that cannot be used is told in a warning or an error', async (t) => {
  t.strictSame(choose({ selector: { a: 1 }, use_index: 'none' }).warnings, [
    '_design/none was not used because it does not contain a valid index for this query.',
  ])
  t.strictSame(choose({ selector: { a: 1 }, use_index: ['C', 'c'] }).warnings, [
    '_design/C, c was not used because it is not a valid index for this query.',
  ])
  t.match(choose({ selector: { d: 1 } }).warnings, [/^No matching index found/])
  t.strictSame(choose({ selector: { a: 1 } }).warnings, [])
  const errors: [members: Json, code: string, message: RegExp][] = [
    [{ selector: { a: 1 }, sort: ['d'] }, 'no_usable_index', /^No index exists for this sort/],
    [{ selector: { d: 1 }, sort: ['_id'] }, 'no_usable_index', /sort/],
    [{ selector: { a: { $gt: 1 } }, sort: ['c', 'b'] }, 'no_usable_index', /sort/],
    [{ selector: { d: 1 }, allow_fallback: false }, 'invalid_index', /^You must specify an index/],
    [
      { selector: { d: 1 }, use_index: 'A', allow_fallback: false },
      'invalid_index',
      /^_design\/A specified by/,
    ],
    [
      { selector: { a: 1 }, use_index: ['A', 'b'], allow_fallback: false },
      'invalid_index',
      /^_design\/A, b specified by/,
    ],
  ]
  for (const [members, code, message] of errors) {
    t.throws(() => choose(members), { code, message }, JSON.stringify(members))
  }
})

t.test('_explain tells why each of the other indexes was not chosen', async (t) => {
  const request = readFindRequest({ selector: { a: 1, b: 1 }, fields: ['a'], use_index: 'AB' }, false, 25)
  const { candidates } = explainChoice(request, normalSelector(request.selector), INDEXES)
  t.strictSame(
    candidates.map(({ index, isUsable, reason, ranking, covering }) => [
      index?.name ?? '_all_docs',
      isUsable,
      reason,
      ranking,
      covering,
    ]),
    [
      ['a', true, 'excluded_by_user', 2, true],
      ['partial2', false, 'is_partial', 4, true],
      ['partial', false, 'is_partial', 4, true],
      ['nested', false, 'field_mismatch', 3, false],
      ['c', false, 'field_mismatch', 3, false],
      ['ba', true, 'alphabetically_comes_after', 1, true],
      ['a', true, 'excluded_by_user', 2, true],
      ['_all_docs', true, 'excluded_by_user', 2, null],
    ],
  )
})
