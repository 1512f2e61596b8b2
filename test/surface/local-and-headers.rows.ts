/** `_local` documents, and headers: protocol.md 3.8, 3.9. */

import type { Answer } from './answers.ts'
import { INLINE } from './histories.ts'
import { failed, put, type Row } from './table.ts'

const MISSING: Answer = failed(404, 'not_found', 'missing')
const saved = (rev: string): Answer => ({ status: 201, json: { ok: true, id: '_local/l', rev } })

const LOCAL: readonly Row[] = [
  {
    of: ['3.8 GET', '3.8 HEAD', '3.8 PUT', '3.8 DELETE'],
    says: 'is written, read and deleted',
    steps: [
      [put('_local/l', { v: 1 }), saved('0-1')],
      ['GET /{db}/_local/l', { json: { _id: '_local/l', _rev: '0-1', v: 1 } }],
      ['HEAD /{db}/_local/l', { text: '', headers: { 'content-type': 'application/json' } }],
      ['DELETE /{db}/_local/l?rev=0-1', { json: { ok: true, id: '_local/l', rev: '0-0' } }],
    ],
  },
  {
    of: '3.8 revs',
    says: 'each write is one above the revision that it names',
    steps: [
      [put('_local/l'), saved('0-1')],
      [put('_local/l', { _rev: '0-1' }), saved('0-2')],
      [put('_local/l?rev=0-2'), saved('0-3')],
      [put('_local/l', {}, { headers: { 'if-match': '"0-3"' } }), saved('0-4')],
      ['GET /{db}/_local/l?revs=true', { like: { _rev: '0-4' } }],
    ],
  },
  {
    of: '3.8 POST',
    says: 'to the database, with its id',
    ask: ['POST /{db}', { json: { _id: '_local/l' } }],
    answer: saved('0-1'),
  },
  {
    of: '3.8 _bulk_docs',
    says: 'among others',
    ask: ['POST /{db}/_bulk_docs', { json: { docs: [{ _id: '_local/l', _rev: '0-7' }, { _id: 'x' }] } }],
    answer: {
      status: 201,
      json: [
        { ok: true, id: '_local/l', rev: '0-8' },
        { ok: true, id: 'x', rev: /^1-/ },
      ],
    },
  },
  {
    of: '3.8 _bulk_get',
    says: 'never found',
    given: [put('_local/l', { v: 1 })],
    ask: ['POST /{db}/_bulk_get', { json: { docs: [{ id: '_local/l' }, { id: '_local/l', rev: '0-1' }] } }],
    answer: {
      like: {
        results: ['undefined', '0-1'].map((rev) => ({
          id: '_local/l',
          docs: [{ error: { id: '_local/l', rev, error: 'not_found', reason: 'missing' } }],
        })),
      },
    },
  },
  {
    of: '3.8 _bulk_get',
    says: 'found by a list of keys; with revs=true it has the form of a history; a revision is never found',
    given: [put('_local/l', { v: 1 }), put('_local/l', { v: 2, _rev: '0-1' }), put('x')],
    steps: [
      [
        'GET /{db}/_all_docs?keys=["_local/l","x","_local/none","_local/l"]',
        {
          like: {
            rows: [
              { id: '_local/l', key: '_local/l', value: { rev: '0-2' } },
              { id: 'x' },
              { key: '_local/none', error: 'not_found' },
              { id: '_local/l' },
            ],
          },
        },
      ],
      [
        'GET /{db}/_all_docs?keys=["_local/l"]&include_docs=true',
        { like: { rows: [{ doc: { _id: '_local/l', _rev: '0-2', v: 2 } }] } },
      ],
      ['GET /{db}/_all_docs?key="_local/l"', { like: { rows: [] } }],
      [
        'GET /{db}/_local/l?revs=true',
        { json: { _id: '_local/l', _rev: '0-2', v: 2, _revisions: { start: 0, ids: ['2'] } } },
      ],
      ...['0-2', '0-1', '1-a', 'x'].map((rev) => [`GET /{db}/_local/l?rev=${rev}`, { status: 404 }] as const),
    ],
  },
  {
    of: '3.8 COPY',
    says: 'from one, and to one',
    given: [put('_local/l', { v: 1 })],
    steps: [
      [
        ['COPY /{db}/_local/l', { headers: { destination: 'x' } }],
        { status: 201, like: { id: 'x', rev: /^1-/ } },
      ],
      ['GET /{db}/x', { like: { v: 1 } }],
      [
        ['COPY /{db}/x', { headers: { destination: '_local/m' } }],
        { status: 201, like: { id: '_local/m', rev: '0-1' } },
      ],
      ['GET /{db}/_local/m', { like: { v: 1 } }],
    ],
  },
  {
    of: '3.8 new_edits=false',
    says: 'one above, all the same',
    steps: [
      [put('_local/l?new_edits=false', { _rev: '0-1' }), saved('0-2')],
      [
        ['POST /{db}/_bulk_docs', { json: { new_edits: false, docs: [{ _id: '_local/l', _rev: '0-4' }] } }],
        { status: 201, json: [] },
      ],
      ['GET /{db}/_local/l', { like: { _rev: '0-5' } }],
    ],
  },
  {
    of: '3.8 new_edits=false, bad rev',
    says: 'refused with its bulk; CouchDB skips it without a word (docs/compatibility.md)',
    ask: ['POST /{db}/_bulk_docs', { json: { new_edits: false, docs: [{ _id: '_local/l', _rev: '1-a' }] } }],
    answer: failed(400, 'bad_request', 'Invalid rev format'),
  },
  {
    of: '3.8 no conflict',
    says: 'a write without a revision, or with an old one, goes through',
    given: [put('_local/l'), put('_local/l', { _rev: '0-1' })],
    steps: [
      [put('_local/l', { v: 3 }), saved('0-1')],
      [put('_local/l', { _rev: '0-9' }), saved('0-10')],
    ],
  },
  {
    of: '3.8 bad rev',
    says: 'refused; CouchDB answers 500 with the same words (docs/compatibility.md)',
    steps: [
      [put('_local/l', { _rev: '1-a' }), failed(400, 'bad_request', 'Invalid rev format')],
      [put('_local/l', { _rev: '0-a' }), failed(400, 'bad_request', 'Invalid rev format')],
    ],
  },
  {
    of: '3.8 deleted',
    says: 'missing from then on',
    given: [put('_local/l'), ['DELETE /{db}/_local/l', {}]],
    steps: [
      ['GET /{db}/_local/l', MISSING],
      ['DELETE /{db}/_local/l', MISSING],
      [put('_local/l'), saved('0-1')],
    ],
  },
  {
    of: '3.8 not listed',
    says: 'in no feed, list or count; nothing to replicate',
    given: [put('_local/l')],
    steps: [
      ['GET /{db}/_changes', { like: { results: [], pending: 0 } }],
      ['GET /{db}/_all_docs', { like: { total_rows: 0, rows: [] } }],
      ['GET /{db}', { like: { doc_count: 0, update_seq: /^0-/ } }],
      [
        ['POST /{db}/_revs_diff', { json: { '_local/l': ['0-1'] } }],
        { json: { '_local/l': { missing: ['0-1'] } } },
      ],
    ],
  },
  {
    of: '3.8 not validated',
    says: 'validate functions do not run for them',
    given: [put('_design/d', { validate_doc_update: "function () { throw { forbidden: 'no' } }" })],
    steps: [
      [put('x'), failed(403, 'forbidden', 'no')],
      [put('_local/l'), saved('0-1')],
    ],
  },
  {
    of: '3.8 attachments',
    says: 'dropped where they come in the document; refused by their own address',
    steps: [
      [put('_local/l', { v: 1, _attachments: { t: INLINE } }), saved('0-1')],
      ['GET /{db}/_local/l', { json: { _id: '_local/l', _rev: '0-1', v: 1 } }],
      [
        ['PUT /{db}/_local/l/t', { body: 'hello' }],
        failed(400, 'bad_request', '_local documents do not accept attachments.'),
      ],
      ['GET /{db}/_local/l/t', failed(400, 'bad_request', '_local documents do not accept attachments.')],
    ],
  },
  {
    of: '3.8 size',
    says: 'the limit of documents',
    steps: [
      [['PUT /_node/_local/_config/couchdb/max_document_size', { json: '20' }], {}],
      [put('_local/l', { v: 'more than twenty bytes' }), failed(413, 'document_too_large', '_local/l')],
      ['DELETE /_node/_local/_config/couchdb/max_document_size', {}],
    ],
  },
]

