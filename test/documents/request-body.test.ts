/** The parser of long bodies equals JSON.parse for every text, and refuses invalid values early. */
import { deepEqual, equal } from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { checkSchema, JsonParser, type Schema } from '../../src/documents/json-parser.ts'
import { type BulkBody, bodyObject, readAnyBulk, readPlainBulk } from '../../src/documents/request-body.ts'
import { damaged, damages } from './damage.ts'

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
  // JSON.parse confuses names if one contains a backslash (docs/gotchas.md).
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

t.test('every text has the result of JSON.parse, or both refuse it', async () => {
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

t.test('a schema refuses the same in a text and in its value', async () => {
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

t.test('a long body is read in slices, other work has its turns, and the value is the same', async (t) => {
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

// Bodies of `_bulk_docs` have the same result in one pass as when the spans of documents are found first.

const space = fc.oneof(
  { weight: 4, arbitrary: fc.constant('') },
  fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 2 }),
)
const name = fc.oneof(
  fc.constantFrom('a', 'b', '_id', '_rev', '_deleted', '_revisions', '_access'),
  fc.string({ unit: 'binary', maxLength: 4 }).filter((s) => s.isWellFormed()),
)
const value = fc.oneof(
  fc.integer(),
  fc.string({ unit: fc.constantFrom('"', '\\', ']', '}', ',', 'é', '\u{1f600}', 'a'), maxLength: 20 }),
  fc.constantFrom(true, null, [], {}, [{ a: [1] }], { start: 2, ids: ['b', 'a'] }),
)
const doc = fc.tuple(fc.array(fc.tuple(name, value), { maxLength: 5 }), space).map(([members, gap]) => {
  const texts = members.map(([key, one]) => `${JSON.stringify(key)}${gap}:${gap}${JSON.stringify(one)}`)
  return `{${gap}${texts.join(`${gap},${gap}`)}${gap}}`
})
const flag = fc.constantFrom('', '', '"new_edits":true', '"new_edits":false', '"new_edits":0', '"w":1')
const body = fc
  .tuple(flag, fc.array(doc, { maxLength: 4 }), flag, space)
  .map(([before, docs, after, gap]) => {
    const members = [before, `"docs"${gap}:${gap}[${gap}${docs.join(`${gap},${gap}`)}${gap}]`, after]
    return `${gap}{${gap}${members.filter(Boolean).join(`${gap},${gap}`)}${gap}}${gap}`
  })

async function contents(bulk: BulkBody): Promise<unknown> {
  const docs: unknown[] = []
  for (let at = 0; at < bulk.count; at += 1) {
    const { special, body } = await bulk.split(at)
    docs.push({ special, body })
  }
  return { docs, newEdits: bulk.newEdits, allOrNothing: bulk.allOrNothing, isInMemory: bulk.isInMemory }
}

t.test('a body that is read in one pass has the documents of its spans', async (t) => {
  let compared = 0
  await fc.assert(
    fc.asyncProperty(body, async (text) => {
      const bytes = Buffer.from(text)
      const plain = await readPlainBulk({ bytes })
      if (plain === null) return
      compared += 1
      deepEqual(await contents(plain), await contents(await readAnyBulk({ bytes })))
    }),
    { numRuns: 5000 },
  )
  t.ok(compared > 1500, String(compared))
})

t.test('a damaged body is read in one pass only if it can be read by its spans', async (t) => {
  const seen = { plain: 0, other: 0 }
  await fc.assert(
    fc.asyncProperty(body, damages('\ufeff', '"docs":[],'), async (text, edits) => {
      const sent = damaged(text, edits)
      const bytes = Buffer.from(sent)
      const plain = await readPlainBulk({ bytes })
      seen[plain === null ? 'other' : 'plain'] += 1
      if (plain === null) return
      deepEqual(await contents(plain), await contents(await readAnyBulk({ bytes })), sent)
    }),
    { numRuns: 5000 },
  )
  t.ok(seen.plain > 100 && seen.other > 1000, JSON.stringify(seen))
})

t.test('bodies that are read in one pass', async (t) => {
  const read = (text: string | Uint8Array) => readPlainBulk({ bytes: Buffer.from(text) })
  t.match(await read('{"docs":[{"_id":"a"},{}],"new_edits":false}'), { newEdits: false, count: 2 })
  t.match(await read(' { "new_edits" : false , "docs" : [ { } ] } '), { newEdits: false, count: 1 })
  t.match(
    await read('{"new_edits":false,"docs":[{}],"new_edits":true}'),
    { newEdits: true },
    'the last counts',
  )
  t.match(await read('{"docs":[{}]}'), { newEdits: true, allOrNothing: false, isInMemory: true })
  t.equal((await read('{"docs":[{},{"a":"b"}]}'))?.size(1), 9)
})

t.test('other work has its turns while a body of many documents is read', async (t) => {
  const bytes = Buffer.from(`{"docs":[{}${',{}'.repeat(340_000)}]}`)
  let turns = 0
  let isRead = false
  const reading = readPlainBulk({ bytes }).then((bulk) => {
    isRead = true
    return bulk
  })
  for (; !isRead; turns++) await turn()
  t.equal((await reading)?.count, 340_001)
  t.ok(turns > 3, `${turns} turns`)
})

t.test('bodies that are not read in one pass', async (t) => {
  for (const text of [
    '',
    '[]',
    '{"docs":[]}',
    '{"docs":[1]}',
    '{"docs":{}}',
    '{"docs":[{}],"all_or_nothing":true}',
    '{"docs":[{}],"docs":[{}]}',
    '{"docs":[{}],"new_edits":1}',
    '{"docs":[{}]}x',
    '{"docs":[{},]}',
    '{"docs":[{"a":1}',
    '{"d\\u006fcs":[{}]}',
    `{"docs":[{"a":${'['.repeat(600)}]}`,
    Buffer.from([0x7b, 0xff]),
  ]) {
    t.equal(await readPlainBulk({ bytes: Buffer.from(text) }), null, String(text).slice(0, 40))
  }
  const large = Buffer.from(`{"docs":[{"a":"${'a'.repeat(1024 * 1024)}"}]}`)
  t.equal(await readPlainBulk({ bytes: large }), null, 'a long one')
  equal((await readAnyBulk({ bytes: large })).count, 1)
  await t.rejects(readAnyBulk({ bytes: Buffer.from('{"docs":[1') }), CouchError)
})
