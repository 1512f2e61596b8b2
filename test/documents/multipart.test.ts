/** Finding the parts of multipart bodies; RFC 2046 5.1, protocol.md 7.2. */
import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { headerParameter, MultipartScanner, type Part } from '../../src/documents/multipart.ts'

interface Found {
  readonly headers: Record<string, string>
  readonly text: string
}

function partsOf(text: string, boundary = 'B'): Found[] {
  const bytes = Buffer.from(text)
  const scanner = new MultipartScanner(boundary)
  scanner.push(bytes)
  return scanner.end().map(({ headers, start, end }) => ({
    headers: Object.fromEntries(headers),
    text: bytes.subarray(start, end).toString(),
  }))
}

function texts(text: string, boundary?: string): string[] {
  return partsOf(text, boundary).map((part) => part.text)
}

t.test('parts and their headers', async (t) => {
  const body =
    '--B\r\nContent-Type: application/json\r\nX-Long: a\r\n\tb\r\n\r\n{}\r\n' +
    '--B\r\ncontent-disposition:attachment; filename="ä"  \r\n\r\n\r\none\r\n\r\n' +
    '--B--'
  t.strictSame(partsOf(body), [
    { headers: { 'content-type': 'application/json', 'x-long': 'a b' }, text: '{}' },
    { headers: { 'content-disposition': 'attachment; filename="ä"' }, text: '\r\none\r\n' },
  ])
})

t.test('parts without headers, and empty parts', async (t) => {
  t.strictSame(partsOf('--B\r\n\r\none\r\n--B\r\n\r\n\r\n--B--'), [
    { headers: {}, text: 'one' },
    { headers: {}, text: '' },
  ])
  t.strictSame(texts('--B\r\n\r\n--B\r\n\r\n--B--'), ['', ''], 'one line end for both sides')
  t.strictSame(texts('--B--'), [])
})

t.test('the preamble and the epilogue are skipped', async (t) => {
  t.strictSame(texts('preamble\r\n--B\r\n\r\none\r\n--B--epilogue\r\n--B\r\n\r\ntwo\r\n--B--'), ['one'])
  t.strictSame(texts('\r\n--B\r\n\r\none\r\n--B--\r\n'), ['one'])
  t.strictSame(texts('x--B\r\n--B\r\n\r\none\r\n--B--'), ['one'], 'not at the start of a line')
})

t.test('white space may follow a boundary', async (t) => {
  t.strictSame(texts('--B \t \r\n\r\none\r\n--B\t\r\n\r\ntwo\r\n--B-- \r\n'), ['one', 'two'])
})

t.test('content that looks like a boundary is content', async (t) => {
  const contents = [
    '--B',
    'x--B--',
    '\n--B--',
    '\r--B--',
    '\r\n-B--',
    '\r\n--BB--',
    '\r\n--B-',
    '\r\n--B x',
    '\r\n--B --',
    '\r\n--B\rx',
    '\r\n--B\n',
    '\r\n--B\r',
    '\r\n--',
    '\r\n--\r\n--',
    '\r\n\r\n--b--',
    '\r\n--B\r\r\n--b',
  ]
  for (const content of contents) {
    const given = `x${content}`
    t.strictSame(texts(`--B\r\n\r\n${given}\r\n--B--`), [given], JSON.stringify(content))
  }
})

t.test('a boundary in the content ends it', async (t) => {
  t.strictSame(texts('--B\r\n\r\none\r\n--B\r\n\r\ntwo\r\n--B--'), ['one', 'two'])
  t.strictSame(texts('--B\r\n\r\none\r\n--B--two\r\n--B--'), ['one'])
})

t.test('invalid multipart bodies are refused', async (t) => {
  const refused = (text: string, boundary = 'B') =>
    t.throws(() => partsOf(text, boundary), { code: 'bad_request' }, JSON.stringify(text.slice(0, 40)))
  for (const text of [
    '',
    'x',
    '--B',
    '--B\r\n',
    '--B\r\n\r\none',
    '--B\r\n\r\none\r\n--B',
    '--B\n\n--B--',
    '{}',
  ]) {
    refused(text)
  }
  refused('--B\r\n\r\none\r\n--B--', 'C')
  refused('--B\r\nno header\r\n\r\none\r\n--B--')
  refused('--B\r\n: x\r\n\r\none\r\n--B--')
  refused(`--B\r\nA: ${'x'.repeat(16 * 1024)}\r\n\r\none\r\n--B--`)
  refused(`${'--B\r\n\r\n\r\n'.repeat(10_001)}--B--`)
  for (const boundary of ['', 'x'.repeat(257), 'a\r\nb', '\0']) refused('--B--', boundary)
})

t.test('parameters of headers', async (t) => {
  const cases: [value: string, expected: string | undefined][] = [
    ['multipart/related; boundary=B', 'B'],
    ['multipart/related;boundary="B"', 'B'],
    ['multipart/related; Type="a;boundary=x" ; BOUNDARY = "a \\"b\\\\" ; c=d', 'a "b\\'],
    ["multipart/related; boundary='()+_,-./:=?", "'()+_,-./:=?"],
    ['multipart/related; boundary=', ''],
    ['multipart/related; xboundary=B', undefined],
    ['multipart/related', undefined],
    ['multipart/related; boundary="B', ''],
  ]
  for (const [value, expected] of cases) t.equal(headerParameter(value, 'boundary'), expected, value)
})

const boundary = fc.oneof(
  fc.constantFrom('B', '-', '--', 'BB', ' B', '=_x'),
  fc.string({ unit: fc.constantFrom('a', '-', 'é'), minLength: 1, maxLength: 70 }),
)
const cuts = fc.oneof(
  fc.constant([1]),
  fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 }),
)

