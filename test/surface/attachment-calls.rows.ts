/** Attachments on their own addresses: protocol.md 7.4. Ranges stand in attachment-ranges.rows.ts. */
import { md5 } from '../helpers/related.ts'
import type { Answer } from './answers.ts'
import { ATTACHED, ETAG, GZIP, GZIP_DIGEST, GZIP_ETAG, GZIP_INFO, STUB, TEXT, ZIPPED } from './contents.ts'
import { SIX, set, THREE, unset } from './feeds.ts'
import { type Ask, failed, put, type Row } from './table.ts'

const missing: Answer = failed(404, 'not_found', 'missing')
const noAttachment: Answer = failed(404, 'not_found', 'Document is missing attachment')
const conflict: Answer = failed(409, 'conflict', 'Document update conflict.')
const missingRev: Answer = failed(409, 'not_found', 'missing_rev')
const UNKNOWN = `1-${'0'.repeat(32)}`
const GARBAGE = '4-garbage'

const read = (headers: Readonly<Record<string, string>>, path = 'x/a'): Ask => [
  `GET /{db}/${path}`,
  { headers },
]

/** Its content, without a word of how it is coded. */
const PLAIN: Answer = {
  text: TEXT,
  headers: { 'content-encoding': undefined, 'content-length': '29', 'content-type': 'text/plain' },
}
const CODED: Answer = {
  gunzipped: TEXT,
  headers: {
    'content-encoding': 'gzip',
    'content-length': String(GZIP.length),
    'content-type': 'text/plain',
  },
}

