/** The parameters of `_changes`: protocol.md 5.1. */

import type { Answer } from './answers.ts'
import { A, B, C, events, feed, lines, SIX, set, THREE, unset } from './feeds.ts'
import { failed, put, type Row, stored } from './table.ts'

const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)
const HELLO = { _attachments: { hello: { content_type: 'text/plain', data: 'aGVsbG8=' } } }
const BY_TYPE = { filters: { byType: '(doc, req) => doc.type === req.query.type' } }

export const rows: readonly Row[] = [
  {
    of: '5.1 feed',
    says: 'normal, longpoll, continuous and its alias live, eventsource',
    given: THREE,
    steps: [
      ['GET /{db}/_changes', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=normal', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=longpoll', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=continuous&timeout=0', lines([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=live&timeout=0', lines([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=eventsource&timeout=0', events(A, B, C)],
    ],
  },
  {
    of: '5.1 feed',
    says: 'no other',
    steps: [
      [
        'GET /{db}/_changes?feed=push',
        malformed('Supported `feed` types: normal, continuous, live, longpoll, eventsource'),
      ],
      ['PUT /{db}/_changes', failed(405, 'method_not_allowed', 'Only GET,POST,HEAD allowed')],
    ],
  },
  {
    of: '5.1 since',
    says: '0 by default',
    given: THREE,
    ask: 'GET /{db}/_changes?since=0',
    answer: feed([A, B, C], 8, 0),
  },
  {
    of: '5.1 since',
    says: 'accepts a sequence, with or without quotes',
    given: [...THREE, SIX],
    steps: [
      ['GET /{db}/_changes?since={six}', feed([B, C], 8, 0)],
      ['GET /{db}/_changes?since=%22{six}%22', feed([B, C], 8, 0)],
    ],
  },
  {
    of: '5.1 since',
    says: 'accepts now, with or without quotes',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?since=now', feed([], 8, 0)],
      ['GET /{db}/_changes?since=%22now%22', feed([], 8, 0)],
    ],
  },
  {
    of: '5.1 since',
    says: 'a bare number, which CouchDB 3.5 refuses (docs/compatibility.md)',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?since=6', feed([B, C], 8, 0)],
      ['GET /{db}/_changes?since=%227%22', feed([C], 8, 0)],
    ],
  },
  {
    of: '5.1 since',
    says: 'no other text',
    ask: 'GET /{db}/_changes?since=yesterday',
    answer: malformed("Malformed sequence supplied in 'since' parameter."),
  },
  {
    of: '5.1 last-event-id',
    says: 'the same as since',
    given: [...THREE, SIX],
    steps: [
      ['GET /{db}/_changes?last-event-id={six}', feed([B, C], 8, 0)],
      ['GET /{db}/_changes?last-event-id={six}&feed=eventsource&timeout=0', events(B, C)],
    ],
  },
  {
    of: '5.1 last-event-id',
    says: 'as a header, which wins over since, for event streams only',
    given: [...THREE, SIX],
    steps: [
      [
        ['GET /{db}/_changes?feed=eventsource&timeout=0', { headers: { 'Last-Event-ID': '{six}' } }],
        events(B, C),
      ],
      [
        [
          'GET /{db}/_changes?feed=eventsource&timeout=0&since=0',
          { headers: { 'Last-Event-ID': '"{six}"' } },
        ],
        events(B, C),
      ],
      [['GET /{db}/_changes', { headers: { 'Last-Event-ID': '{six}' } }], feed([A, B, C], 8, 0)],
    ],
  },
  {
    of: '5.1 limit',
    says: 'limits the number of rows',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?limit=2', feed([A, B], 7, 1)],
      ['GET /{db}/_changes?limit=3', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?limit=1000000000000', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?limit=0', feed([], 0, 3)],
    ],
  },
  {
    of: '5.1 limit',
    says: 'a number that is not negative',
    steps: [
      ['GET /{db}/_changes?limit=-1', malformed('The limit value should be a non-negative integer')],
      ['GET /{db}/_changes?limit=few', malformed('The limit parameter should be a non-negative integer')],
    ],
  },
  {
    of: '5.1 descending',
    says: 'lists the newest first, whatever since is',
    given: [...THREE, SIX],
    steps: [
      ['GET /{db}/_changes?descending=true', feed([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=true&since={six}', feed([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=true&since=now', feed([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=TRUE', feed([A, B, C], 8, 0)],
    ],
  },
  {
    of: '5.1 style',
    says: 'main_only, the default, lists the winner, all_docs all leaves',
    given: [stored({ _id: 'x', _rev: '1-a' }, { _id: 'x', _rev: '2-b' })],
    steps: [
      ['GET /{db}/_changes', feed([{ seq: /^1-/, id: 'x', changes: [{ rev: '2-b' }] }], 1, 0)],
      [
        'GET /{db}/_changes?style=main_only',
        feed([{ seq: /^1-/, id: 'x', changes: [{ rev: '2-b' }] }], 1, 0),
      ],
      [
        'GET /{db}/_changes?style=all_docs',
        feed([{ seq: /^1-/, id: 'x', changes: [{ rev: '2-b' }, { rev: '1-a' }] }], 1, 0),
      ],
    ],
  },
  {
    of: '5.1 style',
    says: 'refuses any other value; CouchDB fails with 500 here',
    ask: 'GET /{db}/_changes?style=some_docs',
    answer: malformed('Supported `style` values: main_only, all_docs'),
  },
  {
    of: '5.1 include_docs',
    says: 'adds the winner',
    given: [stored({ _id: 'x', _rev: '1-a', n: 1 })],
    steps: [
      [
        'GET /{db}/_changes?include_docs=true',
        feed(
          [{ seq: /^1-/, id: 'x', changes: [{ rev: '1-a' }], doc: { _id: 'x', _rev: '1-a', n: 1 } }],
          1,
          0,
        ),
      ],
      ['GET /{db}/_changes?include_docs=1', feed([{ seq: /^1-/, id: 'x', changes: [{ rev: '1-a' }] }], 1, 0)],
    ],
  },
  {
    of: '5.1 conflicts',
    says: 'adds _conflicts to the document',
    given: [stored({ _id: 'x', _rev: '1-a' }, { _id: 'x', _rev: '2-b' })],
    steps: [
      [
        'GET /{db}/_changes?include_docs=true&conflicts=true',
        { like: { results: [{ doc: { _rev: '2-b', _conflicts: ['1-a'] } }] } },
      ],
      ['GET /{db}/_changes?include_docs=true', { like: { results: [{ doc: { _conflicts: undefined } }] } }],
      ['GET /{db}/_changes?conflicts=true', { like: { results: [{ doc: undefined }] } }],
    ],
  },
  {
    of: '5.1 attachments',
    says: 'adds their contents to the document',
    given: [put('x', HELLO)],
    steps: [
      [
        'GET /{db}/_changes?include_docs=true',
        { like: { results: [{ doc: { _attachments: { hello: { stub: true, data: undefined } } } }] } },
      ],
      [
        'GET /{db}/_changes?include_docs=true&attachments=true',
        { like: { results: [{ doc: { _attachments: { hello: { stub: undefined, data: 'aGVsbG8=' } } } }] } },
      ],
    ],
  },
  {
    of: '5.1 view',
    says: 'the view of filter=_view, and else nothing',
    given: [
      put('_design/d', { views: { v: { map: '(doc) => { if (doc.n) emit(doc.n) }' } } }),
      put('x', { n: 1 }),
      put('y'),
    ],
    steps: [
      ['GET /{db}/_changes?filter=_view&view=d/v', { ids: ['x'] }],
      ['GET /{db}/_changes?view=d/v', { ids: ['_design/d', 'x', 'y'] }],
    ],
  },
  {
    of: '5.1 filter',
    says: 'none by default, also when it is empty',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?filter=', feed([A, B, C], 8, 0)],
      ['GET /{db}/_changes?filter=_design', feed([], 8, 0)],
    ],
  },
  {
    of: '5.1 heartbeat',
    says: 'a newline after so many milliseconds of silence',
    ask: ['GET /{db}/_changes?feed=continuous&heartbeat=20', { until: /\n\n\n/ }],
    answer: { text: /^\n{3,}$/, took: [50, 20_000] },
  },
  {
    of: '5.1 heartbeat',
    says: 'true stands for a minute, and no more than chttpd/changes_timeout is taken',
    given: [set('chttpd/changes_timeout', '20')],
    steps: [
      [['GET /{db}/_changes?feed=longpoll&heartbeat=true', { until: /\n\n\n/ }], { took: [30, 20_000] }],
      [['GET /{db}/_changes?feed=longpoll&heartbeat=90000', { until: /\n\n\n/ }], { took: [30, 20_000] }],
      [unset('chttpd/changes_timeout'), {}],
    ],
  },
  {
    of: '5.1 heartbeat',
    says: 'a positive number',
    steps: [
      ...['-1', '0'].map(
        (value) =>
          [
            `GET /{db}/_changes?heartbeat=${value}`,
            malformed('The heartbeat value should be a positive integer (in milliseconds).'),
          ] as const,
      ),
      ...['foo', 'false', ''].map(
        (value) =>
          [
            `GET /{db}/_changes?heartbeat=${value}`,
            malformed('Invalid heartbeat value. Expecting a positive integer value (in milliseconds).'),
          ] as const,
      ),
    ],
  },
  {
    of: '5.1 timeout',
    says: 'limits the wait without a change',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?feed=longpoll&since=now&timeout=60', { ...feed([], 8, 0), took: [55, 20_000] }],
      ['GET /{db}/_changes?feed=continuous&timeout=60', { ...lines([A, B, C], 8, 0), took: [55, 20_000] }],
      ['GET /{db}/_changes?feed=eventsource&timeout=60', { ...events(A, B, C), took: [55, 20_000] }],
      ['GET /{db}/_changes?feed=continuous&timeout=0', { ...lines([A, B, C], 8, 0), took: [0, 20_000] }],
    ],
  },
  {
    of: '5.1 timeout',
    says: 'no more than chttpd/changes_timeout is taken',
    given: [set('chttpd/changes_timeout', '20')],
    steps: [
      ['GET /{db}/_changes?feed=longpoll', { ...feed([], 0, 0), took: [15, 20_000] }],
      ['GET /{db}/_changes?feed=longpoll&timeout=90000', { ...feed([], 0, 0), took: [15, 20_000] }],
      [unset('chttpd/changes_timeout'), {}],
    ],
  },
  {
    of: ['5.1 timeout', '5.1 heartbeat'],
    says: 'a heartbeat turns the time-out off',
    ask: ['GET /{db}/_changes?feed=longpoll&timeout=1&heartbeat=10', { until: /\n{6}/ }],
    answer: { text: /^\{"results":\[\n{6,}$/ },
  },
  {
    of: '5.1 timeout',
    says: 'a number that is not negative',
    steps: [
      ['GET /{db}/_changes?timeout=-1', malformed('The timeout value should be a non-negative integer')],
      [
        'GET /{db}/_changes?timeout=long',
        malformed('The timeout parameter should be a non-negative integer'),
      ],
    ],
  },
  {
    of: '5.1 seq_interval',
    says: 'only every n-th row has a seq',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?seq_interval=1', feed([A, B, C], 8, 0)],
      [
        'GET /{db}/_changes?seq_interval=3&limit=3',
        feed([A, { ...B, seq: null }, { ...C, seq: null }], 8, 0),
      ],
      [
        'GET /{db}/_changes?seq_interval=2&feed=continuous&limit=3',
        lines([{ ...A, seq: null }, B, { ...C, seq: null }], 8, 0),
      ],
    ],
  },
  {
    of: '5.1 seq_interval',
    says: 'a positive number',
    steps: ['0', '-2', 'x', ''].map((value) => [
      `GET /{db}/_changes?seq_interval=${value}`,
      malformed('invalid_seq_interval'),
    ]),
  },
  {
    of: '5.1 others',
    says: 'are ignored, and seen by filter functions',
    given: [put('_design/d', BY_TYPE), put('x', { type: 'note' }), put('y', { type: 'file' })],
    steps: [
      ['GET /{db}/_changes?type=note&_nonce=1', { ids: ['_design/d', 'x', 'y'] }],
      ['GET /{db}/_changes?filter=d/byType&type=note', { ids: ['x'] }],
      ['GET /{db}/_changes?filter=d/byType&Type=note', { ids: ['_design/d'] }],
    ],
  },
  {
    of: ['5.1 others', '5.1 style'],
    says: 'several parameters together, with one that is unknown',
    given: THREE,
    ask: 'GET /{db}/_changes?style=all_docs&include_docs=true&conflicts=true&attachments=true&_nonce=1',
    answer: {
      like: {
        results: [A, B, C].map(({ seq, id }) => ({ seq, id, doc: { _id: id } })),
        last_seq: /^8-/,
        pending: 0,
      },
    },
  },
  {
    of: '5.1 names',
    says: 'count in any case',
    given: THREE,
    ask: 'GET /{db}/_changes?Feed=longpoll&LIMIT=1&Descending=true&SINCE=now',
    answer: feed([C], 8, 2),
  },
]
