/** Multipart bodies taken apart; RFC 2046 5.1, protocol.md 7.2. */
import t from 'tap'
import { headerParameter, MultipartScanner } from '../../src/documents/multipart.ts'

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

t.test('parts without headers, and empty ones', async (t) => {
  t.strictSame(partsOf('--B\r\n\r\none\r\n--B\r\n\r\n\r\n--B--'), [
    { headers: {}, text: 'one' },
    { headers: {}, text: '' },
  ])
  t.strictSame(texts('--B\r\n\r\n--B\r\n\r\n--B--'), ['', ''], 'one line end for both sides')
  t.strictSame(texts('--B--'), [])
})

t.test('what is before the first boundary and behind the last is left out', async (t) => {
  t.strictSame(texts('preamble\r\n--B\r\n\r\none\r\n--B--epilogue\r\n--B\r\n\r\ntwo\r\n--B--'), ['one'])
  t.strictSame(texts('\r\n--B\r\n\r\none\r\n--B--\r\n'), ['one'])
  t.strictSame(texts('x--B\r\n--B\r\n\r\none\r\n--B--'), ['one'], 'not at the start of a line')
})

t.test('white space may stand behind a boundary', async (t) => {
  t.strictSame(texts('--B \t \r\n\r\none\r\n--B\t\r\n\r\ntwo\r\n--B-- \r\n'), ['one', 'two'])
})

t.test('content that looks like a boundary and is none', async (t) => {
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

t.test('what is no multipart body', async (t) => {
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
