/** DELETE, POST to a database, COPY and the upload form: protocol.md 3.4 to 3.7. */

import type { Answer } from './answers.ts'
import { CHAIN, CONFLICT, GONE, INLINE, STUB, x } from './histories.ts'
import { type Ask, type AskMore, failed, put, type Row, stored } from './table.ts'

const CONFLICTING: Answer = failed(409, 'conflict', 'Document update conflict.')
const MISSING: Answer = failed(404, 'not_found', 'missing')
const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)

const DELETE: readonly Row[] = [
  {
    of: ['3.4 rev', '3.4 answer'],
    says: 'the tombstone, with its revision as ETag; it holds nothing of the document',
    given: [CHAIN],
    steps: [
      [
        ['DELETE /{db}/x?rev=3-c', { keep: { rev: 'rev' } }],
        { json: { ok: true, id: 'x', rev: /^4-[0-9a-f]{32}$/ }, headers: { etag: '"{rev}"' } },
      ],
      ['GET /{db}/x?rev={rev}', { json: { _id: 'x', _rev: '{rev}', _deleted: true } }],
      ['GET /{db}', { like: { doc_count: 0, doc_del_count: 1 } }],
    ],
  },
  {
    of: '3.4 If-Match',
    says: 'names the revision, in quotes or not; not another than the query',
    given: [CHAIN, stored({ _id: 'y', _rev: '1-a' })],
    steps: [
      [
        ['DELETE /{db}/x?rev=3-c', { headers: { 'if-match': '2-b' } }],
        malformed('Document rev and etag have different values'),
      ],
      [
        ['DELETE /{db}/x', { headers: { 'if-match': '"3-c"' }, keep: { rev: 'rev' } }],
        { like: { rev: /^4-/ }, headers: { etag: '"{rev}"' } },
      ],
      [['DELETE /{db}/y', { headers: { 'if-match': '1-a' } }], { like: { rev: /^2-/ } }],
    ],
  },
  {
    of: ['3.4 missing', '3.4 deleted'],
    says: 'said before anything is said about the revision',
    given: [GONE],
    steps: [
      ['DELETE /{db}/y', MISSING],
      ['DELETE /{db}/y?rev=1-a', MISSING],
      ['DELETE /{db}/y?rev=junk', MISSING],
      ['DELETE /{db}/x', failed(404, 'not_found', 'deleted')],
      ...['2-b', '1-a', 'junk'].map(
        (rev) => [`DELETE /{db}/x?rev=${rev}`, failed(404, 'not_found', 'deleted')] as const,
      ),
    ],
  },
  { of: '3.4 no rev', says: 'a conflict', given: [CHAIN], ask: 'DELETE /{db}/x', answer: CONFLICTING },
  {
    of: '3.4 no leaf',
    says: 'a conflict',
    given: [CHAIN],
    steps: [
      ['DELETE /{db}/x?rev=2-b', CONFLICTING],
      ['DELETE /{db}/x?rev=3-z', CONFLICTING],
      ['DELETE /{db}/x?rev=junk', malformed('Invalid rev format')],
    ],
  },
  {
    of: '3.4 losing leaf',
    says: 'settles a conflict',
    given: [CONFLICT],
    steps: [
      ['DELETE /{db}/x?rev=2-b', { like: { rev: /^3-/ } }],
      ['GET /{db}/x?conflicts=true', { json: { _id: 'x', _rev: '2-c', v: 3 } }],
    ],
  },
]

