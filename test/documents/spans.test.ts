import { deepEqual, equal } from 'node:assert/strict'
import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { decodeUtf8 } from '../../src/documents/body.ts'
import { type SpanList, type SpanOptions, SpanScanner, type Spans } from '../../src/documents/spans.ts'

const LIMITS = { member: 'docs', maxSpan: 1000, maxOther: 1000 }

function spansOf(
  body: string | Buffer,
  options: Partial<SpanOptions> = {},
  chunkSize = Number.POSITIVE_INFINITY,
): Spans {
  const bytes = Buffer.from(body as string)
  const scanner = new SpanScanner({ ...LIMITS, ...options })
  for (let at = 0; at < bytes.length; at += chunkSize) scanner.push(bytes.subarray(at, at + chunkSize))
  return scanner.end()
}

function elements(body: string, list: { starts: Float64Array; ends: Float64Array; count: number }): string[] {
  const bytes = Buffer.from(body)
  return Array.from({ length: list.count }, (_, i) => bytes.toString('utf8', list.starts[i], list.ends[i]))
}

t.test('the documents of a bulk request are found among any other members', async (t) => {
  const cases: [body: string, docs: string[], others: Record<string, string>][] = [
    ['{"docs":[]}', [], {}],
    [
      '{"docs":[{"_id":"a"},{"_id":"b"}],"new_edits":false}',
      ['{"_id":"a"}', '{"_id":"b"}'],
      { new_edits: 'false' },
    ],
    ['{"new_edits":false,"docs":[{}]}', ['{}'], { new_edits: 'false' }],
    [' {\r\n"docs" :\t[ {"a": 1} , 2,\n"x" ] , "w" : 2 }\n', ['{"a": 1}', '2', '"x"'], { w: '2' }],
    ['{"d\\u006fcs":[null,[[]],"]"]}', ['null', '[[]]', '"]"'], {}],
    ['{"docs":[{"a":"}]\\"{[\\\\"},"\\\\\\""]}', ['{"a":"}]\\"{[\\\\"}', '"\\\\\\""'], {}],
    ['{"a":{"docs":[1]},"docs":["é€\u{1f600}"]}', ['"é€\u{1f600}"'], { a: '{"docs":[1]}' }],
  ]
  for (const [body, docs, others] of cases) {
    for (const chunkSize of [1, 2, 3, 7, 1000]) {
      const spans = spansOf(body, {}, chunkSize)
      t.same(elements(body, spans), docs)
      t.same(Object.fromEntries(spans.others), others)
      t.equal(spans.arrayFound, true)
    }
  }
})

t.test('a member that is missing or is not an array is reported', async (t) => {
  t.match(spansOf('{}'), { arrayFound: false, memberOther: undefined, count: 0 })
  t.match(spansOf('{"docs":{"a":1}}'), { arrayFound: false, memberOther: '{"a":1}', count: 0 })
  t.match(spansOf('{"docs": "[]" }'), { arrayFound: false, memberOther: '"[]"', count: 0 })
  t.match(spansOf('{"keys":[1]}', { member: 'keys' }), { arrayFound: true, count: 1 })
})

t.test('the last of duplicate members counts, and the elements of the others are separate', async (t) => {
  const twice = '{"docs":[1,2],"a":1,"docs":[3],"a":2}'
  t.same(elements(twice, spansOf(twice)), ['3'])
  t.same(elements(twice, spansOf(twice).replaced), ['1', '2'])
  t.equal(spansOf(twice).others.get('a'), '2')
  t.match(spansOf('{"docs":[1],"docs":5}'), {
    arrayFound: false,
    memberOther: '5',
    count: 0,
    replaced: { count: 1 },
  })
  t.match(spansOf('{"docs":5,"docs":[1]}'), { arrayFound: true, memberOther: undefined, count: 1 })
  t.throws(
    () => spansOf('{"docs":x,"docs":[1]}'),
    { code: 'invalid_json' },
    'a replaced duplicate must be valid JSON',
  )
  t.throws(() => spansOf('{"a":01,"a":1}'), { code: 'invalid_json' })
})

