/** The rows of a feed, and the bytes around them: protocol.md 5.2, 5.3. */
import { gzipSync } from 'node:zlib'
import { A, B, C, events, feed, lines, THREE } from './feeds.ts'
import { put, type Row, stored } from './table.ts'

/** Leaves of one document: the winner is 2-c. */
const LEAVES = stored(
  { _id: 'x', _revisions: { start: 2, ids: ['b', 'a'] } },
  { _id: 'x', _revisions: { start: 2, ids: ['c', 'a'] } },
  { _id: 'x', _revisions: { start: 2, ids: ['d', 'a'] }, _deleted: true },
)

/** 257 MiB as gzip: more than a document holds as base64. */
const HUGE = Buffer.concat(Array<Buffer>(257).fill(gzipSync(Buffer.alloc(1024 * 1024))))

const TOKEN = '"\\d+-[0-9A-Za-z_-]+"'
const ROW = `\\{"seq":${TOKEN},"id":"\\w","changes":\\[\\{"rev":"[^"]+"\\}\\](,"deleted":true)?\\}`
/** The rows between the head and the tail of a normal feed. */
const whole = (rows: string, last: number, pending: number) =>
  new RegExp(`^\\{"results":\\[\\n${rows}\\n\\],\\n"last_seq":"${last}-[^"]+","pending":${pending}\\}\\n\\n$`)

