import fc from 'fast-check'
import { matchesSelector } from 'pouchdb-selector-core'
import t from 'tap'
import { compileSelector } from '../../src/query/selector.ts'

/**
 * Selectors in which PouchDB agrees with CouchDB. It differs in missing fields below a negation and for `$exists`, in
 * `$ne` and `$nin` of missing fields, in `$in` of arrays, in objects as values, in `$all` and in nested `$and`; and it collates by
 * the code units of strings.
 */
const FIELDS = ['a', 'b', 'c.d']
const value = fc.constantFrom<unknown>(null, false, true, -1, 0, 1, 2.5, 10, '', 'a', 'ab', 'b')
const condition = fc.oneof(
  fc
    .tuple(fc.constantFrom('$eq', '$lt', '$lte', '$gt', '$gte'), value)
    .map(([operator, arg]) => ({ [operator]: arg })),
  fc.constantFrom(
    ...['null', 'boolean', 'number', 'string', 'array', 'object'].map((each) => ({ $type: each })),
  ),
  fc.nat(3).map((size) => ({ $size: size })),
  fc.tuple(fc.constantFrom(1, 2, 3), fc.nat(2)).map((division) => ({ $mod: division })),
  fc.constantFrom({ $regex: '^a' }, { $regex: 'b$' }),
  fc.tuple(fc.constantFrom('$gt', '$lte'), value).map(([op, arg]) => ({ $elemMatch: { [op]: arg } })),
  fc.tuple(fc.constantFrom('$gt', '$lte'), value).map(([op, arg]) => ({ $allMatch: { [op]: arg } })),
)
const ofField = fc.tuple(fc.constantFrom(...FIELDS), condition).map(([field, one]) => ({ [field]: one }))
const selector = fc.oneof(
  ofField,
  fc.array(ofField, { minLength: 1, maxLength: 3 }).map((list) => ({ $or: list })),
  fc
    .uniqueArray(ofField, { minLength: 1, maxLength: 3, selector: (one) => Object.keys(one)[0] })
    .map((list) => ({
      $and: list,
    })),
)
const member = fc.oneof(value, fc.array(value, { maxLength: 3 }))
const doc = fc.record({ a: member, b: member, c: fc.record({ d: member }) })

t.test('a selector matches what it matches in PouchDB', async () => {
  fc.assert(
    fc.property(
      selector,
      doc,
      (selector, doc) => compileSelector(selector).matches(doc) === matches(doc, selector),
    ),
    { numRuns: 5000 },
  )
})

function matches(doc: object, selector: object): boolean {
  return matchesSelector(structuredClone(doc), structuredClone(selector))
}
