/** `_bulk_get`, `_revs_diff` and `_missing_revs`: protocol.md 4.2, 4.3. */

import type { Answer } from './answers.ts'
import { CHAIN, CONFLICT, DATA, DELETED, DIGEST, GONE, INLINE, STUB, x } from './histories.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)

function get(docs: unknown, query = '', headers: Readonly<Record<string, string>> = {}): Ask {
  return [`POST /{db}/_bulk_get${query}`, { json: { docs }, headers }]
}

function results(...results: readonly unknown[]): Answer {
  return { json: { results } }
}

const found = (...docs: readonly unknown[]) => ({ id: 'x', docs: docs.map((doc) => ({ ok: doc })) })
const error = (id: unknown, rev: unknown, error: string, reason: unknown) => ({
  id,
  docs: [{ error: { id, rev, error, reason } }],
})

const WINNER = { _id: 'x', _rev: '2-c', v: 3 }
const path = (last: string) => ({ _id: 'x', _rev: `2-${last}`, _revisions: { start: 2, ids: [last, 'a'] } })
const LOSER = { _id: 'x', _rev: '2-b', v: 2 }
const TOMBSTONE = { _id: 'x', _rev: '2-d', _deleted: true, v: 4 }
const ATTACHED = put('x', { _attachments: { t: INLINE } }, { keep: { first: 'rev' } })
const TWICE = [ATTACHED, put('x', { _rev: '{first}', _attachments: { t: { stub: true }, u: INLINE } })]

