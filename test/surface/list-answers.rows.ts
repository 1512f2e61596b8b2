/** What lists of documents answer, and their kinds: protocol.md 8.2, 8.3. */

import type { Answer } from './answers.ts'
import { of } from './histories.ts'
import { ABCD, ALL, gone, live, rows, unknown } from './listed.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

const ENVELOPE: readonly Row[] = [
  {
    of: ['8.2 framing', '8.2 no ETag', '8.2 row'],
    says: 'sends one row per line, chunked',
    given: [stored(of('a', '1-a'), of('b', '2-b a'))],
    ask: ALL,
    answer: {
      text:
        '{"total_rows":2,"offset":0,"rows":[\r\n' +
        '{"id":"a","key":"a","value":{"rev":"1-a"}},\r\n' +
        '{"id":"b","key":"b","value":{"rev":"2-b"}}\r\n]}\n',
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked', etag: undefined },
    },
  },
  {
    of: ['8.2 row of an unknown id', '8.2 row of a deleted document'],
    says: 'with keys only',
    given: [ABCD],
    steps: [
      [
        `${ALL}?keys=["x","bb","a"]`,
        { json: { total_rows: 4, offset: null, rows: [unknown('x'), gone('bb', '1-a'), live('a')] } },
      ],
      [
        `${ALL}?keys=["x","bb"]&include_docs=true`,
        {
          json: { total_rows: 4, offset: null, rows: [unknown('x'), { ...gone('bb', '1-a'), doc: null }] },
        },
      ],
    ],
  },
  {
    of: '8.2 no deleted documents',
    says: 'in a range',
    given: [ABCD],
    ask: `${ALL}?startkey="b"&endkey="c"`,
    answer: rows('bc', 1),
  },
  {
    of: ['8.2 total_rows', '8.2 offset'],
    says: 'all live documents, whatever the range; those before its first row',
    given: [ABCD, put('_design/d')],
    steps: [
      [`${ALL}?startkey="c"&limit=1`, { json: { total_rows: 5, offset: 3, rows: [live('c')] } }],
      [`${ALL}?keys=[]`, { json: { total_rows: 5, offset: null, rows: [] } }],
    ],
  },
  {
    of: '8.2 order',
    says: 'of bytes: design documents stand between Z and a',
    given: [
      ...['a', 'Z', '0', '%C3%A4', '_design%2Fd', 'B', '%F0%9F%94%91', '%EF%BF%BD'].map((id) => put(id)),
    ],
    ask: ALL,
    answer: {
      like: {
        rows: ['0', 'B', 'Z', '_design/d', 'a', 'ä', '\uFFFD', '🔑'].map((id) => ({ id, key: id })),
      },
    },
  },
  {
    of: '8.2 no rows',
    says: 'an empty array, also of a range that is reversed, or of an empty database',
    steps: [
      [ALL, { text: '{"total_rows":0,"offset":0,"rows":[\r\n\r\n]}\n' }],
      [ABCD, { status: 201 }],
      [`${ALL}?startkey="x"`, { json: { total_rows: 4, offset: 4, rows: [] } }],
      [`${ALL}?startkey="c"&endkey="b"`, { like: { total_rows: 4, rows: [] } }],
    ],
  },
  { of: '8.2 no keys', says: 'no rows', given: [ABCD], ask: `${ALL}?keys=[]`, answer: rows('', null) },
]

const post = (path: string, json: unknown, query = ''): Ask => [`POST /{db}/${path}${query}`, { json }]
const wrongKeys: Answer = failed(400, 'bad_request', '`keys` body member must be an array.')
const DESIGNS = [
  ABCD,
  put('_design/d', {}, { keep: { d: 'rev' } }),
  put('_design/e', {}, { keep: { e: 'rev' } }),
]
const D = live('_design/d', '{d}')
const E = live('_design/e', '{e}')
const LOCALS = [ABCD, put('_local/k'), put('_local/l', { v: 1 })]
const K = live('_local/k', '0-1')
const L = live('_local/l', '0-1')