/** Pieces that make delimiters and near-delimiters. */
function looksLikeBoundary(boundary: string): fc.Arbitrary<string> {
  const piece = fc.constantFrom('\r\n', '\r', '\n', '--', '-', boundary, `\r\n--${boundary}`, ' ', 'x', ':')
  return fc.string({ unit: piece, maxLength: 12 })
}

interface Sent {
  readonly headers: readonly (readonly [string, string])[]
  readonly content: string
}

const headers = fc.uniqueArray(
  fc.tuple(
    fc.constantFrom('content-type', 'x-a', 'content-disposition'),
    fc.constantFrom('', 'a/b', 'x:y; z="é"'),
  ),
  { selector: ([name]) => name, maxLength: 3 },
)

const body = boundary.chain((mark) => {
  const ends = (content: string) => !isDelimited(`\r\n${content}\r\n`, mark)
  const part: fc.Arbitrary<Sent> = fc.record({ headers, content: looksLikeBoundary(mark).filter(ends) })
  const padding = fc.constantFrom('', ' ', '\t ')
  return fc.record({
    boundary: fc.constant(mark),
    parts: fc.array(part, { maxLength: 4 }),
    preamble: looksLikeBoundary(mark).filter((text) => !isDelimited(`\r\n${text}\r\n`, mark)),
    epilogue: looksLikeBoundary(mark),
    padding,
  })
})

/** Whether a line of a text is a delimiter according to the grammar. */
function isDelimited(text: string, boundary: string): boolean {
  const quoted = boundary.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`\r\n--${quoted}(?:--|[ \t]*\r\n)`).test(text)
}

function written(sent: {
  boundary: string
  parts: Sent[]
  preamble: string
  epilogue: string
  padding: string
}) {
  const { boundary, parts, preamble, epilogue, padding } = sent
  const lines = parts.map(({ headers, content }) => {
    const head = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    return `\r\n--${boundary}${padding}\r\n${head}\r\n${content}`
  })
  return Buffer.from(`${preamble}${lines.join('')}\r\n--${boundary}--${epilogue}`)
}

function scan(bytes: Buffer, boundary: string, sizes: readonly number[]): readonly Part[] {
  const scanner = new MultipartScanner(boundary)
  for (let at = 0, i = 0; at < bytes.length; i += 1) {
    const size = sizes[i % sizes.length] as number
    // A copy, since the scanner must not read a slice later.
    const slice = Buffer.from(bytes.subarray(at, at + size))
    scanner.push(slice)
    slice.fill(0)
    at += size
  }
  return scanner.end()
}

t.test('the parts are as sent for every cut into slices', async () => {
  fc.assert(
    fc.property(body, cuts, (sent, sizes) => {
      const bytes = written(sent)
      const found = scan(bytes, sent.boundary, sizes).map(({ headers, start, end }) => ({
        headers: Object.fromEntries(headers),
        content: bytes.subarray(start, end).toString(),
      }))
      deepEqual(
        found,
        sent.parts.map(({ headers, content }) => ({ headers: Object.fromEntries(headers), content })),
      )
    }),
    { numRuns: 5000 },
  )
})

const edit = fc.record({
  at: fc.nat(),
  drop: fc.nat({ max: 3 }),
  add: fc.constantFrom('', '\r', '\n', '-', 'x', ' ', '\0'),
})

t.test('a damaged body is refused or read identically for every cut', async (t) => {
  const seen = { refused: 0, read: 0 }
  fc.assert(
    fc.property(body, fc.array(edit, { minLength: 1, maxLength: 4 }), cuts, (sent, edits, sizes) => {
      let bytes = written(sent)
      for (const { at, drop, add } of edits) {
        const place = at % (bytes.length + 1)
        bytes = Buffer.concat([bytes.subarray(0, place), Buffer.from(add), bytes.subarray(place + drop)])
      }
      const whole = outcome(() => scan(bytes, sent.boundary, [bytes.length || 1]))
      deepEqual(
        outcome(() => scan(bytes, sent.boundary, sizes)),
        whole,
      )
      if (typeof whole === 'string') seen.refused += 1
      else {
        seen.read += 1
        let before = 0
        for (const { start, end } of whole) {
          equal(before <= start && start <= end && end <= bytes.length, true)
          before = end
        }
      }
    }),
    { numRuns: 5000 },
  )
  t.ok(seen.refused > 200 && seen.read > 200, JSON.stringify(seen))
})

t.test('arbitrary bytes', async () => {
  fc.assert(
    fc.property(boundary.chain(looksLikeBoundary), cuts, (text, sizes) => {
      outcome(() => scan(Buffer.from(text), 'B', sizes))
    }),
    { numRuns: 5000 },
  )
})

function outcome(work: () => readonly Part[]): readonly Part[] | string {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    return `${error.code}: ${error.message}`
  }
}

t.test('the time is linear in the length of the body', async (t) => {
  for (const text of ['\r\n', '\r\n--', `\r\n--${'a'.repeat(69)}`, ' ', '\r\n--a \t']) {
    const bytes = Buffer.alloc(8 * 1024 * 1024, text)
    const scanner = new MultipartScanner('a'.repeat(70))
    const started = performance.now()
    for (let at = 0; at < bytes.length; at += 256 * 1024) scanner.push(bytes.subarray(at, at + 256 * 1024))
    const ms = performance.now() - started
    t.ok(ms < 2000, `${JSON.stringify(text.slice(0, 10))}: ${Math.round(ms)} ms for 8 MB`)
  }
})
