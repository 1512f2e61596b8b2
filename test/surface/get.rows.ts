/** GET and HEAD of a document: protocol.md 3.1. */

import type { Answer } from './answers.ts'
import { CHAIN, CONFLICT, DATA, DELETED, GONE, INLINE, of, STUB, x } from './histories.ts'
import { failed, put, type Row, stored } from './table.ts'

const MISSING: Answer = failed(404, 'not_found', 'missing')
const X = { _id: 'x', _rev: '2-c', v: 3 }
const CONFLICTS = { _conflicts: ['2-b'] }
const DELETED_CONFLICTS = { _deleted_conflicts: ['2-d'] }
const REVS_INFO = {
  _revs_info: [
    { rev: '2-c', status: 'available' },
    { rev: '1-a', status: 'available' },
  ],
}

/** `x` with two of its four revisions. */
const CUT = { _id: 'x', _rev: '4-d', _revisions: { start: 4, ids: ['d', 'c'] } }

/** Members whose text changes if JavaScript parses and writes it. */
const ODD =
  '"2":1,"b":9007199254740993,"1":1e400,"c":1.0,"d":-0,"o":{"__proto__":{"x":1},"_x":2},"é":"\\u00e9\\/","n":[[[]]]'
const ODD_LENGTH = Buffer.byteLength(`{"_id":"x","_rev":"1-${'0'.repeat(32)}",${ODD}}\n`)

/** The flags of 3.1, for rows that set all of them. */
const SWITCHES = 'revs revs_info conflicts deleted_conflicts meta local_seq attachments att_encoding_info'

