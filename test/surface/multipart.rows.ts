/** Documents followed by their attachments, written and read: protocol.md 7.2, 7.3. */

import type { Answer } from './answers.ts'
import {
  ATTACHED,
  BASE64,
  DIGEST,
  follows,
  GZIP,
  GZIP_DIGEST,
  GZIP_INFO,
  INLINE,
  KEPT,
  multipart,
  part,
  READ,
  STUB,
  TEXT,
  ZIPPED,
} from './contents.ts'
import { type Ask, failed, put, type Row } from './table.ts'

const saved: Answer = { status: 201 }
const malformed = (reason: string | RegExp): Answer => failed(400, 'bad_request', reason)
const PUT = 'PUT /{db}/x'
/** Two attachments of the same length, so that only their order tells them apart. */
const TWO = { _attachments: { one: follows('1st'), two: follows('2nd') } }
const BOTH: (readonly [Ask, Answer])[] = [
  ['GET /{db}/x/one', { text: '1st' }],
  ['GET /{db}/x/two', { text: '2nd' }],
]
const named = (filename: string, content: string) => ({
  content,
  headers: { 'Content-Disposition': `attachment; filename="${filename}"` },
})

const accepting = (query: string, accept?: string): Ask => [
  `GET /{db}/x?${query}`,
  { headers: accept === undefined ? {} : { Accept: accept } },
]
const ZIPPED_STUB = { content_type: 'text/plain', revpos: 1, digest: GZIP_DIGEST }
const JSON_PART = { 'content-type': 'application/json' }
const FOLLOWING = { ...READ, length: 29, follows: true }
const INLINED: Answer = {
  json: { _id: 'x', _rev: '{first}', _attachments: { a: { ...READ, data: BASE64 } } },
  headers: { 'content-type': 'application/json' },
}

