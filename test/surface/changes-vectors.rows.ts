/** The vectors of protocol.md 19.5, in their order: `a` at 6, `b`, which is deleted, at 7, and `c` at 8. */

import type { Answer } from './answers.ts'
import { A, B, C, feed, lines, THREE } from './feeds.ts'
import { type Ask, failed, type Row } from './table.ts'

function vector(number: number, says: string, ask: Ask, answer: Answer): Row {
  return { of: `19.5 #${number}`, says, given: THREE, ask, answer }
}

function query(number: number, text: string, answer: Answer): Row {
  return vector(number, text === '' ? 'none' : text, `GET /{db}/_changes?${text}`, answer)
}

const JSON_TYPE = { 'Content-Type': 'application/json' }

export const rows: readonly Row[] = [
  query(1, '', feed([A, B, C], 8, 0)),
  query(2, 'limit=1', feed([A], 6, 2)),
  query(3, 'limit=0', feed([], 0, 3)),
  query(4, 'since=now', feed([], 8, 0)),
  query(5, 'descending=true', feed([C, B, A], 6, 0)),
  query(6, 'descending=true&limit=1', feed([C], 8, 2)),
  query(7, 'descending=true&limit=0', feed([], 8, 3)),
  query(8, 'seq_interval=3', feed([{ ...A, seq: null }, B, { ...C, seq: null }], 8, 0)),
  query(9, 'feed=longpoll', feed([A, B, C], 8, 0)),
  query(10, 'feed=longpoll&since=now&timeout=10', { ...feed([], 8, 0), took: [5, 20_000] }),
  query(11, 'feed=continuous&limit=3', lines([A, B, C], 8, 0)),
  query(12, 'feed=continuous&limit=4&timeout=600', { ...lines([A, B, C], 8, 0), took: [590, 20_000] }),
  query(
    13,
    'heartbeat=-1',
    failed(400, 'bad_request', 'The heartbeat value should be a positive integer (in milliseconds).'),
  ),
  query(
    13,
    'heartbeat=foo',
    failed(
      400,
      'bad_request',
      'Invalid heartbeat value. Expecting a positive integer value (in milliseconds).',
    ),
  ),
  vector(
    14,
    'a POST of []',
    ['POST /{db}/_changes', { headers: JSON_TYPE, body: '[]' }],
    failed(400, 'bad_request', 'Request body must be a JSON object'),
  ),
  vector(
    14,
    'a POST of bad JSON',
    ['POST /{db}/_changes', { headers: JSON_TYPE, body: '{"doc_ids":[' }],
    failed(400, 'bad_request', 'invalid UTF-8 JSON'),
  ),
]
