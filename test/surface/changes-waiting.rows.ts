/** When a feed waits and when it ends: protocol.md 5.4. */
import { A, B, C, events, feed, lines, SIX, THREE } from './feeds.ts'
import { failed, put, type Row, stored } from './table.ts'

const D = { seq: /^9-/, id: 'd', changes: [{ rev: '1-d' }] }
const WRITE_D = stored({ _id: 'd', _rev: '1-d' })

export const rows: readonly Row[] = [
  {
    of: '5.4 normal',
    says: 'ends after all changes have been sent',
    given: THREE,
    ask: 'GET /{db}/_changes?heartbeat=60000',
    answer: feed([A, B, C], 8, 0),
  },
  {
    of: '5.4 longpoll',
    says: 'answers at once with all changes',
    given: [...THREE, SIX],
    steps: [
      ['GET /{db}/_changes?feed=longpoll&since={six}', feed([B, C], 8, 0)],
      ['GET /{db}/_changes?feed=longpoll&limit=2', feed([A, B], 7, 1)],
      ['GET /{db}/_changes?feed=longpoll&heartbeat=60000', feed([A, B, C], 8, 0)],
    ],
  },
  {
    of: '5.4 longpoll',
    says: 'waits for a change',
    given: THREE,
    ask: ['GET /{db}/_changes?feed=longpoll&since=now', { meanwhile: [put('_local/x'), WRITE_D] }],
    answer: feed([D], 9, 0),
  },
  {
    of: '5.4 longpoll',
    says: 'without one it ends at its time-out, with 200 and no rows',
    given: THREE,
    ask: 'GET /{db}/_changes?feed=longpoll&since=now&timeout=50',
    answer: { ...feed([], 8, 0), took: [45, 20_000] },
  },
  {
    of: '5.4 longpoll',
    says: 'with a heartbeat it has no time-out (but settee’s own of 90 s, docs/compatibility.md)',
    ask: ['GET /{db}/_changes?feed=longpoll&heartbeat=10&timeout=10', { until: /\n{8}/ }],
    answer: { text: /^\{"results":\[\n+$/ },
  },
  {
    of: '5.4 longpoll',
    says: 'goes on waiting over changes that its filter keeps back',
    ask: [
      'GET /{db}/_changes?feed=longpoll&filter=_design&heartbeat=60000',
      { meanwhile: [put('x'), put('_local/y'), put('_design/d'), put('z')] },
    ],
    answer: { ids: ['_design/d'] },
  },
  {
    of: '5.4 continuous',
    says: 'ends when limit rows were sent, of which some may still have to come',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?feed=continuous&limit=2&heartbeat=60000', lines([A, B], 7, 1)],
      [
        ['GET /{db}/_changes?feed=continuous&limit=4&heartbeat=60000', { meanwhile: [WRITE_D] }],
        lines([A, B, C, D], 9, 0),
      ],
    ],
  },
  {
    of: '5.4 eventsource',
    says: 'ends when limit rows were sent, of which some may still have to come',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?feed=eventsource&limit=2&heartbeat=60000', events(A, B)],
      [
        ['GET /{db}/_changes?feed=eventsource&limit=4&heartbeat=60000', { meanwhile: [WRITE_D] }],
        events(A, B, C, D),
      ],
    ],
  },
  {
    of: ['5.4 continuous', '5.4 eventsource'],
    says: 'end when nothing has changed for the time-out',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?feed=continuous&timeout=50', { ...lines([A, B, C], 8, 0), took: [45, 20_000] }],
      ['GET /{db}/_changes?feed=eventsource&timeout=50', { ...events(A, B, C), took: [45, 20_000] }],
    ],
  },
  {
    of: ['5.4 continuous', '5.4 eventsource'],
    says: 'with a heartbeat they never end by themselves',
    steps: [
      [['GET /{db}/_changes?feed=continuous&heartbeat=10&timeout=10', { until: /\n{5}/ }], { text: /^\n+$/ }],
      [
        ['GET /{db}/_changes?feed=eventsource&heartbeat=10&timeout=10', { until: /(heartbeat.*){5}/s }],
        { ids: [] },
      ],
    ],
  },
  {
    of: '5.4 descending',
    says: 'a feed of any kind ends when it has caught up',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?descending=true&feed=longpoll&heartbeat=60000', feed([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=true&feed=continuous&heartbeat=60000', lines([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=true&feed=eventsource&heartbeat=60000', events(C, B, A)],
    ],
  },
  {
    of: '5.4 timeout=0',
    says: 'ends after the existing changes',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?feed=longpoll&since=now&timeout=0', feed([], 8, 0)],
      ['GET /{db}/_changes?feed=continuous&timeout=0', lines([A, B, C], 8, 0)],
      ['GET /{db}/_changes?feed=eventsource&since=7&timeout=0', events(C)],
    ],
  },
  {
    of: '5.4 heartbeat',
    says: 'continues after a row',
    ask: [
      'GET /{db}/_changes?feed=continuous&heartbeat=10',
      { meanwhile: [stored({ _id: 'x', _rev: '1-a' })], until: /\}\n\n/ },
    ],
    answer: { ids: ['x'], text: /\}\n\n/ },
  },
  {
    of: '5.4 database deleted',
    says: 'feeds end in order, and the next request gets 404',
    given: THREE,
    steps: [
      [
        ['GET /{db}/_changes?feed=longpoll&since=now&heartbeat=60000', { meanwhile: ['DELETE /{db}'] }],
        feed([], 8, 0),
      ],
      ['GET /{db}/_changes', failed(404, 'not_found', 'Database does not exist.')],
      ['PUT /{db}', { status: 201 }],
      [
        ['GET /{db}/_changes?feed=continuous&heartbeat=60000', { meanwhile: ['DELETE /{db}'] }],
        lines([], 0, 0),
      ],
      ['PUT /{db}', { status: 201 }],
      [['GET /{db}/_changes?feed=eventsource&heartbeat=60000', { meanwhile: ['DELETE /{db}'] }], { ids: [] }],
    ],
  },
  {
    of: '5.4 since=now',
    says: 'a normal feed has no rows, the others wait for new ones',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?since=now', feed([], 8, 0)],
      [
        ['GET /{db}/_changes?feed=longpoll&since=now&heartbeat=60000', { meanwhile: [WRITE_D] }],
        feed([D], 9, 0),
      ],
      [
        [
          'GET /{db}/_changes?feed=continuous&since=now&limit=1&heartbeat=60000',
          { meanwhile: [stored({ _id: 'e', _rev: '1-e' })] },
        ],
        lines([{ seq: /^10-/, id: 'e', changes: [{ rev: '1-e' }] }], 10, 0),
      ],
    ],
  },
  {
    of: '5.4 ETag',
    says: 'of a normal feed: 304 until the database changes',
    given: [...THREE, ['GET /{db}/_changes', { keep: { etag: 'header etag' } }]],
    steps: [
      ...['{etag}', '"x", {etag}'].map(
        (tags) =>
          [
            ['GET /{db}/_changes', { headers: { 'If-None-Match': tags } }],
            { status: 304, text: '', headers: { etag: '{etag}' } },
          ] as const,
      ),
      [['GET /{db}/_changes?limit=1', { headers: { 'If-None-Match': '{etag}' } }], feed([A], 6, 2)],
      [
        ['GET /{db}/_changes?feed=longpoll', { headers: { 'If-None-Match': '{etag}' } }],
        feed([A, B, C], 8, 0),
      ],
      [put('d'), { status: 201 }],
      [['GET /{db}/_changes', { headers: { 'If-None-Match': '{etag}' } }], { ids: ['a', 'b', 'c', 'd'] }],
    ],
  },
  {
    of: '5.4 POST without body',
    says: 'answers like GET',
    given: THREE,
    steps: [
      [['POST /{db}/_changes', { headers: { 'Content-Type': 'application/json' } }], feed([A, B, C], 8, 0)],
      [
        ['POST /{db}/_changes?limit=1', { headers: { 'Content-Type': 'application/json' }, body: '' }],
        feed([A], 6, 2),
      ],
    ],
  },
  {
    of: '5.4 HEAD',
    says: 'the head alone, also of a feed that would wait',
    given: THREE,
    steps: [
      ['HEAD /{db}/_changes', { text: '', headers: { 'content-type': 'application/json', etag: /"/ } }],
      [
        'HEAD /{db}/_changes?feed=longpoll&since=now&heartbeat=60000',
        { text: '', headers: { 'content-type': 'application/json' } },
      ],
      [
        'HEAD /{db}/_changes?feed=continuous&heartbeat=60000',
        { text: '', headers: { 'content-type': 'application/json' } },
      ],
      [
        'HEAD /{db}/_changes?feed=eventsource&heartbeat=60000',
        { text: '', headers: { 'content-type': 'text/event-stream' } },
      ],
      ['HEAD /{db}/_changes?since=yesterday', { status: 400, text: '' }],
    ],
  },
]
