/** The forms of `_attachments`, and their members: protocol.md 7.1. */
import { md5 } from '../helpers/related.ts'
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
} from './contents.ts'
import { set, unset } from './feeds.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

const saved: Answer = { status: 201 }
const attachments = (entries: unknown): Answer => ({ like: { _attachments: entries } })
const gone: Answer = failed(404, 'not_found', 'Document is missing attachment')
const RELATED = { headers: { Accept: 'multipart/related' } }
const NO_STUB = (reason: string): Answer => failed(412, 'missing_stub', reason)

/** The document with these attachments again. */
const again = (entries: unknown): Ask => put('x', { _rev: '{first}', _attachments: entries })

export const rows: readonly Row[] = [
  {
    of: ['7.1 inline', '7.1 read stub'],
    says: 'a new content, of which a reader gets a stub',
    given: [ATTACHED],
    steps: [
      ['GET /{db}/x', { json: { _id: 'x', _rev: '{first}', _attachments: { a: STUB } } }],
      ['GET /{db}/x/a', { text: TEXT, headers: { 'content-type': 'text/plain' } }],
    ],
  },
  {
    of: '7.1 content_type',
    says: 'application/octet-stream by default',
    given: [put('x', { _attachments: { a: { data: BASE64 } } })],
    steps: [
      ['GET /{db}/x', attachments({ a: { content_type: 'application/octet-stream' } })],
      ['GET /{db}/x/a', { headers: { 'content-type': 'application/octet-stream' } }],
    ],
  },
  {
    of: '7.1 what is ignored',
    says: 'revpos, digest and length beside data',
    given: [put('x', { _attachments: { a: { ...INLINE, revpos: 7, digest: 'md5-other', length: 3 } } })],
    ask: 'GET /{db}/x',
    answer: attachments({ a: STUB }),
  },
  {
    of: '7.1 stub',
    says: 'keeps the content of the parent revision, whatever else it says',
    given: [ATTACHED],
    steps: [
      [again({ a: { ...KEPT, digest: 'md5-other', length: 1, content_type: 'image/png' } }), saved],
      ['GET /{db}/x', attachments({ a: STUB })],
      ['GET /{db}/x/a', { text: TEXT }],
    ],
  },
  {
    of: '7.1 stub revpos',
    says: 'must be the one that is stored, if it is there',
    given: [ATTACHED],
    steps: [
      [again({ a: { ...KEPT, revpos: 2 } }), NO_STUB('Invalid attachment stub in x for a')],
      [again({ a: { ...KEPT, revpos: 1 } }), saved],
    ],
  },
  {
    of: '7.1 stub without a match',
    says: 'no attachment of that name, no parent revision',
    given: [ATTACHED],
    steps: [
      [again({ b: KEPT }), NO_STUB('Invalid attachment stub in x for b')],
      [put('y', { _attachments: { a: KEPT } }), { status: 412, like: { error: 'missing_stub' } }],
      ['GET /{db}/y', { status: 404 }],
    ],
  },
  {
    of: '7.1 follows',
    says: 'sends the content as a part of its own',
    steps: [
      [multipart('PUT /{db}/x', { _attachments: { a: follows(TEXT) } }, [TEXT]), saved],
      ['GET /{db}/x', attachments({ a: STUB })],
      ['GET /{db}/x/a', { text: TEXT }],
    ],
  },
  {
    of: '7.1 read inline',
    says: 'attachments=true: the content in place of its length',
    given: [ATTACHED],
    ask: 'GET /{db}/x?attachments=true',
    answer: { json: { _id: 'x', _rev: '{first}', _attachments: { a: { ...READ, data: BASE64 } } } },
  },
  {
    of: '7.1 read follows',
    says: 'attachments=true, for who takes multipart/related',
    given: [ATTACHED],
    ask: ['GET /{db}/x?attachments=true', RELATED],
    answer: {
      parts: [
        {
          'content-type': 'application/json',
          content: {
            _id: 'x',
            _rev: '{first}',
            _attachments: { a: { ...READ, length: 29, follows: true } },
          },
        },
        part('a', TEXT),
      ],
    },
  },
  {
    of: '7.1 left out',
    says: 'an attachment that an update does not name is removed',
    given: [
      put('x', { _attachments: { a: INLINE, b: INLINE } }, { keep: { first: 'rev' } }),
      again({ a: KEPT }),
    ],
    steps: [
      ['GET /{db}/x/a', { text: TEXT }],
      ['GET /{db}/x/b', gone],
      ['GET /{db}/x/b?rev={first}', { text: TEXT }],
    ],
  },
  {
    of: '7.1 left out',
    says: 'an update without _attachments removes all',
    given: [ATTACHED, put('x', { _rev: '{first}' })],
    steps: [
      ['GET /{db}/x', attachments(undefined)],
      ['GET /{db}/x/a', gone],
    ],
  },
  {
    of: '7.1 base64',
    says: 'must be some',
    steps: [
      [
        put('x', { _attachments: { a: { data: 'notBase64Encoded=' } } }),
        failed(400, 'bad_request', 'Invalid attachment data for a'),
      ],
      [put('x', { _attachments: { a: { data: 7 } } }), { status: 400 }],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  {
    of: '7.1 empty content',
    says: 'is one',
    given: [put('x', { _attachments: { a: { content_type: 'text/plain', data: '' } } })],
    steps: [
      ['GET /{db}/x', attachments({ a: { length: 0, digest: md5('') } })],
      ['GET /{db}/x/a', { text: '', headers: { 'content-length': '0' } }],
    ],
  },
  {
    of: '7.1 revpos',
    says: 'the generation in which the content was added or replaced',
    given: [ATTACHED],
    steps: [
      [
        put('x', { _rev: '{first}', _attachments: { a: KEPT, b: INLINE } }, { keep: { second: 'rev' } }),
        saved,
      ],
      ['GET /{db}/x', attachments({ a: { revpos: 1 }, b: { revpos: 2 } })],
      [put('x', { _rev: '{second}', _attachments: { a: { data: 'bmV3' }, b: KEPT } }), saved],
      ['GET /{db}/x', attachments({ a: { revpos: 3 }, b: { revpos: 2 } })],
    ],
  },
  {
    of: '7.1 revpos',
    says: 'of replicated writes, what they say',
    given: [
      stored({
        _id: 'x',
        _rev: '4-d',
        _attachments: { a: { ...INLINE, revpos: 3 }, b: INLINE },
      }),
    ],
    ask: 'GET /{db}/x',
    answer: attachments({ a: { revpos: 3 }, b: { revpos: 0 } }),
  },
  {
    of: '7.1 digest',
    says: 'is of the content, also of a type that CouchDB would store as gzip (docs/compatibility.md)',
    given: ['text/plain', 'application/javascript', 'application/json', 'application/xml', 'image/png'].map(
      (type, index) => put(`x${index}`, { _attachments: { a: { content_type: type, data: BASE64 } } }),
    ),
    steps: [0, 1, 2, 3, 4].map((index) => [
      `GET /{db}/x${index}?att_encoding_info=true`,
      attachments({ a: { digest: DIGEST, length: 29, encoding: undefined } }),
    ]),
  },
  {
    of: '7.1 md5 of what follows',
    says: 'must fit its digest; CouchDB answers 500 where it does not (docs/compatibility.md)',
    steps: [
      [
        multipart('PUT /{db}/x', { _attachments: { a: follows(TEXT, { digest: md5('other') }) } }, [TEXT]),
        failed(400, 'bad_request', 'md5_mismatch'),
      ],
      ['GET /{db}/x', { status: 404 }],
      [multipart('PUT /{db}/x', { _attachments: { a: follows(TEXT, { digest: DIGEST }) } }, [TEXT]), saved],
    ],
  },
  {
    of: ['7.1 encoding', '5.1 att_encoding_info'],
    says: 'a part that is gzip already is stored so; its length is that of the content',
    given: [
      multipart(
        'PUT /{db}/x',
        { _attachments: { a: follows(TEXT, { ...GZIP_INFO, digest: GZIP_DIGEST }) } },
        [GZIP],
      ),
    ],
    steps: [
      ['GET /{db}/x', attachments({ a: { length: 29, digest: GZIP_DIGEST, encoding: undefined } })],
      ['GET /{db}/x?att_encoding_info=true', attachments({ a: { length: 29, ...GZIP_INFO } })],
      [
        'GET /{db}/_changes?include_docs=true&att_encoding_info=true',
        { like: { results: [{ doc: { _attachments: { a: { length: 29, ...GZIP_INFO } } } }] } },
      ],
      ['GET /{db}/x?attachments=true', attachments({ a: { data: BASE64 } })],
      ['GET /{db}/x/a', { text: TEXT }],
    ],
  },
  {
    of: '7.1 encoding',
    says: 'the md5 of its bytes must fit its digest',
    ask: multipart('PUT /{db}/x', { _attachments: { a: follows(TEXT, { ...GZIP_INFO, digest: DIGEST }) } }, [
      GZIP,
    ]),
    answer: failed(400, 'bad_request', 'md5_mismatch'),
  },
  {
    of: '7.1 names',
    says: 'any text; slashes may stand in the path as they are, or escaped',
    given: [put('x', { _attachments: { 'a/b c.txt': INLINE, ä: INLINE, '100%': INLINE } })],
    steps: ['a/b%20c.txt', 'a%2Fb%20c.txt', '%C3%A4', '100%25'].map((name) => [
      `GET /{db}/x/${name}`,
      { text: TEXT },
    ]),
  },
  {
    of: '7.1 names',
    says: 'must not begin with _',
    steps: [
      [
        put('x', { _attachments: { _a: INLINE } }),
        failed(400, 'bad_request', "Attachment name '_a' starts with prohibited character '_'"),
      ],
    ],
  },
  {
    of: '7.1 names',
    says: 'twice the same: the last counts, where CouchDB answers 400 (docs/compatibility.md)',
    given: [['PUT /{db}/x', { body: `{"_attachments":{"a":{"data":"bmV3"},"a":{"data":"${BASE64}"}}}` }]],
    ask: 'GET /{db}/x/a',
    answer: { text: TEXT },
  },
  {
    of: '7.1 names',
    says: 'new ones hold no control characters, and no segments . and .. (docs/compatibility.md)',
    steps: [
      ...['a\nb', '.', '../a', 'a/./b'].map(
        (name) => [put('x', { _attachments: { [name]: INLINE } }), { status: 400 }] as const,
      ),
      [stored({ _id: 'x', _rev: '1-a', _attachments: { '../a': { ...INLINE, revpos: 1 } } }), saved],
      ['GET /{db}/x', attachments({ '../a': STUB })],
    ],
  },
  {
    of: '7.1 size limit',
    says: 'couchdb/max_attachment_size, of each; the answer names the attachment',
    given: [set('couchdb/max_attachment_size', '28')],
    steps: [
      [put('x', { _attachments: { a: INLINE } }), failed(413, 'attachment_too_large', 'a')],
      [
        multipart('PUT /{db}/x', { _attachments: { a: follows(TEXT) } }, [TEXT]),
        failed(413, 'attachment_too_large', 'a'),
      ],
      [['PUT /{db}/x/a', { body: TEXT }], failed(413, 'attachment_too_large', 'a')],
      [put('x', { _attachments: { a: { data: 'bmV3' }, b: { data: BASE64.slice(0, 36) } } }), saved],
      [unset('couchdb/max_attachment_size'), {}],
    ],
  },
  {
    of: '7.1 a change',
    says: 'of an attachment is a new revision, and an old one keeps what it had',
    given: [ATTACHED],
    steps: [
      [
        ['PUT /{db}/x/a?rev={first}', { body: 'new', keep: { second: 'rev' } }],
        { status: 201, like: { rev: /^2-/ } },
      ],
      ['GET /{db}/x/a', { text: 'new' }],
      ['GET /{db}/x/a?rev={second}', { text: 'new' }],
      ['GET /{db}/x/a?rev={first}', { text: TEXT }],
    ],
  },
  {
    of: '7.1 a change',
    says: 'may be of a leaf that is not the winner',
    given: [
      stored(
        { _id: 'x', _revisions: { start: 2, ids: ['b', 'a'] } },
        { _id: 'x', _revisions: { start: 2, ids: ['c', 'a'] } },
      ),
    ],
    steps: [
      [['PUT /{db}/x/a?rev=2-b', { body: TEXT, keep: { third: 'rev' } }], saved],
      [
        'GET /{db}/x?conflicts=true',
        { like: { _rev: '{third}', _conflicts: ['2-c'], _attachments: { a: {} } } },
      ],
      ['GET /{db}/x/a?rev=2-c', gone],
    ],
  },
]
