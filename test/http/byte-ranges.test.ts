/** The header Range: protocol.md 7.4, 19.6. */
import fc from 'fast-check'
import t from 'tap'
import type { AttachmentAnswer } from '../../src/documents/database.ts'
import { piecesLength } from '../../src/documents/pieces.ts'
import { contentRange, isRangeOf, rangePieces, readRanges } from '../../src/http/header-values.ts'

const CONTENT: AttachmentAnswer = {
  type: 'text/plain',
  length: 29,
  encoding: null,
  storedLength: 29,
  digest: 'md5-x',
  blob: 1,
}

t.test('ranges of 29 bytes', async (t) => {
  const one = (start: number, end: number) => [{ start, end }]
  const nine = Array.from({ length: 9 }, (_, at) => ({ start: at, end: at + 1 }))
  const cases: [header: string | undefined, expected: ReturnType<typeof readRanges>][] = [
    [undefined, 'whole'],
    ['bytes=0-28', one(0, 29)],
    ['bytes=0-', 'whole'],
    ['bytes=00-', 'whole'],
    ['bytes=0-,0-,0-', 'whole'],
    ['bytes=5-6,0-', 'whole'],
    ['bytes=2-', one(2, 29)],
    ['bytes=-3', one(26, 29)],
    ['bytes=-29', one(0, 29)],
    ['bytes=-300', one(0, 29)],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=5-3', 'unsatisfiable'],
    ['bytes=300-310', 'unsatisfiable'],
    ['bytes=29-', 'unsatisfiable'],
    ['bytes=28-28', one(28, 29)],
    ['bytes=0-300', one(0, 29)],
    ['bytes=0-99999999999999999999999', one(0, 29)],
    [`bytes=${'9'.repeat(400)}-`, 'unsatisfiable'],
    ['bytes=0-1,300-310', 'unsatisfiable'],
    [
      'bytes=0-1, 5-6 ,-2',
      [
        { start: 0, end: 2 },
        { start: 5, end: 7 },
        { start: 27, end: 29 },
      ],
    ],
    ['bytes=0-1,,5-6,', [...one(0, 2), ...one(5, 7)]],
    ['Bytes=0 - 1', one(0, 2)],
    [`bytes=${nine.map(({ start }) => `${start}-${start}`).join(',')}`, nine],
    [`bytes=${Array.from({ length: 10 }, (_, at) => `${at}-${at}`).join(',')}`, 'whole'],
    ['bytes:0-', 'whole'],
    ['bytes', 'whole'],
    ['bytes=', 'whole'],
    ['bytes=-', 'whole'],
    ['bytes=,', 'whole'],
    ['bytes=1-2,x', 'whole'],
    ['bytes=-1-2', 'whole'],
    ['bytes=1.5-2', 'whole'],
    ['bytes=0x1-2', 'whole'],
    ['items=0-5', 'whole'],
    ['', 'whole'],
  ]
  for (const [header, expected] of cases) t.strictSame(readRanges(header, 29), expected, String(header))
})

t.test('of nothing there is only the whole', async (t) => {
  for (const range of ['0-0', '0-5', '-3', '1-']) {
    t.equal(readRanges(`bytes=${range}`, 0), 'unsatisfiable', range)
  }
  t.equal(readRanges('bytes=0-', 0), 'whole')
})

t.test('any header at all: never a throw, never a byte that is not there', async () => {
  const number = fc.oneof(fc.nat(40), fc.bigInt({ min: 0n, max: 10n ** 30n })).map(String)
  const spec = fc.oneof(
    fc.tuple(number, number).map(([a, b]) => `${a}-${b}`),
    number.map((a) => `${a}-`),
    number.map((a) => `-${a}`),
    fc.string({ maxLength: 6 }),
  )
  const header = fc.oneof(
    fc.array(spec, { maxLength: 12 }).map((specs) => `bytes=${specs.join(',')}`),
    fc.string(),
  )
  fc.assert(
    fc.property(header, fc.nat(40), (text, length) => {
      const ranges = readRanges(text, length)
      if (typeof ranges === 'string') return true
      return (
        ranges.length > 0 &&
        ranges.length < 10 &&
        ranges.every(({ start, end }) => 0 <= start && start < end && end <= length)
      )
    }),
    { numRuns: 5000 },
  )
})

t.test('If-Range counts when it is just this ETag', async (t) => {
  t.equal(isRangeOf(undefined, '"a"'), true)
  t.equal(isRangeOf(' "a" ', '"a"'), true)
  for (const other of ['"b"', 'W/"a"', 'Wed, 21 Oct 2015 07:28:00 GMT', '', '*']) {
    t.equal(isRangeOf(other, '"a"'), false, other)
  }
})

t.test('several ranges are framed as CouchDB does it', async (t) => {
  const ranges = [
    { start: 0, end: 2 },
    { start: 26, end: 29 },
  ]
  t.equal(contentRange({ start: 26, end: 29 }, 29), 'bytes 26-28/29')
  const pieces = rangePieces(CONTENT, 'text/plain', ranges, 'B')
  const text = pieces.map((piece) => {
    if (typeof piece === 'string') return piece
    return piece instanceof Uint8Array ? '' : `<${piece.range?.start},${piece.range?.end}>`
  })
  t.equal(
    text.join(''),
    '--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/29\r\n\r\n<0,2>\r\n--B' +
      '\r\nContent-Type: text/plain\r\nContent-Range: bytes 26-28/29\r\n\r\n<26,29>\r\n--B--',
  )
  t.equal(piecesLength(pieces), text.join('').replace(/<.*?>/g, '').length + 5)
})
