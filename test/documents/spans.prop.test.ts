import { deepEqual, equal } from 'node:assert/strict'
import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { decodeUtf8 } from '../../src/documents/body.ts'
import { type SpanList, SpanScanner, type Spans } from '../../src/documents/spans.ts'

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

t.test('the spans are those of the elements, however the body is cut into chunks', async () => {
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

t.test('a damaged body is accepted with all its elements if and only if it is JSON as a whole', async (t) => {
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