const HEADERS: readonly Row[] = [
  {
    of: '3.9 X-Couch-Persist',
    says: 'accepted with a configuration value, which is then kept in memory only',
    isDirect: true,
    steps: [
      [
        ['PUT /_node/_local/_config/a/b', { json: 'c', headers: { 'x-couch-persist': 'false' } }],
        { json: '' },
      ],
      ['GET /_node/_local/_config/a/b', { json: 'c' }],
      [['DELETE /_node/_local/_config/a/b', { headers: { 'x-couch-persist': 'false' } }], { json: 'c' }],
    ],
  },
  {
    of: '3.9 X-Couch-Request-ID',
    says: 'ten hex digits, or what the client sent if that is a proper one',
    steps: [
      ['GET /{db}', { headers: { 'x-couch-request-id': /^[0-9a-f]{10}$/ } }],
      [
        ['GET /{db}/missing', { headers: { 'x-couch-request-id': 'my_id-1' } }],
        { status: 404, headers: { 'x-couch-request-id': 'my_id-1' } },
      ],
      [
        ['GET /{db}', { headers: { 'x-couch-request-id': 'a'.repeat(37) } }],
        { headers: { 'x-couch-request-id': /^[0-9a-f]{10}$/ } },
      ],
      [
        ['GET /{db}', { headers: { 'x-couch-request-id': 'my id' } }],
        { headers: { 'x-couch-request-id': /^[0-9a-f]{10}$/ } },
      ],
    ],
  },
  {
    of: '3.9 X-CouchDB-Body-Time',
    says: 'milliseconds, 0 without a body',
    steps: [
      ['GET /{db}', { headers: { 'x-couchdb-body-time': '0' } }],
      [put('x'), { status: 201, headers: { 'x-couchdb-body-time': /^\d+$/ } }],
    ],
  },
  {
    of: ['3.9 Host', '3.9 X-Forwarded-Host', '3.9 X-Forwarded-Proto', '3.9 X-Forwarded-Ssl'],
    says: 'how the client named this server: in Host, or to a proxy that is trusted',
    isDirect: true,
    given: [['PUT /_node/_local/_config/settee/trusted_proxies', { json: 'loopback' }]],
    steps: (
      [
        [{}, 'http://localhost:1'],
        [{ 'x-forwarded-host': 'notes.example' }, 'http://notes.example'],
        [{ 'x-forwarded-proto': 'https' }, 'https://localhost:1'],
        [{ 'x-forwarded-ssl': 'on' }, 'https://localhost:1'],
        [{ 'x-forwarded-ssl': 'off', 'x-forwarded-proto': 'http' }, 'http://localhost:1'],
        [{ 'x-forwarded-ssl': 'on', 'x-forwarded-proto': 'http' }, 'https://localhost:1'],
        [
          { 'x-forwarded-host': 'notes.example:8443', 'x-forwarded-proto': 'https' },
          'https://notes.example:8443',
        ],
      ] as const
    ).map(([headers, base], index) => [
      put(`x${index}`, {}, { headers: { host: 'localhost:1', ...headers } }),
      { status: 201, headers: { location: `${base}/{db}/x${index}` } },
    ]),
  },
]

export const LOCAL_AND_HEADERS: readonly Row[] = [...LOCAL, ...HEADERS]
