import fc from 'fast-check'
import t from 'tap'
import { trimFields } from '../../src/changes/filter-fields.ts'

t.test('fields come as they were stored', async (t) => {
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
  ]
  for (const [fields, expected] of cases) t.equal(trimFields(text, fields), expected, fields.join())
  t.equal(trimFields('{}', ['a']), '{}')
  t.throws(() => trimFields(text, ['a..b']), { code: 'invalid_selector' })
})

t.test('a field’s text is what JSON.parse finds there', async () => {
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