t.test('a body whose structure is not JSON is refused', async (t) => {
  for (const body of [
    '',
    ' ',
    '{',
    '}',
    '{]',
    '{"docs"',
    '{"docs":',
    '{"docs":}',
    '{"docs":[',
    '{"docs":[}',
    '{"docs":[1',
    '{"docs":[1}',
    '{"docs":[,]}',
    '{"docs":[1,]}',
    '{"docs":[1 2]}',
    '{"docs":["a""b"]}',
    '{"docs":[{}{}]}',
    '{"docs":[:]}',
    '{"docs":[1]',
    '{"docs":[1]]}',
    '{"docs":[1]}}',
    '{"docs":[1]},',
    '{"docs":[1]} {}',
    '{"docs":[1],}',
    '{,"docs":[1]}',
    '{docs:[1]}',
    '{"docs" [1]}',
    '{"docs"::[1]}',
    '{"docs":[1] "a":1}',
    '{"a":1 2}',
    '{"a":tru}',
    '{"a":"\n"}',
    '{"\\x":1}',
    '{1:2}',
    '{{}:1}',
    '{"docs":["\\"]}',
    '\ufeff{}',
    '[',
    '"',
    'nul',
    '[] x',
    '1 1',
    'é',
  ]) {
    t.throws(() => spansOf(body), { code: 'invalid_json' }, encodeURI(body))
    t.throws(() => spansOf(body, {}, 1), { code: 'invalid_json' }, encodeURI(body))
  }
  t.throws(
    () => spansOf(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])),
    { code: 'invalid_json' },
    'not UTF-8',
  )
})

t.test('JSON that is not an object is refused with its own error', async (t) => {
  for (const body of ['[]', ' [{"docs":[]}] ', '"a"', '-1.5', 'true', 'null\n', `[${'1,'.repeat(1000)}`]) {
    t.throws(() => spansOf(body), { code: 'body_not_object' }, body.slice(0, 20))
    t.throws(() => spansOf(body, {}, 1), { code: 'body_not_object' }, body.slice(0, 20))
  }
})

t.test('an element may have up to maxSpan bytes', async (t) => {
  const body = (n: number) => `{"docs":[1,"${'x'.repeat(n - 2)}"]}`
  for (const chunkSize of [1, 100, 5000]) {
    t.equal(spansOf(body(1000), {}, chunkSize).count, 2)
    t.throws(() => spansOf(body(1001), {}, chunkSize), {
      code: 'document_too_large',
      reason: '',
      status: 413,
    })
  }
  const scanner = new SpanScanner(LIMITS)
  scanner.push(Buffer.from('{"docs":[{'))
  t.throws(
    () => scanner.push(Buffer.alloc(1000, 0x20)),
    { code: 'document_too_large' },
    'before its end is seen',
  )
})

t.test('all other members together, including names, may have up to maxOther bytes', async (t) => {
  const body = (n: number) => `{"docs":[],"aa":"${'x'.repeat(n - 16)}","b":1}`
  t.equal(spansOf(body(1000)).others.size, 2)
  t.throws(() => spansOf(body(1001)), { code: 'too_large', status: 413 })
  t.throws(() => spansOf(`{"${'x'.repeat(1000)}":1}`), { code: 'too_large' })
  t.throws(() => spansOf(`{"docs":{"a":"${'x'.repeat(1000)}"}}`), { code: 'too_large' })
  t.throws(() => spansOf(`{${'"a":1,'.repeat(251)}"b":1}`), { code: 'too_large' }, 'duplicates count')
})

t.test('there may be up to maxSpans elements', async (t) => {
  t.equal(spansOf('{"docs":[1,2,3]}', { maxSpans: 3 }).count, 3)
  t.throws(() => spansOf('{"docs":[1,2,3,4]}', { maxSpans: 3 }), { code: 'bulk_docs_count' })
  t.throws(() => spansOf('{"docs":[1,2],"docs":[3,4]}', { maxSpans: 3 }), { code: 'bulk_docs_count' })
})

