/** Writes, purges, COPY and the rest: the vectors of protocol.md 19.4 and 19.8. */

import type { Answer } from './answers.ts'
import { of } from './histories.ts'
import { type Ask, type AskMore, failed, put, type Row, stored } from './table.ts'

const CONFLICT: Answer = failed(409, 'conflict', 'Document update conflict.')
const DELETED: Answer = failed(404, 'not_found', 'deleted')
const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)
const saved = (generation: number, status = 201): Answer => ({
  status,
  like: { ok: true, rev: new RegExp(`^${generation}-[0-9a-f]{32}$`) },
})
const ifMatch = (rev: string): AskMore => ({ headers: { 'if-match': `"${rev}"` } })
const FIRST = put('x', {}, { keep: { first: 'rev' } })
const SECOND = put('x', { _rev: '{first}' }, { keep: { second: 'rev' } })
const THIRD: Ask = ['DELETE /{db}/x?rev={second}', { keep: { third: 'rev' } }]

const WRITES: readonly Row[] = [
  {
    of: '19.4 #1',
    says: 'the same content has the same first revision, whatever its id',
    steps: [
      [FIRST, { ...saved(1), headers: { etag: '"{first}"' } }],
      [put('y'), { status: 201, json: { ok: true, id: 'y', rev: '{first}' } }],
    ],
  },
  { of: '19.4 #2', says: 'no revision', given: [FIRST], ask: put('x'), answer: CONFLICT },
  {
    of: '19.4 #3',
    says: 'If-Match',
    given: [FIRST],
    ask: put('x', {}, ifMatch('{first}')),
    answer: saved(2),
  },
  {
    of: '19.4 #4',
    says: 'DELETE with an old revision, and with the current one',
    given: [FIRST, SECOND],
    steps: [
      [['DELETE /{db}/x', ifMatch('{first}')], CONFLICT],
      [['DELETE /{db}/x', ifMatch('{second}')], saved(3, 200)],
    ],
  },
  {
    of: '19.4 #5',
    says: 'a deleted document, and how it comes back',
    given: [FIRST, SECOND, THIRD],
    steps: [
      ['GET /{db}/x', DELETED],
      ['DELETE /{db}/x', DELETED],
      [put('x', { _rev: '{third}' }), CONFLICT],
      [put('x', { _rev: '{first}' }), CONFLICT],
      [put('x', {}, { keep: { fourth: 'rev' } }), saved(4)],
      [
        'GET /{db}/x?revs=true',
        { like: { _rev: '{fourth}', _revisions: { start: 4, ids: [/./, /./, /./, /./] } } },
      ],
    ],
  },
  {
    of: '19.4 #6',
    says: 'the same new document twice in a bulk',
    ask: ['POST /{db}/_bulk_docs', { json: { docs: [{ _id: 'x' }, { _id: 'x' }] } }],
    answer: { status: 201, like: [{ ok: true }, { error: 'conflict' }] },
  },
  {
    of: '19.4 #7',
    says: 'an update and a delete of the same revision',
    given: [FIRST],
    ask: [
      'POST /{db}/_bulk_docs',
      {
        json: {
          docs: [
            { _id: 'x', _rev: '{first}', v: 1 },
            { _id: 'x', _rev: '{first}', _deleted: true },
          ],
        },
      },
    ],
    answer: { status: 201, like: [{ ok: true }, { error: 'conflict' }] },
  },
  {
    of: '19.4 #8',
    says: 'a member that is unknown',
    ask: put('x', { _zing: 1 }),
    answer: failed(400, 'doc_validation', 'Bad special document member: _zing'),
  },
  { of: '19.4 #9', says: 'an array', ask: put('x', []), answer: malformed('Document must be a JSON object') },
  {
    of: '19.4 #10',
    says: 'an id that is a number',
    ask: ['POST /{db}', { json: { _id: 1 } }],
    answer: failed(400, 'illegal_docid', 'Document id must be a string'),
  },
  {
    of: '19.4 #11',
    says: 'an id that begins with _',
    ask: put('_other'),
    answer: failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.'),
  },
  {
    of: '19.4 #12',
    says: 'no _local id',
    steps: [
      [put('_local'), malformed('Invalid _local document id.')],
      [put('_local/'), malformed('Invalid _local document id.')],
      [put('_local%2F'), malformed('Invalid _local document id.')],
      [put('_local/a/b'), malformed('_local documents do not accept attachments.')],
      ['GET /{db}/_local', malformed('Invalid _local document id.')],
      [['DELETE /{db}/_local', { body: '{}' }], malformed('Invalid _local document id.')],
    ],
  },
  {
    of: '19.4 #13',
    says: 'a _local document twice, and with its revision',
    steps: [
      [put('_local/a'), { status: 201, like: { rev: '0-1' } }],
      [put('_local/a'), { status: 201, like: { rev: '0-1' } }],
      [put('_local/a', { _rev: '0-1' }), { status: 201, like: { rev: '0-2' } }],
    ],
  },
  {
    of: '19.4 #14',
    says: 'DELETE of a database with a revision',
    ask: 'DELETE /{db}/?rev=x',
    answer: { status: 400, like: { error: 'bad_request' } },
  },
  {
    of: '19.4 #15',
    says: 'a database twice',
    steps: [
      ['PUT /{db}-a', { status: 201 }],
      ['PUT /{db}-a', { status: 412, like: { error: 'file_exists' } }],
      ['DELETE /{db}-a', {}],
    ],
  },
]

