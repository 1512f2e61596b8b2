/** `_db_updates`: protocol.md 4.9. It also lists the databases of other rows, so each row begins at `now`. */
import type { Answer } from './answers.ts'
import { type Ask, failed, type Row } from './table.ts'

const NOW: Ask = ['GET /_db_updates?since=now', { keep: { now: 'last_seq' } }]
const MAKE = 'PUT /{db}-a'
const DROP = 'DELETE /{db}-a'
const made = { db_name: '{db}-a', type: 'created', seq: /^\d+-[\w-]+$/ }
const dropped = { ...made, type: 'deleted' }
const invalid: Answer = failed(400, 'bad_request', 'invalid_integer')

export const DB_UPDATES: readonly Row[] = [
  {
    of: '4.9 rows',
    says: 'one for each kind of thing that happened to a database, the latest',
    given: [NOW, MAKE, DROP, MAKE, DROP],
    ask: 'GET /_db_updates?since={now}',
    answer: { json: { results: [made, dropped], last_seq: /^\d+-/ } },
  },
  {
    of: '4.9 rows',
    says: 'as text',
    given: [NOW, MAKE, DROP],
    ask: 'GET /_db_updates?since={now}',
    answer: {
      text: /^\{"results":\[\n\{"db_name":"[^"]+","type":"created","seq":"[^"]+"\},\r?\n\{.*\}\n\],\n"last_seq":"[^"]+"\}\n+$/,
    },
  },
  {
    of: '4.9 rows',
    says: 'updated, about a second after a write',
    given: [MAKE, NOW, ['PUT /{db}-a/x', { json: {} }]],
    steps: [
      [
        'GET /_db_updates?since={now}&feed=longpoll',
        { like: { results: [{ db_name: '{db}-a', type: 'updated' }] } },
      ],
      [DROP, {}],
    ],
  },
  {
    of: '4.9 feed',
    says: 'normal, longpoll, continuous, eventsource',
    given: [NOW, MAKE, DROP],
    steps: [
      ['GET /_db_updates?since={now}&feed=normal', { json: { results: [made, dropped], last_seq: /./ } }],
      ['GET /_db_updates?since={now}&feed=longpoll', { json: { results: [made, dropped], last_seq: /./ } }],
      [
        'GET /_db_updates?since={now}&feed=continuous&timeout=0',
        { lines: [made, dropped, { last_seq: /./ }] },
      ],
      [
        'GET /_db_updates?since={now}&feed=eventsource&timeout=0',
        { text: /data: \{"db_name":"[^"]+","type":"created","seq":"([^"]+)"\}\nid: "\1"\n\n/ },
      ],
      [
        'GET /_db_updates?feed=other',
        failed(400, 'bad_request', 'Supported `feed` types: normal, continuous, longpoll, eventsource'),
      ],
    ],
  },
  {
    of: '4.9 feed',
    says: 'a longpoll waits for the next change',
    given: [NOW],
    steps: [
      [
        ['GET /_db_updates?since={now}&feed=longpoll', { meanwhile: [MAKE] }],
        { like: { results: [{ db_name: '{db}-a', type: 'created' }] } },
      ],
      [DROP, {}],
    ],
  },
  {
    of: '4.9 since',
    says: 'all from 0 on, nothing but what comes from now on, or what comes after a place',
    given: [NOW, MAKE, ['GET /_db_updates?since={now}', { keep: { place: 'results.0.seq' } }], DROP],
    steps: [
      ['GET /_db_updates?since={place}', { json: { results: [dropped], last_seq: /./ } }],
      ['GET /_db_updates?since=now', { json: { results: [], last_seq: /./ } }],
      ['GET /_db_updates', { text: /"db_name":"row-0","type":"created"/ }],
      [
        'GET /_db_updates?since=junk',
        failed(400, 'bad_request', "Malformed sequence supplied in 'since' parameter."),
      ],
    ],
  },
  {
    of: '4.9 limit',
    says: 'limits the number of rows',
    given: [NOW, MAKE, DROP],
    steps: [
      ['GET /_db_updates?since={now}&limit=1', { json: { results: [made], last_seq: /./ } }],
      ['GET /_db_updates?since={now}&limit=0', { json: { results: [], last_seq: '{now}' } }],
    ],
  },
  {
    of: '4.9 descending',
    says: 'lists the newest first',
    given: [MAKE, DROP],
    ask: 'GET /_db_updates?descending=true&limit=2',
    answer: { json: { results: [dropped, made], last_seq: /./ } },
  },
  {
    of: '4.9 timeout',
    says: 'how long a waiting feed waits, in milliseconds',
    given: [NOW],
    steps: [
      [
        'GET /_db_updates?since={now}&feed=longpoll&timeout=50',
        { json: { results: [], last_seq: '{now}' }, took: [45, 5_000] },
      ],
    ],
  },
  {
    of: '4.9 heartbeat',
    says: 'a newline every so many milliseconds, or every minute for true',
    steps: [
      [
        ['GET /_db_updates?feed=continuous&since=now&heartbeat=20', { until: /^\n\n\n/ }],
        { text: /^\n+$/, headers: { 'content-type': 'application/json' } },
      ],
      [
        [
          'GET /_db_updates?feed=continuous&since=now&heartbeat=true',
          { meanwhile: [MAKE], until: /created/ },
        ],
        { text: /^\{/ },
      ],
      [DROP, {}],
    ],
  },
  {
    of: '4.9 bad numbers',
    says: 'refused',
    steps: [
      'limit=x',
      'limit=-1',
      'timeout=x',
      'timeout=1.5',
      'timeout=1.0',
      'heartbeat=x',
      'heartbeat=-1',
    ].map((query) => [`GET /_db_updates?${query}`, invalid]),
  },
  {
    of: '4.9 _global_changes',
    says: 'is not needed (docs/compatibility.md)',
    steps: [
      ['GET /_global_changes', { status: 404 }],
      ['GET /_db_updates?since=now', {}],
    ],
  },
]