export const rows: readonly Row[] = [
  {
    of: ['7.4 GET', '7.4 headers'],
    says: 'answers with the content and its headers',
    given: [ATTACHED],
    ask: 'GET /{db}/x/a',
    answer: {
      text: TEXT,
      headers: {
        'content-type': 'text/plain',
        'content-length': '29',
        etag: ETAG,
        'cache-control': 'must-revalidate',
        'accept-ranges': 'bytes',
        'content-encoding': undefined,
        'content-security-policy': 'sandbox',
        'content-disposition': undefined,
        'content-md5': undefined,
      },
    },
  },
  {
    of: ['7.4 HEAD', '7.4 headers'],
    says: 'answers with the same head, without the content',
    given: [ATTACHED],
    ask: 'HEAD /{db}/x/a',
    answer: {
      text: '',
      headers: {
        'content-type': 'text/plain',
        'content-length': '29',
        etag: ETAG,
        'cache-control': 'must-revalidate',
        'accept-ranges': 'bytes',
        'content-security-policy': 'sandbox',
      },
    },
  },
  {
    of: '7.4 404',
    says: 'no such document, attachment, database',
    given: [ATTACHED],
    steps: [
      ['GET /{db}/y/a', missing],
      ['GET /{db}/x/b', noAttachment],
      ['HEAD /{db}/x/b', { status: 404, text: '' }],
      ['GET /{db}-none/x/a', failed(404, 'not_found', 'Database does not exist.')],
    ],
  },
  {
    of: '7.4 404',
    says: 'a deleted document',
    given: [ATTACHED, 'DELETE /{db}/x?rev={first}'],
    ask: 'GET /{db}/x/a',
    answer: failed(404, 'not_found', 'deleted'),
  },
  {
    of: '7.4 rev',
    says: 'of that revision',
    given: [ATTACHED, ['PUT /{db}/x/a?rev={first}', { body: 'new' }]],
    steps: [
      ['GET /{db}/x/a', { text: 'new' }],
      ['GET /{db}/x/a?rev={first}', { text: TEXT }],
      [`GET /{db}/x/a?rev=${UNKNOWN}`, missing],
      ['GET /{db}/x/a?rev=x', failed(400, 'bad_request', 'Invalid rev format')],
    ],
  },
  {
    of: '7.4 If-None-Match',
    says: '304 for who has it; weak tags and lists count',
    given: [ATTACHED],
    steps: [
      [read({ 'If-None-Match': ETAG }), { status: 304, text: '', headers: { etag: ETAG } }],
      [read({ 'If-None-Match': `W/${ETAG}` }), { status: 304, text: '' }],
      [read({ 'If-None-Match': `"other", ${ETAG}` }), { status: 304, text: '' }],
      [read({ 'If-None-Match': '"other"' }), { text: TEXT }],
      [['HEAD /{db}/x/a', { headers: { 'If-None-Match': ETAG } }], { status: 304, text: '' }],
    ],
  },
  {
    of: ['7.4 Accept-Encoding', '7.4 gzip'],
    says: 'what is stored as gzip goes out so to who takes it, inflated to others',
    given: [ZIPPED],
    steps: [
      [read({ 'Accept-Encoding': 'gzip' }), CODED],
      [read({ 'Accept-Encoding': 'br, gzip;q=0.5' }), CODED],
      [read({}), PLAIN],
      [read({ 'Accept-Encoding': 'identity' }), PLAIN],
      [read({ 'Accept-Encoding': 'gzip;q=0' }), PLAIN],
      [
        ['HEAD /{db}/x/a', { headers: { 'Accept-Encoding': 'gzip' } }],
        { text: '', headers: { 'content-encoding': 'gzip', 'content-length': String(GZIP.length) } },
      ],
    ],
  },
  {
    of: '7.4 gzip',
    says: 'its tag is of the bytes that are stored, and there are no ranges of it',
    given: [ZIPPED],
    steps: [
      [read({}), { headers: { etag: GZIP_ETAG, 'accept-ranges': 'none' } }],
      [read({ 'If-None-Match': GZIP_ETAG }), { status: 304 }],
    ],
  },
  {
    of: '7.4 Accept-Encoding',
    says: 'what is stored as it is goes out as it is',
    given: [ATTACHED],
    ask: read({ 'Accept-Encoding': 'gzip, br' }),
    answer: { text: TEXT, headers: { 'content-encoding': undefined, 'accept-ranges': 'bytes' } },
  },
  {
    of: ['7.4 PUT', '7.4 PUT new document', '7.4 PUT Location'],
    says: 'creates the document if it does not exist',
    steps: [
      [
        ['PUT /{db}/x/a', { body: TEXT, headers: { 'Content-Type': 'text/plain' } }],
        {
          status: 201,
          json: { ok: true, id: 'x', rev: /^1-[0-9a-f]{32}$/ },
          headers: { location: /^http:\/\/[^/]+\/[^/]+\/x\/a$/ },
        },
      ],
      ['GET /{db}/x', { like: { _rev: /^1-/, _attachments: { a: STUB } } }],
      [
        ['PUT /{db}/y/a/b%20c%2Fd', { body: TEXT, keep: { rev: 'rev' } }],
        {
          status: 201,
          like: { id: 'y', rev: /^1-/ },
          headers: { location: /\/y\/a%2Fb%20c%2Fd$/, etag: '"{rev}"' },
        },
      ],
      ['GET /{db}/y/a/b%20c/d', { text: TEXT, headers: { etag: ETAG } }],
    ],
  },
  {
    of: ['7.4 PUT', '7.4 PUT rev', '7.4 PUT If-Match'],
    says: 'changes the document of that revision, and nothing else in it',
    given: [put('x', { n: 1 }, { keep: { first: 'rev' } })],
    steps: [
      [
        ['PUT /{db}/x/a?rev={first}', { body: 'a', keep: { second: 'rev' } }],
        { status: 201, like: { rev: /^2-/ } },
      ],
      [
        ['PUT /{db}/x/b', { body: 'b', headers: { 'If-Match': '"{second}"' } }],
        { status: 201, like: { rev: /^3-/ } },
      ],
      ['GET /{db}/x', { like: { n: 1, _attachments: { a: { revpos: 2 }, b: { revpos: 3 } } } }],
    ],
  },
  {
    of: '7.4 PUT Content-Type',
    says: 'is kept as it is; application/octet-stream by default',
    steps: [
      [
        ['PUT /{db}/x/a', { body: 'a', headers: { 'Content-Type': 'text/plain; charset=utf-8' } }],
        { status: 201 },
      ],
      ['GET /{db}/x/a', { headers: { 'content-type': 'text/plain; charset=utf-8' } }],
      [['PUT /{db}/y/a', { body: 'a' }], { status: 201 }],
      ['GET /{db}/y/a', { headers: { 'content-type': 'application/octet-stream' } }],
    ],
  },
  {
    of: '7.4 PUT Content-Encoding',
    says: 'gzip is stored as it comes, identity is none',
    given: [ZIPPED],
    steps: [
      [
        'GET /{db}/x?att_encoding_info=true',
        { like: { _attachments: { a: { digest: GZIP_DIGEST, length: 29, ...GZIP_INFO } } } },
      ],
      [['PUT /{db}/y/a', { body: TEXT, headers: { 'Content-Encoding': 'identity' } }], { status: 201 }],
      ['GET /{db}/y?att_encoding_info=true', { like: { _attachments: { a: { encoding: undefined } } } }],
    ],
  },
  {
    of: '7.4 PUT Content-Encoding',
    says: 'no other; and gzip must be gzip',
    steps: [
      [
        ['PUT /{db}/x/a', { body: TEXT, headers: { 'Content-Encoding': 'br' } }],
        failed(415, 'bad_content_type', 'Only gzip and identity content-encodings are supported'),
      ],
      [
        ['PUT /{db}/x/a', { body: TEXT, headers: { 'Content-Encoding': 'gzip' } }],
        failed(400, 'bad_request', 'Request body is not properly gzipped.'),
      ],
      ['GET /{db}/x', missing],
    ],
  },
  {
    of: '7.4 PUT Content-MD5',
    says: 'is ignored',
    ask: ['PUT /{db}/x/a', { body: TEXT, headers: { 'Content-MD5': md5('other').slice(4) } }],
    answer: { status: 201 },
  },
  {
    of: '7.4 PUT empty',
    says: 'a body of no bytes, or none at all, is an empty attachment',
    steps: [
      [['PUT /{db}/x/a', { body: '' }], { status: 201 }],
      ['PUT /{db}/y/a', { status: 201 }],
      ['GET /{db}/y/a', { text: '', headers: { 'content-length': '0' } }],
    ],
  },
  {
    of: '7.4 PUT 409',
    says: 'no revision of a document that there is, an old one, an unknown one',
    given: [ATTACHED, put('x', { _rev: '{first}' })],
    steps: [
      [['PUT /{db}/x/a', { body: 'a' }], conflict],
      [['PUT /{db}/x/a?rev={first}', { body: 'a' }], conflict],
      [[`PUT /{db}/x/a?rev=${UNKNOWN}`, { body: 'a' }], missingRev],
      [[`PUT /{db}/y/a?rev=${UNKNOWN}`, { body: 'a' }], missingRev],
      [[`PUT /{db}/x/a?rev=${GARBAGE}`, { body: 'a' }], missingRev],
    ],
  },
  {
    of: '7.4 PUT 400',
    says: 'names, revisions that are none, and two that differ',
    steps: [
      [
        ['PUT /{db}/x/_a', { body: 'a' }],
        failed(400, 'bad_request', "Attachment name '_a' starts with prohibited character '_'"),
      ],
      [['PUT /{db}/x/a?rev=x', { body: 'a' }], failed(400, 'bad_request', 'Invalid rev format')],
      [
        ['PUT /{db}/x/a?rev=1-a', { body: 'a', headers: { 'If-Match': '"1-b"' } }],
        failed(400, 'bad_request', 'Document rev and etag have different values'),
      ],
      [
        ['PUT /{db}/_local/x/a', { body: 'a' }],
        failed(400, 'bad_request', '_local documents do not accept attachments.'),
      ],
      [
        ['PUT /{db}/_local%2Fx/a', { body: 'a' }],
        failed(400, 'bad_request', '_local documents do not accept attachments.'),
      ],
      ...['%2E%2E', 'a%2F..%2Fb', 'a%00b', 'a%0D%0Ab'].map(
        (name) => [[`PUT /{db}/x/${name}`, { body: 'a' }], { status: 400 }] as const,
      ),
      [['PUT /{db}-none/x/a', { body: 'a' }], failed(404, 'not_found', 'Database does not exist.')],
    ],
  },
  {
    of: '7.4 PUT 413',
    says: 'larger than couchdb/max_attachment_size',
    given: [set('couchdb/max_attachment_size', '28')],
    steps: [
      [['PUT /{db}/x/a', { body: TEXT }], failed(413, 'attachment_too_large', 'a')],
      [['PUT /{db}/x/a', { body: TEXT.slice(1) }], { status: 201 }],
      [unset('couchdb/max_attachment_size'), {}],
    ],
  },
  {
    of: '7.4 PUT',
    says: 'is a change of the document, which feeds tell of',
    given: [...THREE, SIX],
    steps: [
      [['PUT /{db}/a/t?rev=1-a1', { body: 'a' }], { status: 201 }],
      ['GET /{db}/_changes?since={six}', { ids: ['b', 'c', 'a'] }],
    ],
  },
  {
    of: ['7.4 DELETE', '7.4 DELETE rev', '7.4 DELETE If-Match'],
    says: 'takes the attachment away and leaves the document',
    given: [ATTACHED, ['PUT /{db}/x/b?rev={first}', { body: 'b', keep: { second: 'rev' } }]],
    steps: [
      [
        ['DELETE /{db}/x/b?rev={second}', { keep: { third: 'rev' } }],
        { json: { ok: true, id: 'x', rev: /^3-[0-9a-f]{32}$/ }, headers: { location: undefined } },
      ],
      ['GET /{db}/x/b', noAttachment],
      ['GET /{db}/x/a', { text: TEXT }],
      [['DELETE /{db}/x/a', { headers: { 'If-Match': '"{third}"' } }], { like: { rev: /^4-/ } }],
      ['GET /{db}/x', { json: { _id: 'x', _rev: /^4-/ } }],
    ],
  },
  {
    of: '7.4 DELETE 404',
    says: '404 if the document or the attachment does not exist',
    given: [ATTACHED],
    steps: [
      ['DELETE /{db}/y/a', missing],
      ['DELETE /{db}/x/b?rev={first}', noAttachment],
    ],
  },
  {
    of: '7.4 DELETE 409',
    says: 'no revision, an old one, an unknown one',
    given: [ATTACHED, put('x', { _rev: '{first}', _attachments: { a: { stub: true } } })],
    steps: [
      ['DELETE /{db}/x/a', conflict],
      ['DELETE /{db}/x/a?rev={first}', conflict],
      [`DELETE /{db}/x/a?rev=${GARBAGE}`, missingRev],
      [`DELETE /{db}/x/a?rev=${UNKNOWN}`, missingRev],
      ['DELETE /{db}/x/a?rev=garbage', failed(400, 'bad_request', 'Invalid rev format')],
      [
        ['DELETE /{db}/x/a?rev={first}', { headers: { 'if-match': '"1-x"' } }],
        failed(400, 'bad_request', 'Document rev and etag have different values'),
      ],
    ],
  },
  {
    of: '7.4 other methods',
    says: '405 with the allowed methods',
    given: [ATTACHED],
    steps: ['POST', 'COPY'].map((method) => [
      `${method} /{db}/x/a`,
      {
        ...failed(405, 'method_not_allowed', 'Only DELETE,GET,HEAD,PUT allowed'),
        headers: { allow: 'DELETE,GET,HEAD,PUT' },
      },
    ]),
  },
  {
    of: '7.4 design documents',
    says: 'have attachments, but none that begins with _',
    steps: [
      [
        ['PUT /{db}/_design/d/index.html', { body: '<p>', headers: { 'Content-Type': 'text/html' } }],
        { status: 201 },
      ],
      ['GET /{db}/_design/d/index.html', { text: '<p>', headers: { 'content-type': 'text/html' } }],
      ['GET /{db}/_design%2Fd/index.html', { text: '<p>' }],
      ['GET /{db}/_design/d/_nothing', missing],
      ...['POST', 'PUT', 'DELETE', 'COPY'].map(
        (method) =>
          [
            [
              `${method} /{db}/_design/d/_nothing`,
              // undici sends no body with DELETE and COPY over HTTP/2.
              { headers: { destination: 'copy' }, ...(method.startsWith('P') && { body: 'x' }) },
            ],
            missing,
          ] as const,
      ),
    ],
  },
]