export const GET: readonly Row[] = [
  {
    of: '3.1 rev',
    says: 'a leaf, the winner or not, and one that was superseded',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?rev=2-c', { json: X }],
      ['GET /{db}/x?rev=2-b', { json: { _id: 'x', _rev: '2-b', v: 2 } }],
      ['GET /{db}/x?rev=1-a', { json: { _id: 'x', _rev: '1-a', v: 1 } }],
    ],
  },
  {
    of: '3.1 rev',
    says: 'a tombstone is answered 200, with what it holds',
    given: [CONFLICT],
    ask: 'GET /{db}/x?rev=2-d',
    answer: { json: { _id: 'x', _rev: '2-d', _deleted: true, v: 4 } },
  },
  {
    of: '3.1 rev',
    says: 'unknown, or known by its name only',
    given: [stored(x('2-b a'))],
    steps: [
      ['GET /{db}/x?rev=2-z', MISSING],
      ['GET /{db}/x?rev=1-a', MISSING],
    ],
  },
  {
    of: '3.1 revs',
    says: 'the whole path of the revision that is read, newest first',
    given: [CHAIN],
    steps: [
      ['GET /{db}/x?revs=true', { like: { _revisions: { start: 3, ids: ['c', 'b', 'a'] } } }],
      ['GET /{db}/x?revs=true&rev=2-b', { like: { _revisions: { start: 2, ids: ['b', 'a'] } } }],
      ['GET /{db}/x', { json: { _id: 'x', _rev: '3-c', v: 3 } }],
    ],
  },
  {
    of: '3.1 revs',
    says: 'at most revs_limit of it',
    given: [['PUT /{db}/_revs_limit', { body: '2' }], CHAIN],
    ask: 'GET /{db}/x?revs=true',
    answer: { json: { _id: 'x', _rev: '3-c', _revisions: { start: 3, ids: ['c', 'b'] }, v: 3 } },
  },
  {
    of: ['3.1 revs', '3.2 all', '4.2 revs', '3.1 revs_info'],
    says: 'at most revs_limit of it, also after that was lowered; revs_info lists what is stored',
    given: [stored(x('4-d c b a')), ['PUT /{db}/_revs_limit', { body: '2' }]],
    steps: [
      ['GET /{db}/x?revs=true', { json: CUT }],
      ['GET /{db}/x?open_revs=all&revs=true', { json: [{ ok: CUT }] }],
      [
        ['POST /{db}/_bulk_get?revs=true', { json: { docs: [{ id: 'x' }] } }],
        { json: { results: [{ id: 'x', docs: [{ ok: CUT }] }] } },
      ],
      [
        'GET /{db}/x?revs_info=true',
        { like: { _revs_info: ['4-d', '3-c', '2-b', '1-a'].map((rev) => ({ rev })) } },
      ],
    ],
  },
  {
    of: '3.1 revs_info',
    says: 'newest first: available, deleted, missing',
    given: [stored(x('3-c b a', { v: 3 }), x('4-d c b a', DELETED), x('5-e d c b a'))],
    steps: [
      [
        'GET /{db}/x?revs_info=true',
        {
          json: {
            _id: 'x',
            _rev: '5-e',
            _revs_info: [
              { rev: '5-e', status: 'available' },
              { rev: '4-d', status: 'deleted' },
              { rev: '3-c', status: 'available' },
              { rev: '2-b', status: 'missing' },
              { rev: '1-a', status: 'missing' },
            ],
          },
        },
      ],
    ],
  },
  {
    of: '3.1 conflicts',
    says: 'the other live leaves, best first; no member when there are none',
    given: [CONFLICT, stored(x('2-a a')), put('y')],
    steps: [
      ['GET /{db}/x?conflicts=true', { json: { ...X, _conflicts: ['2-b', '2-a'] } }],
      ['GET /{db}/y?conflicts=true', { json: { _id: 'y', _rev: /^1-/ } }],
    ],
  },
  {
    of: '3.1 deleted_conflicts',
    says: 'the other deleted leaves; no member when there are none',
    given: [CONFLICT, put('y')],
    steps: [
      ['GET /{db}/x?deleted_conflicts=true', { json: { ...X, ...DELETED_CONFLICTS } }],
      ['GET /{db}/y?deleted_conflicts=true', { json: { _id: 'y', _rev: /^1-/ } }],
    ],
  },
  {
    of: '3.1 meta',
    says: 'revs_info, conflicts and deleted_conflicts',
    given: [CONFLICT],
    ask: 'GET /{db}/x?meta=true',
    answer: { json: { ...X, ...REVS_INFO, ...CONFLICTS, ...DELETED_CONFLICTS } },
  },
  {
    of: '3.1 local_seq',
    says: 'a whole number',
    given: [CONFLICT],
    ask: 'GET /{db}/x?local_seq=true',
    answer: { json: { ...X, _local_seq: /^[1-9]\d*$/ } },
  },
  {
    of: '3.1 latest',
    says: 'with rev: the newest leaf below it, not the winner (docs/compatibility.md)',
    given: [stored(x('2-b a', { v: 1 }), x('3-c b a', { v: 2 }), x('2-d a'), x('4-f e d a'))],
    steps: [
      ['GET /{db}/x?rev=2-b&latest=true', { json: { _id: 'x', _rev: '3-c', v: 2 } }],
      ['GET /{db}/x?rev=1-a&latest=true', { like: { _rev: '4-f' } }],
      ['GET /{db}/x?latest=true', { like: { _rev: '4-f' } }],
    ],
  },
  {
    of: '3.1 open_revs',
    says: 'accepts all or a list',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?open_revs=all', { like: [{ ok: X }, { ok: {} }, { ok: {} }] }],
      ['GET /{db}/x?open_revs=["2-c"]', { json: [{ ok: X }] }],
      ['GET /{db}/x?open_revs={}', failed(400, 'bad_request', 'Invalid list of revisions')],
    ],
  },
  {
    of: '3.1 attachments',
    says: 'their contents in base64; stubs without it',
    given: [stored(x('1-a', { _attachments: { t: { ...INLINE, revpos: 1 } } }))],
    steps: [
      ['GET /{db}/x?attachments=true', { json: { _id: 'x', _rev: '1-a', _attachments: { t: DATA } } }],
      ['GET /{db}/x', { json: { _id: 'x', _rev: '1-a', _attachments: { t: STUB } } }],
    ],
  },
  {
    of: '3.1 att_encoding_info',
    says: 'nothing to say of what is stored as it came (docs/compatibility.md)',
    given: [put('x', { _attachments: { t: INLINE } })],
    steps: [['GET /{db}/x?att_encoding_info=true', { like: { _attachments: { t: STUB } } }]],
  },
  {
    of: '3.1 atts_since',
    says: 'contents above the newest revision known, stubs of the others',
    given: [
      put('x', { _attachments: { t: INLINE } }, { keep: { first: 'rev' } }),
      put('x', { _rev: '{first}', _attachments: { t: { stub: true }, u: INLINE } }),
    ],
    steps: [
      [
        'GET /{db}/x?atts_since=["1-z","{first}"]',
        { like: { _attachments: { t: STUB, u: { ...DATA, revpos: 2 } } } },
      ],
      ...['"1-a"', '{}'].map(
        (value) =>
          [
            `GET /{db}/x?atts_since=${value}`,
            failed(400, 'bad_request', 'Invalid list of revisions'),
          ] as const,
      ),
      ...['[1]', '["bad"]'].map(
        (value) =>
          [`GET /{db}/x?atts_since=${value}`, failed(400, 'bad_request', 'Invalid rev format')] as const,
      ),
      ['GET /{db}/x?atts_since=[]', { like: { _attachments: { t: DATA, u: { ...DATA, revpos: 2 } } } }],
    ],
  },
  {
    of: '3.1 deleted',
    says: 'a winner that is a tombstone is answered 200',
    given: [GONE],
    ask: 'GET /{db}/x?deleted=true',
    answer: { json: { _id: 'x', _rev: '2-b', _deleted: true } },
  },
  {
    of: ['3.1 r', '3.1 unknown parameters'],
    says: 'ignored',
    given: [CONFLICT],
    ask: 'GET /{db}/x?r=3&w=2&foo=bar&_nonsense=%22',
    answer: { json: X },
  },
  {
    of: '3.1 only true is on',
    says: 'TRUE, 1, yes and an empty text turn nothing on',
    given: [CONFLICT],
    steps: ['TRUE', '1', 'yes', '', 'false', '"true"'].map((value) => [
      `GET /{db}/x?${SWITCHES.split(' ')
        .map((name) => `${name}=${value}`)
        .join('&')}`,
      { json: X },
    ]),
  },
  {
    of: '3.1 order of members',
    says: '_id, _rev, then what was sent as it was sent, then the other _ members',
    given: [
      [
        'PUT /{db}/y',
        { body: '{"z":1, "_attachments":{}, "2":[1.0, -0], "a":{"_b":null}}', keep: { rev: 'rev' } },
      ],
      CONFLICT,
    ],
    steps: [
      ['GET /{db}/y', { text: '{"_id":"y","_rev":"{rev}","z":1,"2":[1.0,-0],"a":{"_b":null}}\n' }],
      [
        'GET /{db}/x?rev=2-d&revs=true',
        { text: '{"_id":"x","_rev":"2-d","v":4,"_deleted":true,"_revisions":{"start":2,"ids":["d","a"]}}\n' },
      ],
      [
        'GET /{db}/x?revs=true&meta=true',
        {
          text: /^\{"_id":"x","_rev":"2-c","v":3,"_revisions":.*,"_revs_info":.*,"_conflicts":.*,"_deleted_con/,
        },
      ],
    ],
  },
  {
    of: '3.1 order of members',
    says: 'names, numbers and escapes are those that were sent',
    given: [['PUT /{db}/x', { body: `{${ODD}}`, keep: { rev: 'rev' } }]],
    ask: 'GET /{db}/x',
    answer: {
      text: `{"_id":"x","_rev":"{rev}",${ODD}}\n`,
      headers: { 'content-type': 'application/json', 'content-length': String(ODD_LENGTH) },
    },
  },
  {
    of: '3.1 HEAD',
    says: 'the same without a body, failures as well',
    given: [CONFLICT],
    steps: [
      [
        'HEAD /{db}/x',
        { text: '', headers: { etag: '"2-c"', 'content-type': 'application/json', 'content-length': '31' } },
      ],
      ['HEAD /{db}/y', { status: 404, text: '' }],
      ['HEAD /{db}/x?open_revs=all', { text: '' }],
      ['HEAD /{db}/x?rev=junk', { status: 400, text: '' }],
    ],
  },
  {
    of: '3.1 design document',
    says: 'with its slash as it is, or escaped, where CouchDB answers 301 (docs/compatibility.md)',
    given: [put('_design/d', { language: 'javascript' }, { keep: { rev: 'rev' } })],
    steps: [
      ['GET /{db}/_design/d', { json: { _id: '_design/d', _rev: '{rev}', language: 'javascript' } }],
      ['GET /{db}/_design%2Fd', { json: { _id: '_design/d', _rev: '{rev}', language: 'javascript' } }],
      ['HEAD /{db}/_design/d', { headers: { etag: '"{rev}"' }, text: '' }],
      ['GET /{db}/_design/e', MISSING],
      ['GET /{db}/_design/e/_view/v', MISSING],
    ],
  },
  {
    of: '3.1 local document',
    says: 'with its slash as it is, or escaped',
    given: [put('_local/l', { v: 1 })],
    steps: [
      ['GET /{db}/_local/l', { json: { _id: '_local/l', _rev: '0-1', v: 1 } }],
      ['GET /{db}/_local%2Fl', { json: { _id: '_local/l', _rev: '0-1', v: 1 } }],
      ['GET /{db}/_local/k', MISSING],
    ],
  },
  {
    of: '3.1 meta with rev',
    says: 'with rev or open_revs only revs is heard',
    given: [CONFLICT],
    steps: [
      [
        'GET /{db}/x?rev=2-c&meta=true&local_seq=true&revs=true',
        { json: { ...X, _revisions: { start: 2, ids: ['c', 'a'] } } },
      ],
      [
        'GET /{db}/x?open_revs=["2-c"]&meta=true&local_seq=true&revs=true',
        { json: [{ ok: { ...X, _revisions: { start: 2, ids: ['c', 'a'] } } }] },
      ],
    ],
  },
  {
    of: '3.1 404 missing',
    says: 'never stored, or of an id that no document may have',
    steps: [
      ['GET /{db}/x', MISSING],
      ['GET /{db}/_none', MISSING],
    ],
  },
  {
    of: '3.1 404 deleted',
    says: 'its winner is a tombstone',
    given: [GONE, stored(of('y', '1-a', DELETED))],
    steps: [
      ['GET /{db}/x', failed(404, 'not_found', 'deleted')],
      ['GET /{db}/y', failed(404, 'not_found', 'deleted')],
    ],
  },
  {
    of: '3.1 404 database',
    says: 'no database, of a legal name or not',
    steps: [
      ['GET /nothere/x', failed(404, 'not_found', 'Database does not exist.')],
      ['GET /No.Name/x', failed(404, 'not_found', 'Database does not exist.')],
    ],
  },
  {
    of: '3.1 400 rev',
    says: 'without a hyphen, without a number, with 32 characters that are no hex',
    given: [CONFLICT],
    steps: ['junk', 'a-b', '', `1-${'z'.repeat(32)}`].map((rev) => [
      `GET /{db}/x?rev=${rev}`,
      failed(400, 'bad_request', 'Invalid rev format'),
    ]),
  },
  {
    of: '3.1 400 JSON',
    says: 'open_revs and atts_since must be JSON',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?open_revs=[1', failed(400, 'bad_request', 'invalid UTF-8 JSON')],
      ['GET /{db}/x?open_revs=all&atts_since=x', failed(400, 'bad_request', 'invalid UTF-8 JSON')],
      ['GET /{db}/x?open_revs=[1-a]', failed(400, 'bad_request', 'invalid UTF-8 JSON')],
      ['GET /{db}/x?atts_since=1-a', failed(400, 'bad_request', 'invalid UTF-8 JSON')],
    ],
  },
]