const POST: readonly Row[] = [
  {
    of: ['3.5 body', '3.5 generated id', '3.5 no ETag', '3.5 Location'],
    says: 'a document without an id gets one',
    steps: [
      [
        ['POST /{db}', { json: { v: 1 }, headers: { host: 'localhost' }, keep: { id: 'id', rev: 'rev' } }],
        {
          status: 201,
          json: { ok: true, id: /^[0-9a-f]{32}$/, rev: /^1-[0-9a-f]{32}$/ },
          headers: { location: 'http://localhost/{db}/{id}', etag: undefined },
        },
      ],
      ['GET /{db}/{id}', { json: { _id: '{id}', _rev: '{rev}', v: 1 } }],
    ],
  },
  {
    of: '3.5 _id',
    says: 'is used, and with _rev it is an update; without it, _rev is ignored',
    given: [CHAIN],
    steps: [
      [
        ['POST /{db}', { json: { _id: 'y' }, keep: { y: 'rev' } }],
        { status: 201, like: { id: 'y', rev: /^1-/ } },
      ],
      [['POST /{db}', { json: { _id: 'x', _rev: '3-c' } }], { status: 201, like: { id: 'x', rev: /^4-/ } }],
      [['POST /{db}', { json: { _id: 'x' } }], CONFLICTING],
      [
        ['POST /{db}/', { json: { _id: 'y', _rev: '{y}', v: 2 } }],
        { status: 201, like: { id: 'y', rev: /^2-/ } },
      ],
      [
        ['POST /{db}', { json: { _id: '_design/a b/c' } }],
        { status: 201, headers: { location: /\/_design%2Fa%20b%2Fc$/ } },
      ],
      [['POST /{db}', { json: { _rev: '3-c' } }], { status: 201, like: { rev: /^1-/ } }],
      [['POST /{db}', { json: { _id: '_x' } }], { status: 400, like: { error: 'illegal_docid' } }],
      [['POST /{db}', { json: [] }], malformed('Document must be a JSON object')],
    ],
  },
  {
    of: '3.5 batch=ok',
    says: '202 without a revision',
    steps: [
      [['POST /{db}?batch=ok', { json: { _id: 'y' } }], { status: 202, json: { ok: true, id: 'y' } }],
      ['GET /{db}/y', { like: { _id: 'y' } }],
    ],
  },
  {
    of: '3.5 new_edits',
    says: 'is ignored: the revision is the parent',
    given: [CHAIN],
    steps: [
      [['POST /{db}?new_edits=false', { json: { _id: 'y', _rev: '1-a' } }], CONFLICTING],
      [
        ['POST /{db}?new_edits=false', { json: { _id: 'x', _rev: '3-c' } }],
        { status: 201, like: { rev: /^4-/ } },
      ],
    ],
  },
  {
    of: '3.5 Content-Type',
    says: 'must be JSON, whatever parameters it has',
    steps: [
      [
        ['POST /{db}', { body: '{}' }],
        failed(415, 'bad_content_type', 'Content-Type must be application/json'),
      ],
      [['POST /{db}', { body: '{}', headers: { 'content-type': 'text/plain' } }], { status: 415 }],
      [
        ['POST /{db}', { body: '{}', headers: { 'content-type': 'application/json; charset=utf-8' } }],
        { status: 201 },
      ],
      [
        ['POST /{db}', { body: '{}', headers: { 'content-type': 'Application/JSON; charset=utf-8' } }],
        { status: 201 },
      ],
    ],
  },
  {
    of: '3.5 _deleted',
    says: 'answers 201 for a tombstone too',
    given: [CHAIN],
    ask: ['POST /{db}', { json: { _id: 'x', _rev: '3-c', _deleted: true } }],
    answer: { status: 201, like: { rev: /^4-/ } },
  },
]

const copy = (destination: string, more: AskMore = {}, query = ''): Ask => [
  `COPY /{db}/x${query}`,
  { ...more, headers: { destination, host: 'localhost', ...more.headers } },
]

