/** Maintenance and purges: protocol.md 4.6, 4.7. */

import type { Answer } from './answers.ts'
import { CHAIN, CONFLICT, of, x } from './histories.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)
const JSON_TYPE = { 'content-type': 'application/json' }
const OK = { ok: true }

const MAINTENANCE: readonly Row[] = [
  {
    of: '4.6 _ensure_full_commit',
    says: 'answers with the time, as GET does, also without a body',
    given: [['GET /{db}', { keep: { born: 'instance_start_time' } }]],
    steps: [
      [
        ['POST /{db}/_ensure_full_commit', { headers: JSON_TYPE }],
        { status: 201, json: { ok: true, instance_start_time: '{born}' } },
      ],
      [['POST /{db}/_ensure_full_commit', { json: {} }], { status: 201 }],
      ['POST /{db}/_ensure_full_commit', { status: 415 }],
    ],
  },
  {
    of: '4.6 _compact',
    says: '202 at once, also without a body',
    given: [CHAIN],
    steps: [
      [['POST /{db}/_compact', { headers: JSON_TYPE }], { status: 202, json: OK }],
      ['POST /{db}/_compact', { status: 415 }],
    ],
  },
  {
    of: '4.6 _compact ddoc',
    says: '404 where there is no such design document',
    given: [put('_design/d')],
    steps: [
      [['POST /{db}/_compact/d', { headers: JSON_TYPE }], { status: 202, json: OK }],
      [['POST /{db}/_compact/e', { headers: JSON_TYPE }], failed(404, 'not_found', 'missing')],
    ],
  },
  {
    of: '4.6 _view_cleanup',
    says: 'needs no content type',
    ask: 'POST /{db}/_view_cleanup',
    answer: { status: 202, json: OK },
  },
  {
    of: ['4.6 GET _revs_limit', '4.6 PUT _revs_limit'],
    says: 'is a bare number, 1000 by default',
    steps: [
      ['GET /{db}/_revs_limit', { text: '1000\n' }],
      [['PUT /{db}/_revs_limit', { body: '20' }], { json: OK }],
      ['GET /{db}/_revs_limit', { text: '20\n' }],
    ],
  },
  {
    of: '4.6 PUT _revs_limit junk',
    says: 'refused, where CouchDB answers 500 (docs/compatibility.md)',
    steps: [
      ...['0', '-1', '1.5', '"5"', 'x', '{}', 'null'].map(
        (body) =>
          [['PUT /{db}/_revs_limit', { body }], { status: 400, like: { error: 'bad_request' } }] as const,
      ),
      ['GET /{db}/_revs_limit', { text: '1000\n' }],
    ],
  },
  {
    of: '4.6 stemming',
    says: 'each branch keeps its last, in replication and in edits; what is cut off is forgotten',
    given: [['PUT /{db}/_revs_limit', { body: '2' }], stored(x('4-d c b a'))],
    steps: [
      ['GET /{db}/x?revs=true', { like: { _revisions: { start: 4, ids: ['d', 'c'] } } }],
      [['POST /{db}/_revs_diff', { json: { x: ['2-b', '3-c'] } }], { json: { x: { missing: ['2-b'] } } }],
      [put('x', { _rev: '4-d' }), { status: 201 }],
      ['GET /{db}/x?revs=true', { like: { _revisions: { start: 5, ids: [/./, 'd'] } } }],
      [['POST /{db}/_revs_diff', { json: { x: ['3-c', '4-d'] } }], { json: { x: { missing: ['3-c'] } } }],
    ],
  },
  {
    of: ['4.6 GET _purged_infos_limit', '4.6 PUT _purged_infos_limit'],
    says: 'is a bare number, 1000 by default',
    steps: [
      ['GET /{db}/_purged_infos_limit', { text: '1000\n' }],
      [['PUT /{db}/_purged_infos_limit', { body: '5' }], { json: OK }],
      ['GET /{db}/_purged_infos_limit', { text: '5\n' }],
      ...['0', '-1', '"5"', '1.5'].map(
        (body) =>
          [
            ['PUT /{db}/_purged_infos_limit', { body }],
            malformed('`purged_infos_limit` must be positive integer'),
          ] as const,
      ),
    ],
  },
  {
    of: '4.6 _purged_infos',
    says: 'what was purged',
    given: [CONFLICT, ['POST /{db}/_purge', { json: { x: ['2-b', '2-d'] } }]],
    ask: 'GET /{db}/_purged_infos',
    answer: { json: { purged_infos: [{ id: 'x', revs: ['2-b', '2-d'] }] } },
  },
]

