import { isDeepStrictEqual as isSame } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { parseFieldPath, trimFields, valueAt } from '../../src/query/projection.ts'

t.test('fields are sent as they are stored', async (t) => {
  const text =
    '{"_id":"a","n":1.0,"big":9007199254740993,"a":{"b":{"c":"x\\"}","d":[1,{"e":null}]},"f":-0},"x.y":"{[","q\\u0022":1,"list":[],"t":true}'
  const cases: [fields: string[], expected: string][] = [
    [['_id'], '{"_id":"a"}'],
    [['big', 'n'], '{"big":9007199254740993,"n":1.0}'],
    [['a.b.c'], '{"a":{"b":{"c":"x\\"}"}}}'],
    [['a.f', 'a.b.d'], '{"a":{"f":-0,"b":{"d":[1,{"e":null}]}}}'],
    [['a', 'a.f'], '{"a":{"b":{"c":"x\\"}","d":[1,{"e":null}]},"f":-0}}'],
    [['a.f', 'a'], '{"a":{"b":{"c":"x\\"}","d":[1,{"e":null}]},"f":-0}}'],
    [['x\\.y', 'q"', 't'], '{"x.y":"{[","q\\"":1,"t":true}'],
    [['a.b.d.1.e'], '{"a":{"b":{"d":{"1":{"e":null}}}}}'],
    [['a.b.d.2', 'list.0', 'n.x', 'nowhere', 'a.b.x'], '{}'],
    [
      ['a.b.d.1', 'a.b.d.0', 'a.b.d.01', 'a.b.d.x', 'a.b.d.1.e'],
      '{"a":{"b":{"d":{"1":{"e":null},"0":1,"01":{"e":null}}}}}',
    ],
    [['a.b.d.1.e', 'a.b.d.1', 'n', 'n'], '{"a":{"b":{"d":{"1":{"e":null}}}},"n":1.0}'],
  ]
  for (const [fields, expected] of cases) t.equal(trimFields(text, fields), expected, fields.join())
  t.equal(trimFields('{}', ['a']), '{}')
  t.throws(() => trimFields(text, ['a..b']), { code: 'invalid_field_name' })
})

t.test('the text of a field is the value that JSON.parse finds', async () => {
  const name = fc.string({ minLength: 1 }).filter((name) => !/[.\\]/.test(name) && name !== '__proto__')
  const member = fc.tuple(name, fc.jsonValue())
  fc.assert(
    fc.property(fc.array(member, { minLength: 1 }), fc.nat(), (members, at) => {
      const doc = Object.fromEntries(members) as Record<string, unknown>
      const [wanted] = members[at % members.length] as [string, unknown]
      const trimmed = trimFields(JSON.stringify(doc), [wanted, `${wanted}.x`])
      return trimmed === JSON.stringify({ [wanted]: doc[wanted] })
    }),
    { numRuns: 2000 },
  )
})

t.test('several fields together give the same values as each alone', async () => {
  const step = fc.constantFrom('a', 'b', '0', '1', 'x"')
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom<unknown>(1, null, 'te"x\\', '\\"]}', []),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b', '0', 'x"'), tie('value'), { maxKeys: 4 }),
    ),
  }))
  const paths = fc.array(fc.array(step, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(fc.dictionary(step, value), paths, (doc, paths) => {
      const text = JSON.stringify(doc)
      const stored = JSON.parse(text) as unknown
      const fields = paths.map((path) => path.join('.'))
      const together = JSON.parse(trimFields(text, fields)) as unknown
      return fields.every((field) => {
        const path = parseFieldPath(field)
        const wanted = valueAt(stored, path)
        const isFound = typeof wanted !== 'symbol'
        const alone = JSON.parse(trimFields(text, [field])) as unknown
        const expected = isFound
          ? path.reduceRight<unknown>((inner, name) => ({ [name]: inner }), wanted)
          : {}
        const actual = isFound
          ? path.reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], together)
          : 0
        return isSame(alone, expected) && (!isFound || isSame(actual, wanted))
      })
    }),
    { numRuns: 2000 },
  )
})
