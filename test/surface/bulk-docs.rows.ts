/** `_bulk_docs`: protocol.md 4.1. */

import { ADMIN_ONLY } from '../../src/documents/security.ts'
import type { Answer } from './answers.ts'
import { CHAIN, DELETED, GONE, INLINE, of, STUB, x } from './histories.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)
const NOTHING: readonly [Ask, Answer] = ['GET /{db}', { like: { doc_count: 0, update_seq: /^0-/ } }]

function bulk(docs: unknown, more: Readonly<Record<string, unknown>> = {}): Ask {
  return ['POST /{db}/_bulk_docs', { json: { docs, ...more } }]
}

function text(body: string): Ask {
  return ['POST /{db}/_bulk_docs', { body, headers: { 'content-type': 'application/json' } }]
}

function rows(...json: readonly unknown[]): Answer {
  return { status: 201, json }
}

const ok = (id: string, generation: number) => ({
  ok: true,
  id,
  rev: new RegExp(`^${generation}-[0-9a-f]{32}$`),
})
const conflict = (id: string) => ({ id, error: 'conflict', reason: 'Document update conflict.' })

/** For a bulk request whose first document is valid: the whole request is refused, and nothing is stored. */
function refused(
  says: string,
  key: string,
  ...cases: readonly (readonly [doc: unknown, answer: Answer])[]
): Row {
  const steps = cases.flatMap(([doc, answer]) => [[bulk([{ _id: 'good' }, doc]), answer] as const, NOTHING])
  return { of: key, says, steps }
}

const RULES = `function (doc, old, user) {
  if (doc.f) throw { forbidden: doc.f }
  if (doc.u) throw { unauthorized: doc.u }
}`

