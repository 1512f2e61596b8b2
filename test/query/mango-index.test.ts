import t from 'tap'
import { generatedName } from '../../src/query/index-name.ts'
import { indexesOf, indexKeys, shownIndex } from '../../src/query/mango-index.ts'

function keyOf(fields: readonly string[], doc: string, filter?: Record<string, unknown>): string | null {
  const named = fields.map((field) => [field, 'asc'] as const)
  return indexKeys({ fields: named, partialFilter: filter ?? null })('x', doc)?.text ?? null
}

t.test('a document has the key of its fields, exactly as it has them', async (t) => {
  const doc =
    '{"_id":"x","_rev":"1-a","a":1.0,"b":{"c":[10,{"d":"\\u00e4"}],"e":null},"f.g":{},"n":9007199254740993}'
  t.equal(keyOf(['a'], doc), '[1.0]')
  t.equal(keyOf(['n', 'b.e', '_id'], doc), '[9007199254740993,null,"x"]')
  t.equal(keyOf(['b.c.1.d', 'b.c', 'f\\.g'], doc), '["\\u00e4",[10,{"d":"\\u00e4"}],{}]')
  t.equal(keyOf(['a', 'no'], doc), null, 'a document without a field is not in the index')
  t.equal(keyOf(['a.b'], doc), null)
  t.equal(keyOf(['b.c.2'], doc), null)
  t.equal(keyOf([], doc), '[]')
  t.equal(keyOf(['a..b'], doc), null, 'an index with a malformed name is empty')
  t.strictSame(indexKeys({ fields: [['a', 'asc']], partialFilter: null })('x', doc)?.values, [1])
})

t.test('design documents and documents that the filter excludes are not in an index', async (t) => {
  t.equal(keyOf(['a'], '{"a":1,"b":2}', { b: { $gt: 1 } }), '[1]')
  t.equal(keyOf(['a'], '{"a":1,"b":1}', { b: { $gt: 1 } }), null)
  t.equal(keyOf(['a'], '{"a":1}', { b: { $exists: false } }), '[1]')
  t.equal(indexKeys({ fields: [['a', 'asc']], partialFilter: null })('_design/d', '{"a":1}'), null)
})

t.test('a filter that is not valid is an error of the query that names the index', async (t) => {
  t.throws(() => keyOf(['a'], '{"a":1}', { a: { $foo: 1 } }), { code: 'invalid_operator' })
})

t.test('a design document of the language query has indexes, however it was written', async (t) => {
  const map = { fields: { a: 'asc', 'b.c': 'asc' }, partial_filter_selector: { x: { $eq: 1 } } }
  const views = {
    full: { map, reduce: '_count', options: { def: {} } },
    plain: { map: { fields: { a: 'desc' }, partial_filter_selector: {} }, options: {} },
    older: { map: { fields: { a: 'asc' }, selector: { y: 2 } }, options: {} },
    numbered: { map: { fields: { 7: 'asc', a: 'asc' } }, options: { def: { fields: ['a', { 7: 'asc' }] } } },
    withoutOptions: { map },
    withoutFields: { map: {}, options: {} },
    list: { map: { fields: ['a'] }, options: {} },
    unknown: { map: { fields: { a: 'asc' }, partial_filter_selector: { a: { $foo: 1 } } }, options: {} },
  }
  const found = indexesOf('_design/d', { language: 'query', views }, false)
  t.strictSame(
    found.map(({ name, fields, partialFilter }) => [name, fields.map(([field]) => field), partialFilter]),
    [
      ['full', ['a', 'b.c'], { x: { $eq: 1 } }],
      ['plain', ['a'], null],
      ['older', ['a'], { y: 2 }],
      ['numbered', ['a', '7'], null],
      ['unknown', ['a'], { a: { $foo: 1 } }],
    ],
  )
  t.strictSame(found.slice(0, 2).map(shownIndex), [
    {
      ddoc: '_design/d',
      name: 'full',
      type: 'json',
      partitioned: false,
      def: { fields: [{ a: 'asc' }, { 'b.c': 'asc' }], partial_filter_selector: { x: { $eq: 1 } } },
    },
    { ddoc: '_design/d', name: 'plain', type: 'json', partitioned: false, def: { fields: [{ a: 'desc' }] } },
  ])
  t.strictSame(indexesOf('_design/d', { language: 'javascript', views }, false), [])
  t.strictSame(indexesOf('_design/d', { views }, false), [])
})

t.test('an index without a name gets the name that CouchDB gives it', async (t) => {
  const options = { ddoc: undefined, name: undefined, partitioned: undefined, type: 'json', w: 2 }
  const cases: [def: unknown, more: Partial<typeof options> & object, name: string][] = [
    [{ fields: ['a'] }, {}, '7095fd2321a986309496ad2ac9c3498246175757'],
    [{ fields: [{ a: 'desc' }] }, {}, '664c20c75b0977128129743277f75c9ff14b7d77'],
    [{ fields: [] }, {}, '16d64bc5aa5ac9a0662f02b45a7d70d4a6923ccc'],
    [{ fields: ['b'] }, { w: 3 }, '4ce1da927d5ec2f424bf589d26386ac1635544d3'],
  ]
  for (const [def, more, name] of cases) t.equal(generatedName(def, { ...options, ...more }), name)
  const given = { ...options, name: 'pf', partitioned: false }
  t.equal(generatedName({ fields: ['b'] }, given), 'bf3d0dd15667ddb844a452fccaad8f4addc9c87f')
  const filter = {
    n: { $in: [1, 2.5, 1000, -5, 5_000_000_000, 'é', true, null, [1, 300], []] },
  }
  t.equal(
    generatedName({ fields: ['q'], partial_filter_selector: filter }, options),
    'c5c0bdd3d1ef052bfb0fcc014d1ba7e71a3de1d9',
  )
})
