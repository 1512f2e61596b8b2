import { Buffer } from 'node:buffer'
import t from 'tap'
import { type SpanOptions, SpanScanner, type Spans } from '../../src/documents/spans.ts'

const LIMITS = { member: 'docs', maxSpan: 1000, maxOther: 1000 }

function scan(
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

t.test('the documents of a bulk request are found, whatever stands around them', async (t) => {
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
      const spans = scan(body, {}, chunkSize)
      t.same(elements(body, spans), docs)
      t.same(Object.fromEntries(spans.others), others)
      t.equal(spans.arrayFound, true)
    }
  }
})

t.test('a member that is missing or no array is told', async (t) => {
  t.match(scan('{}'), { arrayFound: false, memberOther: undefined, count: 0 })
  t.match(scan('{"docs":{"a":1}}'), { arrayFound: false, memberOther: '{"a":1}', count: 0 })
  t.match(scan('{"docs": "[]" }'), { arrayFound: false, memberOther: '"[]"', count: 0 })
  t.match(scan('{"keys":[1]}', { member: 'keys' }), { arrayFound: true, count: 1 })
})

t.test('of duplicate members the last counts, and the elements of the others are told apart', async (t) => {
  const twice = '{"docs":[1,2],"a":1,"docs":[3],"a":2}'
  t.same(elements(twice, scan(twice)), ['3'])
  t.same(elements(twice, scan(twice).replaced), ['1', '2'])
  t.equal(scan(twice).others.get('a'), '2')
  t.match(scan('{"docs":[1],"docs":5}'), {
    arrayFound: false,
    memberOther: '5',
    count: 0,
    replaced: { count: 1 },
  })
  t.match(scan('{"docs":5,"docs":[1]}'), { arrayFound: true, memberOther: undefined, count: 1 })
  t.throws(() => scan('{"docs":x,"docs":[1]}'), { code: 'invalid_json' }, 'what is replaced must be JSON too')
  t.throws(() => scan('{"a":01,"a":1}'), { code: 'invalid_json' })
})

t.test('a body whose structure is no JSON is refused', async (t) => {
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
    t.throws(() => scan(body), { code: 'invalid_json' }, encodeURI(body))
    t.throws(() => scan(body, {}, 1), { code: 'invalid_json' }, encodeURI(body))
  }
  t.throws(
    () => scan(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])),
    { code: 'invalid_json' },
    'not UTF-8',
  )
})

t.test('JSON that is no object is refused as such', async (t) => {
  for (const body of ['[]', ' [{"docs":[]}] ', '"a"', '-1.5', 'true', 'null\n', `[${'1,'.repeat(1000)}`]) {
    t.throws(() => scan(body), { code: 'body_not_object' }, body.slice(0, 20))
    t.throws(() => scan(body, {}, 1), { code: 'body_not_object' }, body.slice(0, 20))
  }
})

t.test('an element may be as long as maxSpan', async (t) => {
  const body = (n: number) => `{"docs":[1,"${'x'.repeat(n - 2)}"]}`
  for (const chunkSize of [1, 100, 5000]) {
    t.equal(scan(body(1000), {}, chunkSize).count, 2)
    t.throws(() => scan(body(1001), {}, chunkSize), { code: 'document_too_large', reason: '', status: 413 })
  }
  const scanner = new SpanScanner(LIMITS)
  scanner.push(Buffer.from('{"docs":[{'))
  t.throws(
    () => scanner.push(Buffer.alloc(1000, 0x20)),
    { code: 'document_too_large' },
    'before its end is seen',
  )
})

t.test('all other members together, names included, may be as long as maxOther', async (t) => {
  const body = (n: number) => `{"docs":[],"aa":"${'x'.repeat(n - 16)}","b":1}`
  t.equal(scan(body(1000)).others.size, 2)
  t.throws(() => scan(body(1001)), { code: 'too_large', status: 413 })
  t.throws(() => scan(`{"${'x'.repeat(1000)}":1}`), { code: 'too_large' })
  t.throws(() => scan(`{"docs":{"a":"${'x'.repeat(1000)}"}}`), { code: 'too_large' })
  t.throws(() => scan(`{${'"a":1,'.repeat(251)}"b":1}`), { code: 'too_large' }, 'duplicates count')
})

t.test('there may be maxSpans elements', async (t) => {
  t.equal(scan('{"docs":[1,2,3]}', { maxSpans: 3 }).count, 3)
  t.throws(() => scan('{"docs":[1,2,3,4]}', { maxSpans: 3 }), { code: 'bulk_docs_count' })
  t.throws(() => scan('{"docs":[1,2],"docs":[3,4]}', { maxSpans: 3 }), { code: 'bulk_docs_count' })
})

t.test('nesting without end is refused', async (t) => {
  const options = { maxSpan: 1e7 }
  const body = (n: number) => `{"docs":[${'['.repeat(n)}${']'.repeat(n)}]}`
  t.equal(scan(body(2000), options).count, 1)
  t.throws(() => scan(body(2001), options), { code: 'too_deep' })
  t.throws(() => scan('{"a":['.repeat(2002), { maxOther: 1e7 }), { code: 'too_deep' })
})

t.test('positions beyond 4 GiB are counted right', { timeout: 60_000 }, async (t) => {
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