export const rows: readonly Row[] = [
  {
    of: '7.2 boundary',
    says: 'in quotes or not, after other parameters or not, the type in any case',
    steps: [
      'multipart/related;boundary="B"',
      'multipart/related; boundary=B',
      'Multipart/Related; type="application/json"; BOUNDARY="B"',
    ].flatMap((type, index): (readonly [Ask, Answer])[] => [
      [multipart(`PUT /{db}/x${index}`, TWO, ['1st', '2nd'], { type }), saved],
      [`GET /{db}/x${index}/two`, { text: '2nd' }],
    ]),
  },
  {
    of: '7.2 boundary',
    says: 'must be named, and be the one that there is',
    steps: [
      [multipart(PUT, TWO, ['1st', '2nd'], { type: 'multipart/related' }), { status: 400 }],
      [multipart(PUT, TWO, ['1st', '2nd'], { type: 'multipart/related;boundary=C' }), { status: 400 }],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  {
    of: '7.2 boundary',
    says: 'within a content it is content, where no line begins with it',
    given: [multipart(PUT, { _attachments: { a: follows('a --B-- b --B\n') } }, ['a --B-- b --B\n'])],
    ask: 'GET /{db}/x/a',
    answer: { text: 'a --B-- b --B\n' },
  },
  {
    of: '7.2 first part',
    says: 'must be of type application/json',
    steps: [
      [
        [
          PUT,
          {
            headers: { 'Content-Type': 'multipart/related;boundary=B' },
            body: '--B\r\nContent-Type: text/plain\r\n\r\n{}\r\n--B--',
          },
        ],
        failed(415, 'bad_content_type', 'Content-Type must be application/json'),
      ],
      [multipart(PUT, '{"a":', []), malformed('invalid UTF-8 JSON')],
      [multipart(PUT, '[]', []), malformed('Document must be a JSON object')],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  {
    of: '7.2 order',
    says: 'parts without names come in the order of the JSON',
    given: [multipart(PUT, TWO, ['1st', '2nd'])],
    steps: BOTH,
  },
  {
    of: '7.2 filename',
    says: 'parts that are named after what follows may come in any order; CouchDB does not look at it',
    given: [multipart(PUT, TWO, [named('two', '2nd'), named('one', '1st')])],
    steps: BOTH,
  },
  {
    of: '7.2 filename',
    says: 'of another name does not count',
    given: [multipart(PUT, TWO, [named('x', '1st'), named('y', '2nd')])],
    steps: BOTH,
  },
  {
    of: '7.2 part headers',
    says: 'are ignored: type and length are those of the JSON',
    given: [
      multipart(PUT, { _attachments: { a: follows(TEXT) } }, [
        { content: TEXT, headers: { 'Content-Type': 'image/png', 'Content-Length': '5' } },
      ]),
    ],
    ask: 'GET /{db}/x/a',
    answer: { text: TEXT, headers: { 'content-type': 'text/plain', 'content-length': '29' } },
  },
  {
    of: '7.2 lengths',
    says: 'must match the contents',
    steps: [
      [
        multipart(PUT, { _attachments: { a: follows(TEXT, { length: 28 }) } }, [TEXT]),
        malformed('attachment longer than expected'),
      ],
      [
        multipart(PUT, { _attachments: { a: follows(TEXT, { length: 30 }) } }, [TEXT]),
        malformed('attachment shorter than expected'),
      ],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  {
    of: '7.2 parts',
    says: 'must match the number of parts that follow',
    steps: [
      [multipart(PUT, TWO, ['1st']), { status: 400 }],
      [multipart(PUT, TWO, ['1st', '2nd', '3rd']), { status: 400 }],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  {
    of: '7.2 end',
    says: 'what comes behind it is ignored; without it nothing is stored',
    steps: [
      [multipart(PUT, TWO, ['1st', '2nd'], { epilogue: '\r\nepilogue' }), saved],
      [
        [
          'PUT /{db}/y',
          {
            headers: { 'Content-Type': 'multipart/related;boundary=B' },
            body: '--B\r\nContent-Type: application/json\r\n\r\n{}\r\n--B',
          },
        ],
        { status: 400 },
      ],
      ['GET /{db}/y', { status: 404 }],
    ],
  },
  {
    of: '7.2 answer',
    says: 'answers like any PUT',
    ask: multipart(PUT, TWO, ['1st', '2nd']),
    answer: {
      status: 201,
      json: { ok: true, id: 'x', rev: /^1-[0-9a-f]{32}$/ },
      headers: { location: /\/x$/, etag: /^"1-[0-9a-f]{32}"$/ },
    },
  },
  {
    of: '7.2 new_edits=false',
    says: 'as the Erlang replicator writes, revpos and digest included',
    given: [
      multipart(
        `${PUT}?new_edits=false`,
        {
          _id: 'x',
          _revisions: { start: 3, ids: ['c', 'b', 'a'] },
          _attachments: { a: follows(TEXT, { revpos: 2, digest: DIGEST }) },
        },
        [TEXT],
      ),
    ],
    steps: [
      ['GET /{db}/x?revs=true', { like: { _rev: '3-c', _revisions: { ids: ['c', 'b', 'a'] } } }],
      ['GET /{db}/x', { like: { _attachments: { a: { ...STUB, revpos: 2 } } } }],
    ],
  },
  {
    of: '7.3 condition',
    says: 'attachments=true or atts_since, and an attachment to send; else JSON',
    given: [ATTACHED, put('y')],
    steps: [
      [
        accepting('attachments=true', 'multipart/related'),
        { headers: { 'content-type': /^multipart\/related; boundary="[0-9a-f]{32}"$/ } },
      ],
      [
        accepting('atts_since=[]', 'multipart/related'),
        { headers: { 'content-type': /^multipart\/related; boundary="[0-9a-f]{32}"$/ } },
      ],
      [
        accepting('atts_since=["{first}"]', 'multipart/related'),
        {
          json: { _id: 'x', _rev: '{first}', _attachments: { a: STUB } },
          headers: { 'content-type': 'application/json', 'content-length': /^\d+$/ },
        },
      ],
      [
        accepting('', 'multipart/related'),
        { headers: { 'content-type': 'application/json', 'content-length': /^\d+$/ } },
      ],
      [
        ['GET /{db}/y?attachments=true', { headers: { Accept: 'multipart/related' } }],
        {
          json: { _id: 'y', _rev: /./ },
          headers: { 'content-type': 'application/json', 'content-length': /^\d+$/ },
        },
      ],
    ],
  },
  {
    of: '7.3 Accept',
    says: 'JSON for who does not name multipart/related, where CouchDB takes */* and none for it',
    given: [ATTACHED],
    steps: [
      [accepting('attachments=true'), INLINED],
      [accepting('attachments=true', '*/*'), INLINED],
      [accepting('attachments=true', 'application/json'), INLINED],
      [accepting('attachments=true', 'multipart/mixed'), INLINED],
    ],
  },
  {
    of: '7.3 form',
    says: 'the JSON, then each attachment, byte for byte; its length is told before',
    given: [ATTACHED],
    ask: accepting('attachments=true', 'multipart/related, application/json;q=0.5'),
    answer: {
      headers: { 'content-length': /^\d+$/, etag: '"{first}"' },
      text: new RegExp(
        '^--([0-9a-f]{32})\\r\\nContent-Type: application/json\\r\\n\\r\\n\\{[^\\n]*\\}\\r\\n--\\1' +
          '\\r\\nContent-Disposition: attachment; filename="a"\\r\\nContent-Type: text/plain' +
          `\\r\\nContent-Length: 29\\r\\n\\r\\n${TEXT}\\r\\n--\\1--$`,
      ),
      parts: [
        { ...JSON_PART, content: { _id: 'x', _rev: '{first}', _attachments: { a: FOLLOWING } } },
        part('a', TEXT),
      ],
    },
  },
  {
    of: '7.3 form',
    says: 'stubs of what the client has, by atts_since',
    given: [
      ATTACHED,
      put('x', { _rev: '{first}', _attachments: { a: KEPT, b: INLINE } }, { keep: { second: 'rev' } }),
    ],
    ask: accepting('atts_since=["{first}"]', 'multipart/related'),
    answer: {
      parts: [
        {
          ...JSON_PART,
          content: {
            _id: 'x',
            _rev: '{second}',
            _attachments: { a: STUB, b: { ...FOLLOWING, revpos: 2 } },
          },
        },
        part('b', TEXT),
      ],
    },
  },
  {
    of: '7.3 gzip',
    says: 'goes out as it is stored, and the JSON says so',
    given: [ZIPPED],
    ask: accepting('attachments=true', 'multipart/related'),
    answer: {
      parts: [
        {
          ...JSON_PART,
          content: {
            _id: 'x',
            _rev: '{first}',
            _attachments: { a: { ...FOLLOWING, digest: GZIP_DIGEST, ...GZIP_INFO } },
          },
        },
        part('a', TEXT, { 'content-length': String(GZIP.length), 'content-encoding': 'gzip' }),
      ],
    },
  },
  {
    of: ['7.3 gzip', '3.1 atts_since', '3.1 att_encoding_info'],
    says: 'in JSON the content is in clear, also by atts_since',
    given: [ZIPPED],
    steps: [
      ['GET /{db}/x?atts_since=[]', { like: { _attachments: { a: { data: BASE64, encoding: undefined } } } }],
      [
        'GET /{db}/x?atts_since=[]&att_encoding_info=true',
        { like: { _attachments: { a: { data: BASE64, ...GZIP_INFO } } } },
      ],
    ],
  },
  {
    of: ['8.1 att_encoding_info', '8.1 attachments'],
    says: 'of what is stored as gzip',
    given: [ZIPPED],
    steps: (
      [
        ['', { ...ZIPPED_STUB, length: 29, stub: true }],
        ['&att_encoding_info=true', { ...ZIPPED_STUB, length: 29, stub: true, ...GZIP_INFO }],
        ['&attachments=true', { ...ZIPPED_STUB, data: BASE64 }],
        ['&attachments=true&att_encoding_info=true', { ...ZIPPED_STUB, data: BASE64, ...GZIP_INFO }],
      ] as const
    ).map(([query, a]) => [
      `GET /{db}/_all_docs?key="x"&include_docs=true${query}`,
      {
        like: {
          rows: [{ doc: { _attachments: { a } } }],
        },
      },
    ]),
  },
  {
    of: ['4.2 att_encoding_info', '4.2 attachments'],
    says: 'of what is stored as gzip',
    given: [ZIPPED],
    ask: [
      'POST /{db}/_bulk_get?attachments=true&att_encoding_info=true',
      { json: { docs: [{ id: 'x' }] }, headers: { Accept: '*/*' } },
    ],
    answer: {
      like: { results: [{ docs: [{ ok: { _attachments: { a: { data: BASE64, ...GZIP_INFO } } } }] }] },
    },
  },
  {
    of: '7.3 Accept',
    says: 'whatever it is, what the client has is not sent, and what is missing is answered in JSON',
    given: [ATTACHED],
    steps: ['multipart/related', 'application/json'].flatMap((accept): (readonly [Ask, Answer])[] => [
      [
        ['GET /{db}/x?attachments=true', { headers: { Accept: accept, 'If-None-Match': '"{first}"' } }],
        { status: 304, text: '' },
      ],
      [
        ['GET /{db}/y?attachments=true', { headers: { Accept: accept } }],
        failed(404, 'not_found', 'missing'),
      ],
    ]),
  },
  {
    of: '7.3 HEAD',
    says: 'its head',
    given: [ATTACHED],
    ask: ['HEAD /{db}/x?attachments=true', { headers: { Accept: 'multipart/related' } }],
    answer: { text: '', headers: { 'content-type': /^multipart\/related/, 'content-length': /^\d+$/ } },
  },
]