export const BULK_DOCS: readonly Row[] = [
  {
    of: ['4.1 docs', '4.1 row'],
    says: 'answers with one row per document, in the order of the request',
    given: [CHAIN],
    steps: [
      [
        bulk([{ _id: 'z' }, { _id: 'x', _rev: '3-c' }, { _id: 'a' }]),
        rows(ok('z', 1), ok('x', 4), ok('a', 1)),
      ],
      ['GET /{db}/z', { json: { _id: 'z', _rev: /^1-/ } }],
    ],
  },
  {
    of: '4.1 docs',
    says: 'must be present and an array',
    steps: [
      [['POST /{db}/_bulk_docs', { json: {} }], malformed('POST body must include `docs` parameter.')],
      [bulk('x'), malformed('`docs` parameter must be an array.')],
      [bulk({}), malformed('`docs` parameter must be an array.')],
      [['POST /{db}/_bulk_docs', { body: '{"docs":[]}' }], { status: 415 }],
      [['POST /{db}/_bulk_docs', { json: [] }], malformed('Request body must be a JSON object')],
    ],
  },
  {
    of: '4.1 no docs',
    says: 'an empty array',
    steps: [
      [bulk([]), { status: 201, text: '[]\n' }],
      [bulk([], { new_edits: false }), { status: 201, text: '[]\n' }],
    ],
  },
  {
    of: '4.1 new_edits',
    says: 'true by default; false keeps the revisions as they are',
    steps: [
      [bulk([{ _id: 'x' }], { new_edits: true }), rows(ok('x', 1))],
      [bulk([{ _id: 'y', _rev: '2-b' }], { new_edits: false }), rows()],
      ['GET /{db}/y', { json: { _id: 'y', _rev: '2-b' } }],
      [bulk([], { new_edits: 'false' }), malformed('`new_edits` parameter must be a boolean.')],
      [bulk([], { new_edits: null }), malformed('`new_edits` parameter must be a boolean.')],
    ],
  },
  {
    of: ['4.1 new_edits', '4.1 docs'],
    says: 'may follow the documents; the last of repeated members counts',
    steps: [
      [text('{"docs":[{"_id":"x","_rev":"1-a"}],"new_edits":false}'), rows()],
      [text('{"new_edits":true,"docs":[{"_id":"y","_rev":"1-b"}],"new_edits":false,"w":3}'), rows()],
      [text('{"docs":[{"_id":"c"}],"docs":[{"_id":"d"}]}'), rows(ok('d', 1))],
      ['GET /{db}/y', { json: { _id: 'y', _rev: '1-b' } }],
      ['GET /{db}/c', { status: 404 }],
    ],
  },
  {
    of: '4.1 all_or_nothing',
    says: 'true stores nothing and is answered 417, a row a document; anything else is ignored',
    steps: [
      [
        bulk([{ _id: 'x' }, { _id: 'y', _rev: '1-a' }], { all_or_nothing: true }),
        {
          status: 417,
          json: ['x', 'y'].map((id) => ({
            id,
            rev: '0-',
            error: 'not_implemented',
            reason: 'all_or_nothing is not supported',
          })),
          headers: { 'content-type': 'application/json' },
        },
      ],
      [bulk([{ _zing: 1 }], { all_or_nothing: true }), { status: 400 }],
      NOTHING,
      [bulk([{ _id: 'x' }], { all_or_nothing: 'true' }), rows(ok('x', 1))],
      [bulk([{ _id: 'y' }], { all_or_nothing: false }), rows(ok('y', 1))],
    ],
  },
  { of: '4.1 w', says: 'ignored', ask: bulk([{ _id: 'x' }], { w: 3 }), answer: rows(ok('x', 1)) },
  {
    of: ['4.1 failed row', '4.1 row conflict'],
    says: '201 all the same, also when every row failed',
    given: [CHAIN],
    ask: bulk([{ _id: 'x' }, { _id: 'x', _rev: '2-b' }, { _id: 'y', _rev: '1-a' }]),
    answer: rows(conflict('x'), conflict('x'), conflict('y')),
  },
  {
    of: ['4.1 row', '4.1 row conflict', '4.1 generated id'],
    says: 'are in the order of the request, whatever their results',
    given: [CHAIN],
    steps: [
      [
        bulk([{ _id: 'new' }, { _id: 'x' }, { n: 1 }, { _id: 'x', _rev: '3-c' }, { _id: 'y', _rev: '3-x' }]),
        rows(
          ok('new', 1),
          conflict('x'),
          { ok: true, id: /^[0-9a-f]{32}$/, rev: /^1-/ },
          ok('x', 4),
          conflict('y'),
        ),
      ],
      [
        bulk([{ _id: 'x' }]),
        {
          status: 201,
          text: '[{"id":"x","error":"conflict","reason":"Document update conflict."}]\n',
        },
      ],
    ],
  },
  {
    of: ['4.1 failed row', '4.1 row forbidden'],
    says: 'what a validate function threw, in its row',
    given: [put('_design/d', { validate_doc_update: RULES })],
    ask: bulk([{ _id: 'x', f: 'no' }, { _id: 'y', u: 'who?' }, { _id: 'z' }]),
    answer: rows(
      { id: 'x', error: 'forbidden', reason: 'no' },
      { id: 'y', error: 'unauthorized', reason: 'who?' },
      ok('z', 1),
    ),
  },
  {
    of: '4.1 failed row',
    says: 'an error that a validate function names: with its status, and others as an unknown error',
    given: [
      put('_design/d', {
        validate_doc_update: `function (doc) { if (doc.e) throw [doc._id < 'm' ? 'error' : 'fatal', doc.e, doc.why] }`,
      }),
    ],
    steps: [
      [
        bulk([
          { _id: 'a', e: 'forbidden', why: { no: 1 } },
          { _id: 'b', e: 'not_found', why: 'gone' },
          { _id: 'c', e: 'conflict', why: 'ignored' },
          { _id: 'd', e: 'odd', why: 'none' },
          { _id: 'e', e: 'service_unavailable', why: 'a lie' },
          { _id: 'z', e: 'unauthorized', why: 'who?' },
        ]),
        rows(
          { id: 'a', error: 'forbidden', reason: { no: 1 } },
          { id: 'b', error: 'not_found', reason: 'gone' },
          conflict('c'),
          { id: 'd', error: 'unknown_error', reason: 'odd: none' },
          { id: 'e', error: 'unknown_error', reason: 'service_unavailable: a lie' },
          { id: 'z', error: 'unauthorized', reason: 'who?' },
        ),
      ],
      [put('x', { e: 'bad_request', why: 'bad' }), failed(400, 'bad_request', 'bad')],
    ],
  },
  {
    of: '4.1 failed row',
    says: 'what a validate function gets: no history of a new document, and the rights of a database without any',
    given: [
      CHAIN,
      put('_design/d', {
        validate_doc_update: 'function (doc, old, user, security) { throw { forbidden: [doc, security] } }',
      }),
    ],
    ask: bulk([{ _id: 'new' }, { _id: 'x', _rev: '3-c' }]),
    answer: rows(
      { id: 'new', error: 'forbidden', reason: [{ _id: 'new' }, ADMIN_ONLY] },
      {
        id: 'x',
        error: 'forbidden',
        reason: [{ _id: 'x', _rev: '3-c', _revisions: { start: 3, ids: ['c'] } }, ADMIN_ONLY],
      },
    ),
  },
  {
    of: '4.1 failed row, new_edits=false',
    says: 'only failures have rows, with the revision',
    given: [put('_design/d', { validate_doc_update: RULES })],
    steps: [
      [
        bulk(
          [
            { _id: 'x', _rev: '2-b', f: 'no' },
            { _id: 'y', _rev: '1-a' },
          ],
          { new_edits: false },
        ),
        rows({ id: 'x', rev: '2-b', error: 'forbidden', reason: 'no' }),
      ],
      ['GET /{db}/y', { json: { _id: 'y', _rev: '1-a' } }],
    ],
  },
  {
    of: '4.1 failed row, new_edits=false',
    says: 'a stub without its attachment',
    ask: bulk(
      [
        { _id: 'a', _rev: '1-a' },
        { _id: 'a', _rev: '5-b', _attachments: { x: { stub: true } } },
        { _id: 'c', _rev: '1-c' },
      ],
      { new_edits: false },
    ),
    answer: rows({
      id: 'a',
      rev: '5-b',
      error: 'missing_stub',
      reason: 'Invalid attachment stub in a for x',
    }),
  },
  {
    of: '4.1 row invalid_design_doc',
    says: 'a design document of the wrong shape',
    ask: bulk([{ _id: '_design/d', views: [] }, { _id: 'x' }]),
    answer: rows(
      { id: '_design/d', error: 'invalid_design_doc', reason: '`views` field must have object type' },
      ok('x', 1),
    ),
  },
  {
    of: '4.1 row compilation_error',
    says: 'a map function that does not compile',
    ask: bulk([{ _id: '_design/d', views: { v: { map: 'function (' } } }]),
    answer: rows({
      id: '_design/d',
      error: 'compilation_error',
      reason: /^Compilation of the map function in the 'v' view failed: /,
    }),
  },
  {
    of: '4.1 whole: JSON',
    says: 'text that is no JSON, wherever it ends to be',
    steps: [
      '',
      '{"docs":[{"_id":"x"},{"_id":"y"}',
      '{"docs":[{"_id":"x"},{"_id":"y"]}',
      '{"docs":[{"_id":"x"}]]',
      '{"docs":[{"_id":"x"}]} x',
      '{"docs":[{"_id":"x"}],"new_edits":fals}',
    ].flatMap((body) => [
      [
        ['POST /{db}/_bulk_docs', { body, headers: { 'content-type': 'application/json' } }],
        malformed('invalid UTF-8 JSON'),
      ] as const,
      NOTHING,
    ]),
  },
  refused(
    'documents that are none',
    '4.1 whole: no object',
    [1, malformed('Document must be a JSON object')],
    [[], malformed('Document must be a JSON object')],
    [null, malformed('Document must be a JSON object')],
  ),
  refused(
    'ids that are none',
    '4.1 whole: _id',
    [{ _id: 1 }, failed(400, 'illegal_docid', 'Document id must be a string')],
    [{ _id: '' }, failed(400, 'illegal_docid', 'Document id must not be empty')],
    [{ _id: '_x' }, failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.')],
  ),
  refused(
    'revisions that are none',
    '4.1 whole: _rev',
    [{ _id: 'x', _rev: 'junk' }, malformed('Invalid rev format')],
    [{ _id: 'x', _rev: 1 }, malformed('Invalid rev format')],
  ),
  refused(
    'paths that are none',
    '4.1 whole: _revisions',
    [
      { _id: 'x', _revisions: { start: 'a', ids: [] } },
      failed(400, 'doc_validation', "_revisions.start isn't an integer."),
    ],
    [
      { _id: 'x', _revisions: { start: 1, ids: {} } },
      failed(400, 'doc_validation', "_revisions.ids isn't a array."),
    ],
  ),
  refused('a member that begins with _ and is unknown', '4.1 whole: unknown member', [
    { _id: 'x', _foo: 1 },
    failed(400, 'doc_validation', 'Bad special document member: _foo'),
  ]),
  refused(
    'a name that begins with _, and contents that are no base64',
    '4.1 whole: attachment',
    [
      { _id: 'x', _attachments: { _a: INLINE } },
      malformed("Attachment name '_a' starts with prohibited character '_'"),
    ],
    [{ _id: 'x', _attachments: { a: { data: '*' } } }, malformed('Invalid attachment data for a')],
  ),
  refused('a stub of what is not there', '4.1 whole: stub', [
    { _id: 'x', _attachments: { a: { stub: true } } },
    { status: 412, like: { error: 'missing_stub' } },
  ]),
  {
    of: '4.1 whole: too large',
    says: 'a document, or an attachment, beyond its limit',
    steps: [
      [['PUT /_node/_local/_config/couchdb/max_document_size', { json: '20' }], {}],
      [
        bulk([{ _id: 'good' }, { _id: 'x', v: 'more than twenty bytes' }]),
        failed(413, 'document_too_large', 'x'),
      ],
      NOTHING,
      ['DELETE /_node/_local/_config/couchdb/max_document_size', {}],
      [['PUT /_node/_local/_config/couchdb/max_attachment_size', { json: '9' }], {}],
      [
        bulk([{ _id: 'good' }, { _id: 'x', _attachments: { a: INLINE } }]),
        failed(413, 'attachment_too_large', 'a'),
      ],
      NOTHING,
      ['DELETE /_node/_local/_config/couchdb/max_attachment_size', {}],
    ],
  },
  {
    of: '4.1 whole: no rev',
    says: 'a document without a revision where new_edits is false',
    steps: [
      [
        bulk([{ _id: 'x', _rev: '1-a' }, { _id: 'y' }], { new_edits: false }),
        malformed('When `new_edits: false`, the document needs `_rev` or `_revisions` specified'),
      ],
      NOTHING,
    ],
  },
  {
    of: '4.1 generated id',
    says: 'for a document without one',
    ask: bulk([{}, { _id: 'x' }]),
    answer: rows({ ok: true, id: /^[0-9a-f]{32}$/, rev: /^1-/ }, ok('x', 1)),
  },
  {
    of: '4.1 same id twice',
    says: 'are applied in order: the first wins',
    steps: [
      [
        bulk([
          { _id: 'x', v: 1 },
          { _id: 'x', v: 2 },
        ]),
        rows(ok('x', 1), conflict('x')),
      ],
      ['GET /{db}/x', { like: { v: 1 } }],
      [stored(of('y', '1-a')), rows()],
      [
        bulk([
          { _id: 'y', _rev: '1-a', v: 1 },
          { _id: 'y', _rev: '1-a', ...DELETED },
        ]),
        rows(ok('y', 2), conflict('y')),
      ],
    ],
  },
  {
    of: '4.1 same id twice, new_edits=false',
    says: 'merges both as one change; when repeated, as none',
    steps: [
      [bulk([x('2-b a'), x('2-c a'), x('1-a')], { new_edits: false }), rows()],
      [bulk([x('2-b a'), x('2-c a'), x('1-a')], { new_edits: false }), rows()],
      ['GET /{db}/x?conflicts=true', { json: { _id: 'x', _rev: '2-c', _conflicts: ['2-b'] } }],
      ['GET /{db}', { like: { update_seq: /^1-/ } }],
    ],
  },
  {
    of: '4.1 deleted and made',
    says: 'a delete, and then the document anew, two generations on',
    given: [stored(of('x', '1-a'))],
    steps: [
      [bulk([{ _id: 'x', _rev: '1-a', ...DELETED }, { _id: 'x' }]), rows(ok('x', 2), ok('x', 3))],
      [
        'GET /{db}/x?revs_info=true',
        { like: { _revs_info: [{ status: 'available' }, { status: 'deleted' }, { status: 'available' }] } },
      ],
      ['GET /{db}', { like: { update_seq: /^2-/ } }],
    ],
  },
  {
    of: '4.1 deleted and made',
    says: 'creates a deleted document again',
    given: [GONE],
    ask: bulk([{ _id: 'x' }]),
    answer: rows(ok('x', 3)),
  },
  {
    of: '4.1 _local',
    says: 'is stored with the others',
    steps: [
      [bulk([{ _id: '_local/l' }]), rows({ ok: true, id: '_local/l', rev: '0-1' })],
      ['GET /{db}', { like: { doc_count: 0 } }],
    ],
  },
  {
    of: ['4.1 _local', '4.1 new_edits'],
    says: 'no rows for replicated ones, however often they come',
    steps: [
      ...[1, 2].map(
        () =>
          [
            bulk([of('r', '2-b a'), { _id: '_local/l', _rev: '0-3' }], { new_edits: false }),
            { status: 201, text: '[]\n' },
          ] as const,
      ),
      ['GET /{db}/r', { json: { _id: 'r', _rev: '2-b' } }],
    ],
  },
  {
    of: '4.1 attachments',
    says: 'in base64, or as stubs of the parent',
    given: [put('x', { _attachments: { t: INLINE } }, { keep: { rev: 'rev' } })],
    steps: [
      [
        bulk([
          { _id: 'x', _rev: '{rev}', _attachments: { t: { stub: true } } },
          { _id: 'y', _attachments: { t: INLINE } },
        ]),
        rows(ok('x', 2), ok('y', 1)),
      ],
      ['GET /{db}/x', { like: { _attachments: { t: STUB } } }],
      ['GET /{db}/y', { like: { _attachments: { t: STUB } } }],
    ],
  },
]