const BULK_GET: readonly Row[] = [
  {
    of: '4.2 docs',
    says: 'must be present and an array',
    steps: [
      [get([]), results()],
      [['POST /{db}/_bulk_get', { json: {} }], malformed("Missing JSON list of 'docs'.")],
      [get({}), malformed("Missing JSON list of 'docs'.")],
      [['POST /{db}/_bulk_get', { json: [] }], malformed('Request body must be a JSON object')],
      [['POST /{db}/_bulk_get', { body: '{"docs":[]}' }], { status: 415 }],
      [
        [
          'POST /{db}/_bulk_get',
          { body: '{', headers: { accept: 'multipart/mixed', 'content-type': 'application/json' } },
        ],
        { ...malformed('invalid UTF-8 JSON'), headers: { 'content-type': 'application/json' } },
      ],
    ],
  },
  {
    of: ['4.2 id', '4.2 rev', '4.2 found'],
    says: 'a revision of a document, superseded or deleted as well',
    given: [CONFLICT],
    ask: get([
      { id: 'x', rev: '2-c' },
      { id: 'x', rev: '1-a' },
      { id: 'x', rev: '2-d' },
    ]),
    answer: results(found(WINNER), found({ _id: 'x', _rev: '1-a', v: 1 }), found(TOMBSTONE)),
  },
  {
    of: '4.2 order',
    says: 'answers in the order of the request, repeated ids included',
    given: [stored({ _id: 'a', _rev: '1-a' }, { _id: 'b', _rev: '1-b' })],
    ask: get([{ id: 'b' }, { id: 'a' }, { id: 'b' }]),
    answer: { like: { results: [{ id: 'b' }, { id: 'a' }, { id: 'b' }] } },
  },
  {
    of: '4.2 no rev',
    says: 'answers with every leaf, deleted ones included',
    given: [CONFLICT],
    ask: get([{ id: 'x' }]),
    answer: results(found(WINNER, LOSER, TOMBSTONE)),
  },
  {
    of: '4.2 revs',
    says: 'the paths',
    given: [CHAIN],
    ask: get([{ id: 'x' }], '?revs=true'),
    answer: results(found({ _id: 'x', _rev: '3-c', _revisions: { start: 3, ids: ['c', 'b', 'a'] }, v: 3 })),
  },
  {
    of: '4.2 attachments',
    says: 'in base64; stubs without it',
    given: [ATTACHED],
    steps: [
      [
        get([{ id: 'x' }], '?attachments=true'),
        { like: { results: [found({ _attachments: { t: DATA } })] } },
      ],
      [get([{ id: 'x' }]), { like: { results: [found({ _attachments: { t: STUB } })] } }],
    ],
  },
  {
    of: '4.2 att_encoding_info',
    says: 'nothing to say of what is stored as it came',
    given: [ATTACHED],
    ask: get([{ id: 'x' }], '?att_encoding_info=true'),
    answer: results(found({ _id: 'x', _rev: '{first}', _attachments: { t: STUB } })),
  },
  {
    of: '4.2 atts_since',
    says: 'contents that are newer than those revisions',
    given: TWICE,
    ask: get([{ id: 'x', atts_since: ['{first}'] }]),
    answer: { like: { results: [found({ _attachments: { t: STUB, u: { ...DATA, revpos: 2 } } })] } },
  },
  {
    of: '4.2 atts_since no list',
    says: 'answers with an error in its row',
    given: [CHAIN],
    ask: get([{ id: 'x', rev: '3-c', atts_since: '1-a' }]),
    answer: results(error('x', '3-c', 'bad_request', 'att_since value must be array of revs.')),
  },
  {
    of: ['4.2 latest', '4.2 rev with latest'],
    says: 'the leaves below the revision, which may be several',
    given: [CONFLICT],
    ask: get(
      [
        { id: 'x', rev: '1-a' },
        { id: 'x', rev: '2-b' },
      ],
      '?latest=true',
    ),
    answer: results(found(WINNER, LOSER, TOMBSTONE), found(LOSER)),
  },
  {
    of: '4.2 r',
    says: 'is ignored, like every unknown member',
    given: [CONFLICT],
    ask: get([{ id: 'x', rev: '2-b', foo: 1 }], '?r=2&foo=bar'),
    answer: results(found(LOSER)),
  },
  {
    of: '4.2 refused parameters',
    says: 'those that belong into the entries',
    steps: ['open_revs', 'new_edits', 'w', 'rev', 'atts_since'].map((name) => [
      get([], `?${name}=1`),
      malformed(`"${name}" query parameter is not acceptable`),
    ]),
  },
  {
    of: '4.2 unknown',
    says: 'a revision, or a document with a revision',
    given: [CHAIN],
    ask: get([
      { id: 'x', rev: '3-z' },
      { id: 'y', rev: '1-a' },
    ]),
    answer: results(error('x', '3-z', 'not_found', 'missing'), error('y', '1-a', 'not_found', 'missing')),
  },
  {
    of: '4.2 unknown, no rev',
    says: 'the revision is the word undefined',
    ask: get([{ id: 'y' }]),
    answer: results(error('y', 'undefined', 'not_found', 'missing')),
  },
  {
    of: '4.2 no rev',
    says: 'finds a deleted document',
    given: [GONE],
    ask: get([{ id: 'x' }]),
    answer: results(found({ _id: 'x', _rev: '2-b', _deleted: true })),
  },
  {
    of: '4.2 malformed rev',
    says: 'an error in its row, with the revision as sent',
    given: [CHAIN],
    ask: get([{ id: 'x', rev: 'junk' }, { id: 'x' }]),
    answer: {
      like: { results: [error('x', 'junk', 'bad_request', 'Invalid rev format'), found({ _rev: '3-c' })] },
    },
  },
  {
    of: '4.2 illegal id',
    says: 'answers with an error in its row',
    ask: get([{ id: '_x' }, { id: 1 }]),
    answer: results(
      error('_x', null, 'illegal_docid', 'Only reserved document ids may start with underscore.'),
      error(1, null, 'illegal_docid', 'Document id must be a string'),
    ),
  },
  {
    of: ['4.2 no id', '4.2 no object'],
    says: 'answers with errors in their rows',
    ask: get([{ rev: '1-a' }, {}, 1, null]),
    answer: results(
      error(null, null, 'bad_request', 'document id missed'),
      error(null, null, 'bad_request', 'document must be a JSON object'),
      error(null, null, 'bad_request', 'document must be a JSON object'),
      error(null, null, 'bad_request', 'document must be a JSON object'),
    ),
  },
  {
    of: '4.2 Accept',
    says: 'sends JSON unless Accept excludes it',
    given: [CHAIN],
    steps: [
      ...[
        '*/*',
        'application/json',
        'text/html',
        'multipart/mixed, application/json',
        'multipart/mixed, application/json;q=0.1',
      ].map((accept) => [get([{ id: 'x' }], '', { accept }), { like: { results: [{ id: 'x' }] } }] as const),
      ...['multipart/mixed', 'multipart/related'].map(
        (accept) =>
          [
            get([{ id: 'x' }], '', { accept }),
            { headers: { 'content-type': new RegExp(`^${accept}; boundary="[0-9a-f]{32}"$`) } },
          ] as const,
      ),
    ],
  },
  {
    of: ['4.2 revs', '4.2 latest', '4.2 no id', '4.2 no object'],
    says: 'beside rows that fail, which keep their places',
    given: [stored(x('2-b a'), x('2-c a'))],
    ask: get(
      [
        { id: 'x', rev: '2-b' },
        { id: 'x' },
        { id: 'n' },
        { id: 'x', rev: '9-z' },
        { id: 'x', rev: 'x' },
        {},
        1,
        { id: '_x' },
      ],
      '?revs=true&latest=true',
    ),
    answer: results(
      found(path('b')),
      found(path('c'), path('b')),
      error('n', 'undefined', 'not_found', 'missing'),
      error('x', '9-z', 'not_found', 'missing'),
      error('x', 'x', 'bad_request', 'Invalid rev format'),
      error(null, null, 'bad_request', 'document must be a JSON object'),
      error(null, null, 'bad_request', 'document must be a JSON object'),
      error('_x', null, 'illegal_docid', 'Only reserved document ids may start with underscore.'),
    ),
  },
  ...[
    ['?attachments=true', 'multipart/mixed'],
    ['', 'multipart/mixed'],
    ['', 'multipart/related'],
  ].map(
    ([query, accept]): Row => ({
      of: '4.2 multipart',
      says: 'a part a revision; with its contents a message of its own; a failure says so',
      given: [ATTACHED, stored({ _id: 'y', _rev: '1-y' })],
      ask: get([{ id: 'x' }, { id: 'y' }, { id: 'z', rev: '1-z' }], query, { accept: accept ?? '' }),
      answer: {
        text: /\r\n--[0-9a-f]{32}--\r\n$/,
        parts: [
          {
            'x-doc-id': 'x',
            'x-rev-id': '{first}',
            'content-type': /^multipart\/related; boundary="?[0-9a-f]{32}"?$/,
            content: [
              {
                'content-type': 'application/json',
                content: {
                  _id: 'x',
                  _rev: '{first}',
                  _attachments: {
                    t: { content_type: 'text/plain', revpos: 1, digest: DIGEST, length: 10, follows: true },
                  },
                },
              },
              {
                'content-disposition': 'attachment; filename="t"',
                'content-type': 'text/plain',
                'content-length': '10',
                content: '0123456789',
              },
            ],
          },
          { 'content-type': 'application/json', content: { _id: 'y', _rev: '1-y' } },
          {
            'content-type': 'application/json; error="true"',
            content: { id: 'z', rev: '1-z', error: 'not_found', reason: 'missing' },
          },
        ],
      },
    }),
  ),
]

