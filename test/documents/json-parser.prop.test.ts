/** The parser of long bodies: as JSON.parse, whatever the text, and refusing early what may not stand in it. */
import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { checkSchema, JsonParser, type Schema } from '../../src/documents/json-parser.ts'
import { bodyObject } from '../../src/documents/request-body.ts'

function parse(text: string, shape: Schema = {}, maxValues = 1e9): unknown {
  const parser = new JsonParser(text, shape, maxValues)
  while (!parser.advance(() => true));
  return parser.value
}

function outcome(read: () => unknown): unknown {
  try {
    return { value: read() }
  } catch (error) {
    return error instanceof CouchError || error instanceof SyntaxError ? 'refused' : error
  }
}

const spaces = fc.string({ unit: fc.constantFrom(' ', '\n', '\t', '\r'), maxLength: 2 })
const text = fc
  // JSON.parse mistakes names where one holds a backslash (docs/gotchas.md).
  .tuple(
    fc.json({ noUnicodeString: false, maxDepth: 5 }).filter((json) => !json.includes('\\\\')),
    spaces,
    fc.constantFrom(0, 1),
  )
  .map(([json, space, indent]) => space + JSON.stringify(JSON.parse(json), null, indent) + space)
const names = fc.constantFrom('__proto__', 'constructor', '0', '7', 'a', 'toString', '\u{1f600}')
const twins = fc
  .array(fc.tuple(names, fc.jsonValue({ maxDepth: 1 })), { maxLength: 8 })
  .map((members) => `{${members.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)}}`)
const tokens = fc
  .array(
    fc.constantFrom(
      ...[
        '{',
        '}',
        '[',
        ']',
        ',',
        ':',
        '"a"',
        '"\\u00e9"',
        '"\\x"',
        '"',
        '\\',
        '1',
        '-0',
        '01',
        '1.',
        '1e400',
      ],
      ...['true', 'nul', 'null', ' ', '\u0000', '"\n"', '\ufeff', '"\\ud800"', '{}', '[]', '"a":'],
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''))
const cut = fc.tuple(text, fc.nat(), fc.nat()).map(([json, from, length]) => {
  const start = from % (json.length + 1)
  return json.slice(0, start) + json.slice(start + (length % 3))
})

t.test('every text gives what JSON.parse gives, or is refused by both', async () => {
  fc.assert(
    fc.property(fc.oneof(text, twins, tokens, cut), (json) => {
      deepEqual(
        outcome(() => parse(json)),
        outcome(() => JSON.parse(json)),
      )
    }),
    { numRuns: 3000 },
  )
})

t.test('a shape refuses the same in a text and in its value', async () => {
  const refuse = (kind: string) => (value: unknown) => {
    if (typeof value === kind) throw new CouchError('bad_request', kind)
  }
  const shape: Schema = {
    maxCount: 3,
    check: refuse('boolean'),
    members: { a: { maxCount: 2, elements: { check: refuse('string') } }, 7: { check: refuse('object') } },
    others: { others: { check: refuse('number') } },
  }
  const shaped = fc
    .dictionary(fc.constantFrom('a', 'b', '7', 'c', 'd'), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 })
    .map((value) => JSON.stringify(value))
  fc.assert(
    fc.property(shaped, (json) => {
      const isRefused = outcome(() => parse(json, shape)) === 'refused'
      equal(outcome(() => checkSchema(JSON.parse(json), shape)) === 'refused', isRefused, json)
    }),
  )
})

t.test('a value of the wrong kind is refused where it begins', async (t) => {
  const seen: unknown[] = []
  const strings: Schema = {
    others: {
      elements: {
        check: (value) => {
          seen.push(value)
          if (typeof value !== 'string') throw new CouchError('invalid_rev')
        },
      },
    },
  }
  t.throws(() => parse('{"a":["b",{"c":[1,2', strings), { code: 'invalid_rev' })
  t.same(seen, ['b', {}])
})

t.test('values, entries, lengths and levels are bounded', async (t) => {
  t.same(parse('[1,{"a":2}]', {}, 4), [1, { a: 2 }])
  t.throws(() => parse('[1,{"a":2}]', {}, 3), { code: 'too_large', reason: /at most 3 JSON values/ })
  t.throws(() => parse('[1,2,3', { maxCount: 2 }), { code: 'too_large', reason: /at most 2 entries/ })
  const long = { elements: { maxLength: 10 } }
  t.same(parse('[[1,2,3,4],"more than ten"]', long), [[1, 2, 3, 4], 'more than ten'])
  t.throws(() => parse('[[1,2,3,4,5]]', long), { code: 'too_large' })
  t.same(parse('['.repeat(512) + ']'.repeat(512)), JSON.parse('['.repeat(512) + ']'.repeat(512)))
  t.throws(() => parse('['.repeat(513)), { code: 'too_deep' })
  for (const token of [`"${'a'.repeat(2 ** 21)}"`, `"${'\\n'.repeat(2 ** 20)}"`, '7'.repeat(2 ** 21 + 1)]) {
    t.throws(() => parse(`[${token}]`), { code: 'too_large' }, token.slice(0, 4))
  }
  t.throws(() => parse(`["${'\\n'.repeat(2 ** 18)}`), { code: 'invalid_json' })
})

t.test('a long body is read in slices, others have their turns, and it is the same value', async (t) => {
  const value = Object.fromEntries(Array.from({ length: 40_000 }, (_, n) => [`né-${n}€`, [`1-${n}`]]))
  const bytes = Buffer.from(JSON.stringify(value))
  let turns = 0
  let isDone = false
  const count = () => {
    turns += 1
    if (!isDone) setImmediate(count)
  }
  count()
  const read = await bodyObject({ bytes })
  isDone = true
  t.strictSame(read, value)
  t.ok(turns > 2, `${turns} turns`)
  await t.rejects(bodyObject({ bytes: Buffer.from(`[${'1,'.repeat(40_000)}1]`) }), {
    code: 'body_not_object',
  })
  await t.rejects(bodyObject({ bytes: Buffer.alloc(40_000, 0xc3) }), { code: 'invalid_json' })
  const many = Buffer.from(`{"a":[${'{},'.repeat(200_000)}{}]}`)
  await t.rejects(bodyObject({ bytes: many }), { code: 'too_large', reason: /at most 200000 JSON values/ })
  await t.rejects(bodyObject({ bytes: Buffer.alloc(2 ** 24 + 1) }), { code: 'too_large' })
})
