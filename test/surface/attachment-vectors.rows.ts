/** The vectors of protocol.md 19.6, in their order: a text of 29 bytes that is stored as it is. */

import type { Answer } from './answers.ts'
import { ATTACHED, follows, INLINE, KEPT, multipart, part, READ, TEXT } from './contents.ts'
import { type Ask, failed, put, type Row } from './table.ts'

const conflict: Answer = failed(409, 'conflict', 'Document update conflict.')
const missingRev: Answer = failed(409, 'not_found', 'missing_rev')
const noAttachment: Answer = failed(404, 'not_found', 'Document is missing attachment')

function ranges(number: number, says: string, values: readonly string[], answer: Answer): Row {
  return {
    of: `19.6 #${number}`,
    says,
    given: [ATTACHED],
    steps: values.map((value) => [['GET /{db}/x/a', { headers: { Range: value } }], answer]),
  }
}

function partial(first: number, last: number): Answer {
  const text = TEXT.slice(first, last + 1)
  return {
    status: 206,
    text,
    headers: { 'content-range': `bytes ${first}-${last}/29`, 'content-length': String(text.length) },
  }
}

const TEN = `bytes=${Array.from({ length: 10 }, (_, at) => `${at}-${at}`).join(',')}`

/** foo, bar and baz, sent in this order, without a word about them but in the JSON. */
const THREE_PARTS: Ask = multipart(
  'PUT /{db}/x',
  { _attachments: { foo: follows('This is foo'), bar: follows('and bar'), baz: follows('baz, too') } },
  ['This is foo', 'and bar', 'baz, too'],
  { epilogue: 'epilogue', keep: { first: 'rev' } },
)

/** Keeps foo, replaces bar, omits baz. */
const UPDATE: Ask = multipart(
  'PUT /{db}/x',
  { _rev: '{first}', _attachments: { foo: KEPT, bar: follows('another bar') } },
  ['another bar'],
  { keep: { second: 'rev' } },
)

export const rows: readonly Row[] = [
  ranges(1, 'Range 0-28', ['bytes=0-28'], partial(0, 28)),
  ranges(2, 'the whole', ['bytes=0-', 'bytes=0-,0-,0-', 'bytes:0-', TEN], { text: TEXT }),
  ranges(3, 'Range 2-', ['bytes=2-'], partial(2, 28)),
  ranges(4, 'Range -3', ['bytes=-3'], partial(26, 28)),
  ranges(
    5,
    'Range 5-3, 300-310',
    ['bytes=5-3', 'bytes=300-310'],
    failed(416, 'requested_range_not_satisfiable', 'Requested range not satisfiable'),
  ),
  {
    of: '19.6 #6',
    says: 'PUT att, doc exists, no rev',
    given: [put('x')],
    ask: ['PUT /{db}/x/a', { body: TEXT }],
    answer: conflict,
  },
  {
    of: '19.6 #7',
    says: 'PUT att, an unknown rev',
    given: [put('x')],
    ask: [`PUT /{db}/x/a?rev=1-${'a'.repeat(32)}`, { body: TEXT }],
    answer: missingRev,
  },
  {
    of: '19.6 #8',
    says: 'DELETE att: no rev, an unknown one, an absent att, a good one',
    given: [ATTACHED],
    steps: [
      ['DELETE /{db}/x/a', conflict],
      ['DELETE /{db}/x/a?rev=4-garbage', missingRev],
      ['DELETE /{db}/x/none?rev={first}', noAttachment],
      ['DELETE /{db}/x/a?rev={first}', { like: { ok: true, rev: /^2-/ }, headers: { location: undefined } }],
    ],
  },
  {
    of: '19.6 #9',
    says: 'GET att of an old rev, after it was deleted',
    given: [ATTACHED, 'DELETE /{db}/x/a?rev={first}'],
    steps: [
      ['GET /{db}/x/a', noAttachment],
      ['GET /{db}/x/a?rev={first}', { text: TEXT }],
    ],
  },
  {
    of: '19.6 #10',
    says: 'data that is not base64',
    ask: put('x', { _attachments: { a: { ...INLINE, data: 'notBase64Encoded=' } } }),
    answer: failed(400, 'bad_request', 'Invalid attachment data for a'),
  },
  {
    of: '19.6 #11',
    says: 'three that follow in the order of the JSON, and an epilogue',
    steps: [
      [THREE_PARTS, { status: 201, like: { ok: true } }],
      ['GET /{db}/x/foo', { text: 'This is foo' }],
      ['GET /{db}/x/bar', { text: 'and bar' }],
      ['GET /{db}/x/baz', { text: 'baz, too' }],
    ],
  },
  {
    of: '19.6 #12',
    says: 'an update: foo is a stub, bar follows, baz is omitted',
    given: [THREE_PARTS],
    steps: [
      [UPDATE, { status: 201 }],
      ['GET /{db}/x/foo', { text: 'This is foo' }],
      ['GET /{db}/x/bar', { text: 'another bar' }],
      ['GET /{db}/x/baz', noAttachment],
    ],
  },
  {
    of: '19.6 #13',
    says: 'only attachments added since the first revision are sent',
    given: [THREE_PARTS, UPDATE],
    ask: ['GET /{db}/x?atts_since=["{first}"]', { headers: { Accept: 'multipart/related' } }],
    answer: {
      parts: [
        {
          'content-type': 'application/json',
          content: {
            _id: 'x',
            _rev: '{second}',
            _attachments: {
              foo: { ...READ, digest: /^md5-/, length: 11, stub: true },
              bar: { ...READ, digest: /^md5-/, length: 11, follows: true, revpos: 2 },
            },
          },
        },
        part('bar', 'another bar'),
      ],
    },
  },
  {
    of: '19.6 #14',
    says: 'the ETag is the MD5 of the content',
    given: [ATTACHED],
    ask: 'GET /{db}/x/a',
    answer: { text: 'This is a base64 encoded text', headers: { etag: '"aEI7pOYCRBLTRQvvqYrrJQ=="' } },
  },
]
