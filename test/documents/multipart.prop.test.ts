import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { MultipartScanner, type Part } from '../../src/documents/multipart.ts'

const boundary = fc.oneof(
  fc.constantFrom('B', '-', '--', 'BB', ' B', '=_x'),
  fc.string({ unit: fc.constantFrom('a', '-', 'é'), minLength: 1, maxLength: 70 }),
)
const cuts = fc.oneof(
  fc.constant([1]),
  fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 }),
)

/** Pieces that make delimiters and what nearly is one. */
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

/** Whether a line of a text would be read as a delimiter, as the grammar has it. */
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
    // A copy: nothing of a slice may be looked at later.
    const slice = Buffer.from(bytes.subarray(at, at + size))
    scanner.push(slice)
    slice.fill(0)
    at += size
  }
  return scanner.end()
}

t.test('the parts are what was sent, however the body is cut into slices', async () => {
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

t.test('a damaged body is refused or read, the same for every cut', async (t) => {
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

t.test('any bytes at all', async () => {
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

t.test('time grows with the body and no faster', async (t) => {
  for (const text of ['\r\n', '\r\n--', `\r\n--${'a'.repeat(69)}`, ' ', '\r\n--a \t']) {
    const bytes = Buffer.alloc(8 * 1024 * 1024, text)
    const scanner = new MultipartScanner('a'.repeat(70))
    const started = performance.now()
    for (let at = 0; at < bytes.length; at += 256 * 1024) scanner.push(bytes.subarray(at, at + 256 * 1024))
    const ms = performance.now() - started
    t.ok(ms < 2000, `${JSON.stringify(text.slice(0, 10))}: ${Math.round(ms)} ms for 8 MB`)
  }
})