const COPY: readonly Row[] = [
  {
    of: ['3.6 Destination', '3.6 answer'],
    says: 'a copy of the winner, with its revision and address',
    given: [CONFLICT],
    steps: [
      [
        copy('y', { keep: { rev: 'rev' } }),
        {
          status: 201,
          json: { ok: true, id: 'y', rev: /^1-/ },
          headers: { etag: '"{rev}"', location: 'http://localhost/{db}/y' },
        },
      ],
      ['GET /{db}/y?revs=true', { like: { v: 3, _revisions: { start: 1 } } }],
      ['COPY /{db}/x', malformed('Destination header is mandatory for COPY.')],
    ],
  },
  {
    of: ['3.6 Destination rev', '3.6 409'],
    says: 'the leaf of the target that is replaced; without it a target that exists is a conflict',
    given: [CHAIN, stored({ _id: 'y', _rev: '1-a' })],
    steps: [
      [copy('y'), CONFLICTING],
      [copy('y?rev=1-b'), CONFLICTING],
      [copy('y?rev=1-a'), { status: 201, like: { id: 'y', rev: /^2-/ } }],
    ],
  },
  {
    of: '3.6 Destination rev',
    says: 'what follows the first = is the revision, whatever its name',
    given: [put('x', { v: 1 })],
    steps: [
      ...['y?foo=1', 'y?rev=', 'y?', 'y?rev', 'y?rev=1-a&x=1', 'y?a?b'].map(
        (destination) => [copy(destination), malformed('Invalid rev format')] as const,
      ),
      [copy('y?foo=1-a'), { status: 409 }],
      ['GET /{db}/y', { status: 404 }],
    ],
  },
  {
    of: '3.6 Destination relative',
    says: 'refuses the address of a server',
    given: [CHAIN],
    steps: [
      [copy('http://localhost/{db}/y'), malformed('Destination URL must be relative.')],
      [copy('https://h/{db}/y'), malformed('Destination URL must be relative.')],
    ],
  },
  {
    of: '3.6 Destination percent-encoding',
    says: 'is decoded; a design document may be a target',
    given: [CHAIN],
    steps: [
      [copy('a%2Fb%20c'), { status: 201, like: { id: 'a/b c' }, headers: { location: /\/a%2Fb%20c$/ } }],
      [
        copy('_design/d'),
        { status: 201, like: { id: '_design/d' }, headers: { location: /\/_design%2Fd$/ } },
      ],
      [copy('%zz'), malformed('invalid_url_encoding')],
      [copy('y?rev='), malformed('Invalid rev format')],
      [copy('_d'), failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.')],
    ],
  },
  {
    of: ['3.6 rev', '3.6 If-Match'],
    says: 'names the revision that is copied',
    given: [CHAIN],
    steps: [
      [copy('y', {}, '?rev=1-a'), { status: 201 }],
      ['GET /{db}/y', { like: { v: 1 } }],
      [copy('z', { headers: { 'if-match': '"2-b"' } }), { status: 201 }],
      ['GET /{db}/z', { like: { v: 2 } }],
    ],
  },
  {
    of: '3.6 attachments',
    says: 'are copied too',
    given: [put('x', { _attachments: { t: INLINE } })],
    steps: [
      [copy('y'), { status: 201 }],
      ['GET /{db}/y', { like: { _attachments: { t: STUB } } }],
      ['GET /{db}/y/t', { text: '0123456789' }],
    ],
  },
  {
    of: '3.6 404',
    says: 'the document is missing or deleted, or the revision is; the copy of a tombstone is one',
    given: [GONE],
    steps: [
      [copy('y'), failed(404, 'not_found', 'deleted')],
      [copy('y', {}, '?rev=9-z'), MISSING],
      [copy('t', {}, '?rev=2-b'), { status: 201, like: { id: 't', rev: /^1-/ } }],
      ['GET /{db}/t', failed(404, 'not_found', 'deleted')],
      [['COPY /{db}/z', { headers: { destination: 'y' } }], MISSING],
    ],
  },
]

/** A form as a browser sends it, from a page of this host. */
function form(
  fields: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>> = {},
): AskMore {
  const parts = Object.entries(fields).map(
    ([name, value]) => `--B\r\nContent-Disposition: form-data; name="${name}"${value}\r\n`,
  )
  return {
    headers: {
      host: 'localhost',
      referer: 'http://localhost/_utils/',
      'content-type': 'multipart/form-data; boundary=B',
      ...headers,
    },
    body: `${parts.join('')}--B--\r\n`,
  }
}

const FILE = '; filename="t"\r\nContent-Type: text/plain\r\n\r\n0123456789'

const FORM: readonly Row[] = [
  {
    of: ['3.7 _attachments', '3.7 _rev'],
    says: 'files for a document, on the revision that the form names',
    given: [stored(x('1-a', { v: 1 }))],
    steps: [
      [
        ['POST /{db}/x', form({ _rev: '\r\n\r\n1-a', _attachments: FILE })],
        { status: 201, like: { rev: /^2-/ } },
      ],
      ['GET /{db}/x', { like: { v: 1, _attachments: { t: { ...STUB, revpos: 2 } } } }],
      [['POST /{db}/x', form({ _rev: '\r\n\r\n1-a', _attachments: FILE })], CONFLICTING],
    ],
  },
  {
    of: '3.7 _doc',
    says: 'the document itself',
    steps: [
      [
        ['POST /{db}/x', form({ _doc: '\r\n\r\n{"v":1}' })],
        { status: 201, json: { ok: true, id: 'x', rev: /^1-/ }, headers: { etag: /^"1-/ } },
      ],
      ['GET /{db}/x', { like: { v: 1 } }],
    ],
  },
  {
    of: '3.7 Referer',
    says: 'must be of this host',
    steps: [
      [
        ['POST /{db}/x', form({}, { referer: 'http://elsewhere/' })],
        malformed('Referer header must match host.'),
      ],
    ],
  },
  {
    of: '3.7 content type',
    says: 'must be the content type of a form',
    steps: [
      [
        ['POST /{db}/x', form({}, { 'content-type': 'text/plain' })],
        failed(415, 'bad_content_type', 'Content-Type must be multipart/form-data'),
      ],
      [
        ['POST /{db}/x', { body: '', headers: { host: 'localhost', referer: 'http://localhost/' } }],
        { status: 415 },
      ],
    ],
  },
  {
    of: '3.7 JSON',
    says: 'a call that is none is missing (docs/compatibility.md)',
    ask: ['POST /{db}/_no_such_call', { json: {} }],
    answer: MISSING,
  },
  {
    of: '3.7 JSON',
    says: 'to a document',
    ask: ['POST /{db}/x', { json: {} }],
    answer: malformed('Referer header required.'),
  },
]

export const REMOVE_POST_COPY: readonly Row[] = [...DELETE, ...POST, ...COPY, ...FORM]
