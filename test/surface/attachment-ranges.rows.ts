/** Parts of attachments: protocol.md 7.4. */

import type { Answer } from './answers.ts'
import { ATTACHED, ETAG, GZIP_ETAG, TEXT, ZIPPED } from './contents.ts'
import { type Ask, failed, type Row } from './table.ts'

const range = (value: string, more: Readonly<Record<string, string>> = {}): Ask => [
  'GET /{db}/x/a',
  { headers: { Range: value, ...more } },
]

const WHOLE: Answer = { text: TEXT, headers: { 'content-length': '29', 'content-range': undefined } }

/** From one byte to another, both included. */
function partial(first: number, last: number): Answer {
  const text = TEXT.slice(first, last + 1)
  return {
    status: 206,
    text,
    headers: {
      'content-range': `bytes ${first}-${last}/29`,
      'content-length': String(text.length),
      'content-type': 'text/plain',
      'accept-ranges': 'bytes',
      etag: ETAG,
      'content-security-policy': 'sandbox',
      'cache-control': 'must-revalidate',
    },
  }
}

const UNSATISFIABLE: Answer = failed(
  416,
  'requested_range_not_satisfiable',
  'Requested range not satisfiable',
)
const place = (where: string, content: string) => ({
  'content-type': 'text/plain',
  'content-range': `bytes ${where}/29`,
  content,
})
const singles = (count: number) =>
  `bytes=${Array.from({ length: count }, (_, at) => `${2 * at}-${2 * at}`).join(',')}`

export const rows: readonly Row[] = [
  {
    of: '7.4 Range: one',
    says: 'a-b, a- and -n',
    given: [ATTACHED],
    steps: [
      [range('bytes=0-3'), partial(0, 3)],
      [range('bytes=5-5'), partial(5, 5)],
      [range('bytes=25-'), partial(25, 28)],
      [range('bytes=-4'), partial(25, 28)],
      ...(
        [
          ['bytes=0-3', 0, 3],
          ['bytes=0-28', 0, 28],
          ['bytes=2-', 2, 28],
          ['bytes=-3', 26, 28],
          ['bytes=5-300', 5, 28],
          ['bytes=3-3', 3, 3],
        ] as const
      ).flatMap(([value, first, last]): (readonly [Ask, Answer])[] => [
        [range(value), partial(first, last)],
        [['HEAD /{db}/x/a', { headers: { Range: value } }], { ...partial(first, last), text: '' }],
      ]),
    ],
  },
  {
    of: '7.4 Range: from 0',
    says: 'answers with the whole content',
    given: [ATTACHED],
    ask: range('bytes=0-'),
    answer: WHOLE,
  },
  {
    of: '7.4 Range: beyond the end',
    says: 'is shortened to the end of the content',
    given: [ATTACHED],
    ask: range('bytes=25-400'),
    answer: partial(25, 28),
  },
  {
    of: '7.4 Range: 416',
    says: 'reversed, or from beyond the end',
    given: [ATTACHED],
    steps: [
      ...['bytes=5-3', 'bytes=29-', 'bytes=300-310', 'bytes=-0'].map(
        (value) =>
          [
            range(value),
            {
              ...UNSATISFIABLE,
              headers: { 'content-range': 'bytes */29', 'content-type': 'application/json' },
            },
          ] as const,
      ),
    ],
  },
  {
    of: ['7.4 Range: 416', '7.4 Range: from 0'],
    says: 'of an empty content there is no range, but all of it',
    given: [['PUT /{db}/x/a', { body: '' }]],
    steps: [
      [range('bytes=0-5'), { ...UNSATISFIABLE, headers: { 'content-range': 'bytes */0' } }],
      [range('bytes=0-'), { text: '', headers: { 'content-length': '0' } }],
    ],
  },
  {
    of: ['7.4 Range: one', '7.4 If-None-Match'],
    says: 'a client that has the content gets 304 whatever the range',
    given: [ATTACHED],
    steps: [
      [range('bytes=0-1', { 'If-None-Match': ETAG }), { status: 304, text: '', headers: { etag: ETAG } }],
      [range('bytes=0-1', { 'If-None-Match': '"other"' }), partial(0, 1)],
    ],
  },
  {
    of: ['7.4 Range: gzip', '7.4 If-None-Match'],
    says: 'also where it is stored as gzip',
    given: [ZIPPED],
    ask: range('bytes=0-1', { 'If-None-Match': `"x", W/${GZIP_ETAG}` }),
    answer: { status: 304, headers: { etag: GZIP_ETAG } },
  },
  {
    of: '7.4 Range: two to nine',
    says: 'multipart/byteranges, in the order in which they are asked for',
    given: [ATTACHED],
    steps: [
      [
        range('bytes=0-3,-4,5-6'),
        {
          status: 206,
          headers: {
            'content-type': /^multipart\/byteranges; boundary="[^"]+"$/,
            'content-length': /^\d+$/,
            'content-range': undefined,
          },
          parts: [place('0-3', 'This'), place('25-28', 'text'), place('5-6', 'is')],
        },
      ],
      [range(singles(9)), { status: 206, headers: { 'content-type': /^multipart\/byteranges/ } }],
    ],
  },
  {
    of: '7.4 Range: ten and more',
    says: 'answer with the whole content',
    given: [ATTACHED],
    ask: range(singles(10)),
    answer: WHOLE,
  },
  {
    of: '7.4 Range: malformed',
    says: 'is ignored',
    given: [ATTACHED],
    steps: [
      'bytes:0-3',
      'bytes=a-b',
      'bytes',
      '0-3',
      'lines=0-3',
      'bytes=',
      'x',
      'bytes=0-,0-,0-',
      'bytes:0-',
    ].map((value) => [range(value), WHOLE]),
  },
  {
    of: '7.4 Range: gzip',
    says: 'there are no ranges of what is stored so',
    given: [ZIPPED],
    steps: [
      [range('bytes=0-3'), WHOLE],
      [range('bytes=300-'), WHOLE],
    ],
  },
  {
    of: '7.4 Range: If-Range',
    says: 'a range of this very content, or all of another',
    given: [ATTACHED],
    steps: [
      [range('bytes=0-3', { 'If-Range': ETAG }), partial(0, 3)],
      ...['"other"', `W/${ETAG}`, new Date().toUTCString()].map(
        (other) => [range('bytes=0-3', { 'If-Range': other }), WHOLE] as const,
      ),
      [range('bytes=300-', { 'If-Range': '"other"' }), WHOLE],
    ],
  },
]