t.test('endless nesting is refused', async (t) => {
  const options = { maxSpan: 1e7 }
  const body = (n: number) => `{"docs":[${'['.repeat(n)}${']'.repeat(n)}]}`
  t.equal(spansOf(body(2000), options).count, 1)
  t.throws(() => spansOf(body(2001), options), { code: 'too_deep' })
  t.throws(() => spansOf('{"a":['.repeat(2002), { maxOther: 1e7 }), { code: 'too_deep' })
})

t.test('positions beyond 4 GiB are correct', { timeout: 60_000 }, async (t) => {
  const scanner = new SpanScanner({ member: 'docs', maxSpan: 1e10, maxOther: 100 })
  scanner.push(Buffer.from('{"docs":["'))
  const filler = Buffer.alloc(1 << 20, 'x')
  for (let i = 0; i < 4097; i += 1) scanner.push(filler)
  scanner.push(Buffer.from('",1]}'))
  const { starts, ends, count } = scanner.end()
  t.equal(count, 2)
  t.same([starts[1], ends[1]], [4097 * 2 ** 20 + 12, 4097 * 2 ** 20 + 13])
})

t.test('a chunk is not kept: its bytes may change once it is pushed', async (t) => {
  const scanner = new SpanScanner(LIMITS)
  const chunk = Buffer.from('{"new_edi')
  scanner.push(chunk)
  chunk.fill(0)
  scanner.push(Buffer.from('ts":false}'))
  t.same([...scanner.end().others], [['new_edits', 'false']])
})

const space = fc.oneof(
  { weight: 3, arbitrary: fc.constant('') },
  fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 3 }),
)
const string = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 8 }),
  fc.string({
    unit: fc.constantFrom('"', '\\', '[', ']', '{', '}', ',', ':', 'é', '€', '\u{1f600}', 'a'),
    maxLength: 80,
  }),
  fc.nat({ max: 200 }).map((n) => 'x'.repeat(n)),
)
const json = fc
  .letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), string, fc.boolean(), fc.constant(null)),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(string, tie('value'), { maxKeys: 3 }),
    ),
  }))
  .value.chain((value) => fc.constantFrom(0, 1).map((indent) => JSON.stringify(value, null, indent)))

interface Member {
  raw: string
  /** The texts of the elements of an array of `docs`. */
  docs?: string[]
  text: string
}

const docsName = fc.constantFrom('docs', 'docs', 'd\\u006fcs', '\\u0064ocs')
const docs: fc.Arbitrary<Member> = fc
  .tuple(docsName, fc.array(fc.tuple(json, space, space), { maxLength: 5 }), space)
  .map(([raw, items, inner]) => ({
    raw,
    docs: items.map(([text]) => text),
    text: `[${items.map(([text, a, b]) => a + text + b).join() || inner}]`,
  }))
const other: fc.Arbitrary<Member> = fc
  .tuple(fc.constantFrom('new_edits', 'w', '', 'doc', 'docs', '__proto__', 'n\\u0065w_edits'), json)
  .filter(([raw, text]) => raw !== 'docs' || !text.startsWith('['))
  .map(([raw, text]) => ({ raw, text }))
const members = fc.array(fc.tuple(fc.oneof(docs, other), space, space), { maxLength: 5 })
const body = fc.tuple(members, space, space).map(([list, a, b]) => ({
  members: list.map(([member]) => member),
  text: `${a}{${list.map(([{ raw, text }, c, d]) => `${c}"${raw}"${d}:${c}${text}${d}`).join() || b}}${b}`,
}))
const cuts = fc.oneof(
  fc.constant([1]),
  fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 }),
)

function scan(bytes: Buffer, sizes: readonly number[]): Spans {
  const scanner = new SpanScanner({ member: 'docs', maxSpan: 1e6, maxOther: 1e6 })
  let at = 0
  for (let i = 0; at < bytes.length; i += 1) {
    const size = sizes[i % sizes.length]!
    scanner.push(Buffer.from(bytes.subarray(at, at + size)))
    at += size
  }
  return scanner.end()
}