const diff = (json: unknown): Ask => ['POST /{db}/_revs_diff', { json }]
const missing = (json: unknown): Ask => ['POST /{db}/_missing_revs', { json }]

const DIFF: readonly Row[] = [
  {
    of: ['4.3 _revs_diff', '4.3 _missing_revs'],
    says: 'what is missing of each document; nothing of one that has all',
    given: [CHAIN, stored({ _id: 'y', _rev: '1-a' })],
    steps: [
      [
        diff({ x: ['3-c', '4-d'], y: ['1-a'] }),
        { json: { x: { missing: ['4-d'], possible_ancestors: ['3-c'] } } },
      ],
      [missing({ x: ['3-c', '4-d'], y: ['1-a'] }), { json: { missing_revs: { x: ['4-d'] } } }],
      [diff({}), { json: {} }],
      [missing({}), { json: { missing_revs: {} } }],
      [diff([]), malformed('Request body must be a JSON object')],
    ],
  },
  {
    of: '4.3 known revs',
    says: 'any of the tree: superseded, without a body, deleted',
    given: [stored(x('3-c b a'), x('2-d a', DELETED))],
    steps: [
      [diff({ x: ['3-c', '2-b', '1-a', '2-d'] }), { json: {} }],
      [missing({ x: ['3-c', '2-b', '1-a', '2-d'] }), { json: { missing_revs: {} } }],
    ],
  },
  {
    of: '4.3 unknown document',
    says: 'all is missing, and there are no ancestors',
    steps: [
      [diff({ x: ['1-a', '2-b'] }), { json: { x: { missing: ['1-a', '2-b'] } } }],
      [missing({ x: ['1-a'] }), { json: { missing_revs: { x: ['1-a'] } } }],
    ],
  },
  {
    of: '4.3 possible_ancestors',
    says: 'leaves below the highest that is missing, the winner first, deleted ones as well',
    given: [CONFLICT],
    steps: [
      [
        diff({ x: ['1-z', '3-z'] }),
        { json: { x: { missing: ['1-z', '3-z'], possible_ancestors: ['2-c', '2-b', '2-d'] } } },
      ],
      [diff({ x: ['2-z'] }), { json: { x: { missing: ['2-z'] } } }],
    ],
  },
  {
    of: '4.3 bad rev',
    says: 'refuses the whole call',
    given: [CHAIN],
    steps: [
      [diff({ x: ['3-c', 'junk'] }), malformed('Invalid rev format')],
      ...[{ x: '1-a' }, { x: ['1'] }, [], { x: [1] }, { y: null }].flatMap((asked) =>
        [diff(asked), missing(asked)].map(
          (ask) => [ask, { status: 400, like: { error: 'bad_request' } }] as const,
        ),
      ),
      [missing({ x: ['junk'] }), malformed('Invalid rev format')],
      [diff({ x: '3-c' }), { status: 400, like: { error: 'bad_request' } }],
      ...['', '{'].flatMap((body) =>
        ['_revs_diff', '_missing_revs'].map(
          (path) =>
            [
              [`POST /{db}/${path}`, { body, headers: { 'content-type': 'application/json' } }],
              malformed('invalid UTF-8 JSON'),
            ] as const,
        ),
      ),
    ],
  },
  {
    of: '4.3 _local',
    says: 'always missing',
    given: [put('_local/l')],
    ask: diff({ '_local/l': ['0-1'] }),
    answer: { json: { '_local/l': { missing: ['0-1'] } } },
  },
]

export const BULK_GET_AND_DIFF: readonly Row[] = [...BULK_GET, ...DIFF]