const copy = (destination: string): Ask => ['COPY /{db}/x', { headers: { destination } }]
const VIEW = put('_design/d', { views: { v: { map: 'function (doc) { emit(doc._id) }' } } })
const PUT_BY_POST = { 'x-http-method-override': 'PUT' }

const OTHERS: readonly Row[] = [
  {
    of: '19.8 #1',
    says: 'two purges that are good, and one that is not',
    given: [stored(of('doc1', '1-a'), of('doc2', '1-a'), of('doc3', '1-a'))],
    ask: ['POST /{db}/_purge', { json: { doc1: ['1-a'], doc2: ['1-b'], doc3: ['1-a'] } }],
    answer: {
      status: 201,
      json: { purge_seq: null, purged: { doc1: ['1-a'], doc2: [], doc3: ['1-a'] } },
    },
  },
  {
    of: '19.8 #2',
    says: 'GET of a purge',
    ask: 'GET /{db}/_purge',
    answer: { ...failed(405, 'method_not_allowed', 'Only POST allowed'), headers: { allow: 'POST' } },
  },
  {
    of: '19.8 #3',
    says: 'a limit of 0',
    ask: ['PUT /{db}/_purged_infos_limit', { body: '0' }],
    answer: malformed('`purged_infos_limit` must be positive integer'),
  },
  {
    of: '19.8 #4',
    says: 'destinations of COPY',
    given: [put('x'), stored(of('y', '1-a'))],
    steps: [
      ['COPY /{db}/x', malformed('Destination header is mandatory for COPY.')],
      [copy('http://h/{db}/y'), malformed('Destination URL must be relative.')],
      [
        copy('_bad?rev=1-a'),
        failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.'),
      ],
      [copy('y'), CONFLICT],
      [copy('y?rev=1-a'), { status: 201 }],
    ],
  },
  {
    of: '19.8 #5',
    says: 'a POST that says it is a PUT',
    ask: ['POST /{db}/doc', { json: { v: 1 }, headers: PUT_BY_POST }],
    answer: { status: 201, json: { ok: true, id: 'doc', rev: /^1-/ } },
  },
  {
    of: '19.8 #6',
    says: 'a GET that says so is a GET',
    given: [put('x')],
    ask: ['GET /{db}/x', { headers: { 'x-http-method-override': 'DELETE' } }],
    answer: { like: { _id: 'x' } },
  },
  {
    of: '19.8 #7',
    says: 'X-Forwarded-Host of a trusted proxy',
    isDirect: true,
    given: [['PUT /_node/_local/_config/settee/trusted_proxies', { json: 'loopback' }]],
    ask: put('doc', {}, { headers: { 'x-forwarded-host': 'mysite.com' } }),
    answer: { status: 201, headers: { location: 'http://mysite.com/{db}/doc' } },
  },
  {
    of: '19.8 #8',
    says: 'too many ids, or by POST',
    steps: [
      ['GET /_uuids?count=1001', malformed('count parameter too large')],
      ['POST /_uuids', { status: 405, headers: { allow: 'GET' } }],
    ],
  },
  {
    of: '19.8 #9',
    says: 'a path below a call',
    ask: 'GET /_all_dbs/x',
    answer: failed(404, 'not_found', 'missing'),
  },
  {
    of: '19.8 #10',
    says: 'keys that are not an array',
    ask: ['POST /{db}/_all_docs', { json: { keys: 1 } }],
    answer: malformed('`keys` body member must be an array.'),
  },
  {
    of: '19.8 #11',
    says: 'the offset of a range',
    given: [put('0'), put('1'), put('2'), put('3')],
    ask: 'GET /{db}/_all_docs?startkey="2"',
    answer: { like: { total_rows: 4, offset: 2, rows: [{ id: '2' }, { id: '3' }] } },
  },
  {
    of: '19.8 #12',
    says: 'a reversed range: of a view refused, of a list empty',
    given: [VIEW],
    steps: [
      [
        'GET /{db}/_design/d/_view/v?startkey="b"&endkey="a"',
        { status: 400, like: { error: 'query_parse_error' } },
      ],
      ['GET /{db}/_all_docs?startkey="b"&endkey="a"', { like: { rows: [] } }],
    ],
  },
  {
    of: '19.8 #13',
    says: "a view's keys, and its content type",
    given: [VIEW],
    steps: [
      [
        ['POST /{db}/_design/d/_view/v', { json: { keys: {} } }],
        malformed('`keys` member must be an array.'),
      ],
      [['POST /{db}/_design/d/_view/v', { body: '{}' }], { status: 415 }],
    ],
  },
  {
    of: '19.8 #14',
    says: 'new_edits that is not a boolean',
    ask: ['POST /{db}/_bulk_docs', { json: { docs: [], new_edits: 0 } }],
    answer: malformed('`new_edits` parameter must be a boolean.'),
  },
  {
    of: '19.8 #15',
    says: 'a weak ETag',
    given: [FIRST],
    ask: ['GET /{db}/x', { headers: { 'if-none-match': 'W/"{first}"' } }],
    answer: { status: 304, text: '' },
  },
]

export const WRITE_VECTORS: readonly Row[] = [...WRITES, ...OTHERS]