export const rows: readonly Row[] = [
  {
    of: '5.2 one row a document',
    says: 'is listed at its latest sequence',
    given: [
      put('x', {}, { keep: { rev: 'rev' } }),
      put('y'),
      put('x', { _rev: '{rev}' }, { keep: { new: 'rev' } }),
    ],
    ask: 'GET /{db}/_changes',
    answer: {
      ids: ['y', 'x'],
      like: { results: [{ seq: /^2-/ }, { seq: /^3-/, changes: [{ rev: '{new}' }] }] },
    },
  },
  {
    of: '5.2 order',
    says: 'by the number of the change, not by id',
    given: [put('b'), put('c'), put('a')],
    ask: 'GET /{db}/_changes',
    answer: { ids: ['b', 'c', 'a'] },
  },
  {
    of: '5.2 deleted',
    says: 'is set only if the winner is deleted',
    given: [LEAVES, stored({ _id: 'y', _rev: '1-a', _deleted: true })],
    ask: 'GET /{db}/_changes',
    answer: feed(
      [
        { seq: /^1-/, id: 'x', changes: [{ rev: '2-c' }] },
        { seq: /^2-/, id: 'y', changes: [{ rev: '1-a' }], deleted: true },
      ],
      2,
      0,
    ),
  },
  {
    of: '5.2 changes',
    says: 'the winner, then the other leaves, live ones first, deleted ones too',
    given: [LEAVES],
    ask: 'GET /{db}/_changes?style=all_docs',
    answer: feed([{ seq: /^1-/, id: 'x', changes: [{ rev: '2-c' }, { rev: '2-b' }, { rev: '2-d' }] }], 1, 0),
  },
  {
    of: '5.2 doc',
    says: 'of a deleted document its tombstone, with what it holds',
    given: [stored({ _id: 'x', _rev: '1-a', _deleted: true, why: 'old' })],
    ask: 'GET /{db}/_changes?include_docs=true',
    answer: { like: { results: [{ doc: { _id: 'x', _rev: '1-a', _deleted: true, why: 'old' } }] } },
  },
  {
    of: '5.2 error',
    says: 'in place of a document that cannot be read; the other rows are not held up',
    given: [['PUT /{db}/x/a', { body: HUGE, headers: { 'Content-Encoding': 'gzip' } }], put('y')],
    ask: 'GET /{db}/_changes?include_docs=true&attachments=true',
    answer: {
      ids: ['x', 'y'],
      like: { results: [{ doc: undefined, error: 'attachment_too_large' }, { doc: { _id: 'y' } }] },
    },
  },
  {
    of: '5.2 kinds of documents',
    says: 'design documents are in the feed, _local ones are not',
    given: [put('_design/d'), put('_local/l'), put('x')],
    ask: 'GET /{db}/_changes',
    answer: { ids: ['_design/d', 'x'] },
  },
  {
    of: '5.3 normal',
    says: 'rows joined by a comma and a line break; a blank line at the end',
    isDirect: true,
    given: THREE,
    ask: 'GET /{db}/_changes',
    answer: {
      text: whole(`${ROW},\\r\\n${ROW},\\r\\n${ROW}`, 8, 0),
      headers: {
        'content-type': 'application/json',
        'transfer-encoding': 'chunked',
        etag: /^"[^"]+"$/,
        'cache-control': 'must-revalidate, no-transform',
        'x-accel-buffering': 'no',
        server: /CouchDB/,
      },
    },
  },
  {
    of: '5.3 longpoll',
    says: 'answers like normal, but without an ETag',
    given: THREE,
    ask: 'GET /{db}/_changes?feed=longpoll',
    answer: {
      text: whole(`${ROW},\\r\\n${ROW},\\r\\n${ROW}`, 8, 0),
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked', etag: undefined },
    },
  },
  {
    of: '5.3 longpoll',
    says: 'its head comes at once; while it waits, heartbeats stand before the first row',
    given: THREE,
    steps: [
      [
        ['GET /{db}/_changes?feed=longpoll&since=now&heartbeat=10', { until: /\n\n\n/ }],
        { text: /^\{"results":\[\n\n\n/ },
      ],
      [
        ['GET /{db}/_changes?feed=longpoll&since=now&heartbeat=10', { meanwhile: [put('x')] }],
        { ids: ['x'], text: /^\{"results":\[\n+\{"seq":"9-/ },
      ],
    ],
  },
  {
    of: '5.3 continuous',
    says: 'a row a line, and at its end where it stood',
    given: THREE,
    ask: 'GET /{db}/_changes?feed=continuous&limit=3',
    answer: {
      text: new RegExp(`^(${ROW}\\n){3}\\{"last_seq":${TOKEN},"pending":0\\}\\n$`),
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked', etag: undefined },
    },
  },
  {
    of: '5.3 continuous',
    says: 'a heartbeat is an empty line',
    given: THREE,
    ask: ['GET /{db}/_changes?feed=continuous&since=now&heartbeat=10', { until: /\n\n/ }],
    answer: { text: /^\n\n+$/ },
  },
  {
    of: '5.3 eventsource',
    says: 'an event a row, with its place as id; no event ends it',
    given: THREE,
    ask: 'GET /{db}/_changes?feed=eventsource&limit=3',
    answer: {
      text: new RegExp(`^(data: \\{"seq":(${TOKEN}).*\\}\\nid: \\2\\n\\n){3}$`),
      headers: {
        'content-type': 'text/event-stream',
        'cache-control': 'no-cache, no-transform',
        etag: undefined,
      },
    },
  },
  {
    of: '5.3 eventsource',
    says: 'a heartbeat is an event of its own',
    ask: ['GET /{db}/_changes?feed=eventsource&since=now&heartbeat=10', { until: /(heartbeat.*){2}\n\n/s }],
    answer: { text: /^(:\n\n)?(event: heartbeat\ndata: \n\n){2,}/ },
  },
  {
    of: '5.3 empty',
    says: 'sends an empty line in place of rows',
    ask: 'GET /{db}/_changes',
    answer: { text: whole('', 0, 0) },
  },
  {
    of: '5.3 pending',
    says: 'counts the rows behind last_seq, before filtering',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?limit=1', feed([A], 6, 2)],
      ['GET /{db}/_changes?limit=2', feed([A, B], 7, 1)],
      ['GET /{db}/_changes?limit=1&feed=longpoll', feed([A], 6, 2)],
      ['GET /{db}/_changes?limit=1&feed=continuous', lines([A], 6, 2)],
      [['POST /{db}/_changes?filter=_doc_ids&limit=1', { json: { doc_ids: ['a', 'c'] } }], { ids: ['a'] }],
    ],
  },
  {
    of: '5.3 last_seq',
    says: 'where the last row stood, or, when there is none, where the feed ends',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?limit=2', { like: { last_seq: /^7-/ } }],
      ['GET /{db}/_changes?since=8', feed([], 8, 0)],
      ['GET /{db}/_changes?filter=_design', feed([], 8, 0)],
      ['GET /{db}/_changes?descending=true', feed([C, B, A], 6, 0)],
      ['GET /{db}/_changes?descending=true&limit=2', feed([C, B], 7, 1)],
    ],
  },
  {
    of: '5.3 limit=0',
    says: 'normal: no rows, the since that was asked, and how many are behind it',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?limit=0', feed([], 0, 3)],
      ['GET /{db}/_changes?limit=0&since=6', feed([], 6, 2)],
      ['GET /{db}/_changes?limit=0&since=now', feed([], 8, 0)],
    ],
  },
  {
    of: '5.3 limit=0',
    says: 'continuous and eventsource end at once, a longpoll waits for its time-out',
    given: THREE,
    steps: [
      ['GET /{db}/_changes?limit=0&feed=continuous', lines([], 0, 3)],
      ['GET /{db}/_changes?limit=0&feed=eventsource', { ...events(), text: '' }],
      ['GET /{db}/_changes?limit=0&feed=longpoll&timeout=60', { ids: [], took: [55, 20_000] }],
    ],
  },
]