function texts(bytes: Buffer, { starts, ends, count }: SpanList): string[] {
  return Array.from({ length: count }, (_, i) => decodeUtf8(bytes.subarray(starts[i], ends[i])))
}

t.test('the spans are those of the elements for every cut into chunks', async () => {
  fc.assert(
    fc.property(body, cuts, ({ members, text }, sizes) => {
      const bytes = Buffer.from(text)
      const spans = scan(bytes, sizes)
      const named = members.map((member) => ({ ...member, name: JSON.parse(`"${member.raw}"`) }))
      const arrays = named.filter(({ name }) => name === 'docs')
      const last = arrays.at(-1)
      deepEqual(texts(bytes, spans), last?.docs ?? [])
      deepEqual(
        texts(bytes, spans.replaced),
        arrays.slice(0, -1).flatMap((member) => member.docs ?? []),
      )
      equal(spans.arrayFound, last?.docs !== undefined)
      equal(spans.memberOther, last?.docs === undefined ? last?.text : undefined)
      const others = named.filter(({ name }) => name !== 'docs')
      deepEqual(spans.others, new Map(others.map(({ name, text }) => [name, text])))
    }),
    { numRuns: 3000 },
  )
})

const edit = fc.record({
  at: fc.nat(),
  drop: fc.nat({ max: 2 }),
  add: fc.oneof(
    fc
      .constantFrom('', '"', '\\', '{', '}', '[', ']', ',', ':', '0', 'e', ' ', '\u0001', 'é')
      .map((s) => Buffer.from(s)),
    fc.constantFrom([0xff], [0xc3], [0xe2, 0x82], [0xed, 0xa0, 0x80]).map((list) => Buffer.from(list)),
  ),
})

t.test('a damaged body and all its elements are accepted if and only if the body is JSON', async (t) => {
  const seen = new Map<string, number>()
  fc.assert(
    fc.property(body, fc.array(edit, { minLength: 1, maxLength: 3 }), cuts, ({ text }, edits, sizes) => {
      let bytes = Buffer.from(text)
      for (const { at, drop, add } of edits) {
        const place = at % (bytes.length + 1)
        bytes = Buffer.concat([bytes.subarray(0, place), add, bytes.subarray(place + drop)])
      }
      const outcome = outcomeBySpans(bytes, sizes)
      equal(outcome, outcomeByParsing(bytes), bytes.toString('latin1'))
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1)
    }),
    { numRuns: 5000 },
  )
  t.ok(seen.get('accepted')! > 200 && seen.get('invalid_json')! > 1000, JSON.stringify([...seen]))
})

t.test('a body of any tokens is accepted if and only if it is JSON', async () => {
  const token = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"docs"',
    '"a"',
    '"',
    '\\',
    '1',
    'true',
    'x',
    ' ',
    '{"docs":[',
  )
  fc.assert(
    fc.property(fc.array(token, { maxLength: 12 }), cuts, (tokens, sizes) => {
      const bytes = Buffer.from(tokens.join(''))
      equal(outcomeBySpans(bytes, sizes), outcomeByParsing(bytes))
    }),
    { numRuns: 20_000 },
  )
})

function outcomeBySpans(bytes: Buffer, sizes: readonly number[]): string {
  try {
    const spans = scan(bytes, sizes)
    for (const text of [...texts(bytes, spans), ...texts(bytes, spans.replaced)]) JSON.parse(text)
    return 'accepted'
  } catch (error) {
    if (error instanceof SyntaxError) return 'invalid_json'
    if (!(error instanceof CouchError)) throw error
    return error.code
  }
}

function outcomeByParsing(bytes: Buffer): string {
  let parsed: unknown
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch {
    return 'invalid_json'
  }
  const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
  return isObject ? 'accepted' : 'body_not_object'
}