const purge = (json: unknown): Ask => ['POST /{db}/_purge', { json }]
const purged = (purged: unknown): Answer => ({ status: 201, json: { purge_seq: null, purged } })

const PURGE: readonly Row[] = [
  {
    of: ['4.7 body', '4.7 answer'],
    says: 'leaves by document',
    given: [stored(of('x', '1-a'), of('y', '2-b a'))],
    steps: [
      [
        purge({ x: ['1-a'], y: ['2-b'] }),
        { status: 201, text: '{"purge_seq":null,"purged":{"x":["1-a"],"y":["2-b"]}}\n' },
      ],
      ['GET /{db}/x', failed(404, 'not_found', 'missing')],
      [purge({}), purged({})],
      [purge([]), malformed('Request body must be a JSON object')],
      [purge({ x: '1-a' }), malformed('Invalid list of revisions')],
      [purge({ x: ['junk'] }), malformed('Invalid rev format')],
      [['POST /{db}/_purge', { body: '{}' }], { status: 415 }],
    ],
  },
  {
    of: '4.7 unknown',
    says: 'a document, or a revision: an empty row',
    given: [stored(of('x', '1-a'))],
    steps: [
      [purge({ x: ['1-b'], y: ['1-a'] }), purged({ x: [], y: [] })],
      ['GET /{db}/x', { like: { _rev: '1-a' } }],
    ],
  },
  {
    of: '4.7 inner revision',
    says: 'stays',
    given: [CHAIN],
    steps: [
      [purge({ x: ['2-b'] }), purged({ x: [] })],
      ['GET /{db}/x?revs=true', { like: { _revisions: { ids: ['c', 'b', 'a'] } } }],
    ],
  },
  {
    of: '4.7 max_revisions_number',
    says: 'more of them refuse the request',
    given: [CONFLICT],
    steps: [
      [['PUT /_node/_local/_config/purge/max_revisions_number', { json: '1' }], {}],
      [purge({ x: ['2-b', '2-d'] }), malformed('Exceeded maximum number of revisions.')],
      ['DELETE /_node/_local/_config/purge/max_revisions_number', {}],
      [purge({ x: ['2-b', '2-d'] }), purged({ x: ['2-b', '2-d'] })],
    ],
  },
  {
    of: '4.7 forgotten',
    says: 'the leaf, and the ancestors that served no other',
    given: [stored(x('3-c b a'), x('2-d a'))],
    steps: [
      [purge({ x: ['3-c'] }), purged({ x: ['3-c'] })],
      [
        ['POST /{db}/_missing_revs', { json: { x: ['1-a', '2-b', '2-d', '3-c'] } }],
        { json: { missing_revs: { x: ['2-b', '3-c'] } } },
      ],
      [stored(x('3-c b a')), { status: 201 }],
      ['GET /{db}/x', { like: { _rev: '3-c' } }],
    ],
  },
  {
    of: '4.7 wholly purged',
    says: 'gone from the feed and the counts, without a new number in the feed',
    given: [stored(of('x', '1-a')), stored(of('y', '1-a'))],
    steps: [
      [purge({ x: ['1-a'] }), purged({ x: ['1-a'] })],
      ['GET /{db}/_changes', { like: { results: [{ id: 'y' }], last_seq: /^2-/ } }],
      ['GET /{db}', { like: { doc_count: 1, update_seq: /^2-/ } }],
    ],
  },
  {
    of: '4.7 partly purged',
    says: 'another row in the feed, with the winner that is left',
    given: [CONFLICT, ['GET /{db}/_changes', { keep: { before: 'last_seq' } }]],
    steps: [
      [purge({ x: ['2-c'] }), purged({ x: ['2-c'] })],
      [
        'GET /{db}/_changes?since={before}&style=all_docs',
        { like: { results: [{ id: 'x', changes: [{ rev: '2-b' }, { rev: '2-d' }] }] } },
      ],
    ],
  },
  {
    of: '4.7 views',
    says: 'follow',
    given: [
      put('_design/d', { views: { v: { map: 'function (doc) { emit(doc._id, doc.v) }' } } }),
      CONFLICT,
      stored(of('y', '1-a')),
      'GET /{db}/_design/d/_view/v',
      purge({ x: ['2-c'], y: ['1-a'] }),
    ],
    ask: 'GET /{db}/_design/d/_view/v',
    answer: { json: { total_rows: 1, offset: 0, rows: [{ id: 'x', key: 'x', value: 2 }] } },
  },
]

export const UPKEEP: readonly Row[] = [...MAINTENANCE, ...PURGE]