const VARIANTS: readonly Row[] = [
  {
    of: '8.3 POST',
    says: 'the same parameters in the body',
    given: [ABCD],
    steps: [
      [post('_all_docs', {}), rows('abcd', 0)],
      [post('_all_docs', { keys: ['c', 'a'] }), rows('ca', null)],
      [post('_all_docs', { startkey: 'b', limit: 2 }), rows('bc', 1)],
      [post('_all_docs', { key: 'b' }), rows('b', 1)],
      [post('_all_docs', { keys: ['d', 'b'] }, '?descending=true'), rows('bd', null)],
      [post('_all_docs', { start_key: 'a\u0000', limit: 1 }), rows('b', 1)],
      [post('_all_docs', { startkey: 1, endkey: 'b', reduce: false, group: false }), rows('ab', 0)],
      [post('_all_docs', { key: null }), { like: { rows: [] } }],
      [
        post('_all_docs', { keys: ['a'], include_docs: true, deleted: 'ok' }, '?'),
        { like: { rows: [{ doc: { _id: 'a' } }] } },
      ],
      [post('_all_docs', { descending: true, skip: 3 }), rows('a', 3)],
      [
        post('_all_docs', { include_docs: 'true', descending: 'TRUE', limit: 1 }),
        { like: { rows: [{ doc: { _id: 'd' } }] } },
      ],
      [post('_all_docs', { queries: [{ limit: 1 }] }), rows('abcd', 0)],
      [post('_all_docs', {}, '?keys=["b"]'), rows('b', 1)],
      [post('_all_docs', { keys: ['c'], endkey: 'b' }), { status: 400 }],
      [post('_all_docs', { startkey: 'b', endkey: 'c', inclusive_end: false }), rows('b', 1)],
      [post('_all_docs', { startkey: 'c', descending: true, limit: 1, skip: 1 }), rows('b', 2)],
      [post('_all_docs', { key: 'a', unknown: 1, stale: 'ok' }), rows('a', 0)],
      [
        post('_all_docs', { key: 'a', update_seq: true }),
        { json: { total_rows: 4, offset: 0, update_seq: /^5-/, rows: [live('a')] } },
      ],
      [
        ['POST /{db}/_all_docs', { body: '', headers: { 'content-type': 'application/json' } }],
        failed(400, 'bad_request', 'invalid UTF-8 JSON'),
      ],
      [post('_all_docs', { keys: ['a'], include_docs: true }), { like: { rows: [{ doc: { _id: 'a' } }] } }],
      [post('_all_docs', []), failed(400, 'bad_request', 'Request body must be a JSON object')],
      [
        ['POST /{db}/_all_docs', { body: '{}' }],
        failed(415, 'bad_content_type', 'Content-Type must be application/json'),
      ],
    ],
  },
  {
    of: '8.1 query over body',
    says: 'the query wins over the body',
    given: [ABCD],
    ask: post('_all_docs', { limit: 1, skip: 1 }, '?limit=2'),
    answer: rows('bc', 1),
  },
  {
    of: '8.3 POST keys null',
    says: 'refused',
    steps: [[post('_all_docs', { keys: null }), wrongKeys]],
  },
  {
    of: '8.3 POST',
    says: 'refuses the same values as GET',
    steps: (
      [
        [{ reduce: true }, 'query_parse_error', 'Reduce is invalid for map-only views.'],
        [{ group_level: 1 }, 'query_parse_error', 'Invalid use of grouping on a map view.'],
        [{ limit: 'x' }, 'query_parse_error', 'Invalid value for integer: "x"'],
        [{ limit: 1.5 }, 'query_parse_error', 'Invalid value for integer: 1.5'],
        [{ skip: -1 }, 'query_parse_error', 'Invalid value for positive integer: -1'],
        [{ skip: '1' }, 'query_parse_error', 'Invalid value for integer: "1"'],
        [
          { keys: ['a', 'b'], key: 'a' },
          'query_parse_error',
          '`keys` is incompatible with `key`, `start_key` and `end_key`',
        ],
        [{ descending: 1 }, 'query_parse_error', 'Invalid boolean parameter: 1'],
        [{ include_docs: 'x' }, 'query_parse_error', 'Invalid boolean parameter: "x"'],
        [{ update: 'x' }, 'query_parse_error', 'Invalid value for `update`.'],
        [{ stale: true }, 'query_parse_error', 'Invalid value for `stale`.'],
      ] as const
    ).map(([body, error, reason]) => [post('_all_docs', body), failed(400, error, reason)]),
  },
  {
    of: '8.3 POST keys of the wrong type',
    says: 'refused',
    steps: [
      [post('_all_docs', { keys: 'a' }), wrongKeys],
      [post('_all_docs', { keys: { a: 1 } }), wrongKeys],
    ],
  },
  {
    of: '8.3 queries',
    says: 'an envelope each; the content type is not looked at',
    given: [ABCD],
    steps: [
      [
        [
          'POST /{db}/_all_docs/queries',
          { body: '{"queries":[{"keys":["d"]},{"limit":1},{"startkey":"x"}]}' },
        ],
        {
          text:
            '{"results":[\r\n{"total_rows":4,"offset":3,"rows":[\r\n' +
            '{"id":"d","key":"d","value":{"rev":"1-a"}}\r\n]},\r\n' +
            '{"total_rows":4,"offset":0,"rows":[\r\n{"id":"a","key":"a","value":{"rev":"1-a"}}\r\n]},\r\n' +
            '{"total_rows":4,"offset":4,"rows":[\r\n\r\n]}\r\n]}\n',
        },
      ],
      [
        post('_all_docs/queries', {}),
        failed(400, 'bad_request', 'POST body must include `queries` parameter.'),
      ],
      [
        post('_all_docs/queries', { queries: 1 }),
        failed(400, 'bad_request', '`queries` member must be an array.'),
      ],
    ],
  },
  {
    of: '8.3 queries',
    says: 'each has its own parameters; what the query string says counts for all that do not say it',
    given: [ABCD],
    steps: [
      [
        post('_all_docs/queries', {
          queries: [
            { startkey: 'b', endkey: 'c' },
            { limit: 1, update_seq: true },
          ],
        }),
        { like: { results: [rows('bc', 1).json, { rows: [live('a')], update_seq: /^\d+-/ }] } },
      ],
      [post('_all_docs/queries', { queries: [] }), { text: '{"results":[\r\n\r\n]}\n' }],
      [
        post('_all_docs/queries', { queries: [{}, { limit: 2 }] }, '?limit=1'),
        { like: { results: [rows('a', 0).json, rows('ab', 0).json] } },
      ],
      [
        post('_all_docs/queries', { queries: [{}, { keys: ['x'] }] }, '?keys=["b"]'),
        { like: { results: [rows('b', 1).json, rows('', 4).json] } },
      ],
      ['GET /{db}/_all_docs/queries', { status: 405, headers: { allow: 'POST' } }],
    ],
  },
  {
    of: '8.3 queries',
    says: 'one that is invalid refuses all',
    given: [ABCD],
    steps: (
      [
        [{ queries: {} }, '`queries` member must be an array.'],
        [{ queries: [{}, 1] }, '`queries` member must be an array of objects.'],
        [{ queries: [{}, { keys: 1 }] }, '`keys` must be an array of strings.'],
        [{ queries: [{ limit: -1 }] }, 'Invalid value for positive integer: -1'],
        [
          { queries: [{}, { keys: ['a', 'b'], key: 'x' }] },
          '`keys` is incompatible with `key`, `start_key` and `end_key`',
        ],
        [[], 'Request body must be a JSON object'],
      ] as const
    ).map(([body, reason]) => [post('_all_docs/queries', body), { status: 400, like: { reason } }]),
  },
  {
    of: ['8.3 _design_docs', '8.3 _design_docs keys', '8.3 _design_docs queries'],
    says: 'design documents only, and how many of them there are',
    given: DESIGNS,
    steps: [
      ['GET /{db}/_design_docs', { json: { total_rows: 2, offset: 0, rows: [D, E] } }],
      ['GET /{db}/_design_docs?descending=true&limit=1', { like: { total_rows: 2, rows: [E] } }],
      ['GET /{db}/_design_docs?startkey="_design/f"', { like: { rows: [] } }],
      ['GET /{db}/_design_docs?startkey="a"&descending=true', { like: { rows: [E, D] } }],
      ['GET /{db}/_design_docs?endkey="a"', { like: { rows: [D, E] } }],
      ['GET /{db}/_design_docs?key="a"', { like: { rows: [] } }],
      [
        'GET /{db}/_design_docs?keys=["_design/e","a","_design/z"]',
        { json: { total_rows: 2, offset: null, rows: [E, unknown('_design/z')] } },
      ],
      [post('_design_docs', { keys: ['_design/d'] }), { like: { rows: [D] } }],
      [
        post('_design_docs/queries', { queries: [{ skip: 1 }, { key: '_design/d' }] }),
        { like: { results: [{ rows: [E] }, { rows: [D] }] } },
      ],
      [
        post('_design_docs/queries', { queries: [{ include_docs: true }, { limit: 0 }] }),
        {
          like: {
            results: [
              { total_rows: 2, rows: [{ doc: { _id: '_design/d' } }, { doc: { _id: '_design/e' } }] },
              { rows: [] },
            ],
          },
        },
      ],
    ],
  },
  {
    of: ['8.3 _local_docs', '8.3 _local_docs queries', '8.3 _local_docs include_system'],
    says: '_local documents, which nobody counts; there are none of the system',
    given: LOCALS,
    steps: [
      ['GET /{db}/_local_docs', { json: { total_rows: null, offset: null, rows: [K, L] } }],
      ['GET /{db}/_local_docs?include_system=true', { like: { rows: [K, L] } }],
      [
        'GET /{db}/_local_docs?key="_local/l"&include_docs=true',
        { like: { rows: [{ ...L, doc: { _id: '_local/l', _rev: '0-1', v: 1 } }] } },
      ],
      ['GET /{db}/_local_docs?descending=true&limit=1', { like: { rows: [L] } }],
      ['GET /{db}/_local_docs?skip=1', { like: { rows: [L] } }],
      ['GET /{db}/_local_docs?startkey="a"', { like: { rows: [] } }],
      [
        post('_local_docs', { keys: ['a', '_local/l', '_local/z'] }),
        { like: { rows: [L, unknown('_local/z')] } },
      ],
      [post('_local_docs', {}), { like: { rows: [K, L] } }],
      [post('_local_docs/queries', { queries: [{ limit: 1 }] }), { like: { results: [{ rows: [K] }] } }],
      [
        post('_local_docs/queries', { queries: [{}] }),
        { like: { results: [{ total_rows: null, rows: [K, L] }] } },
      ],
    ],
  },
]

export const LIST_ANSWERS: readonly Row[] = [...ENVELOPE, ...VARIANTS]
