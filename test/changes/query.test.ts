import t from 'tap'
import { readFeedQuery } from '../../src/changes/changes-query.ts'
import { CouchError } from '../../src/core/errors.ts'

const MAX_WAIT = 60_000

function read(search: string, lastEventId?: string) {
  return readFeedQuery(new URLSearchParams(search), MAX_WAIT, lastEventId)
}

function reasonOf(act: () => unknown): unknown {
  try {
    act()
    return 'nothing was thrown'
  } catch (thrown) {
    return thrown instanceof CouchError && thrown.status === 400 ? thrown.reason : thrown
  }
}

t.test('parameters have defaults', async (t) => {
  t.same(read(''), {
    kind: 'normal',
    style: 'main_only',
    descending: false,
    includeDocs: false,
    conflicts: false,
    attachments: false,
    attEncodingInfo: false,
    seqInterval: 1,
    since: '0',
    limit: Infinity,
    heartbeat: null,
    timeout: 60_000,
    filter: '',
    docIds: undefined,
    view: undefined,
  })
})

t.test('parameters are read and limited', async (t) => {
  const cases: [search: string, lastEventId: string | undefined, expected: object][] = [
    ['feed=live', undefined, { kind: 'continuous' }],
    ['FEED=longpoll&Include_Docs=true&LIMIT=3', undefined, { kind: 'longpoll', includeDocs: true, limit: 3 }],
    [
      'include_docs=True&conflicts=1&descending=false',
      undefined,
      { includeDocs: false, conflicts: false, descending: false },
    ],
    ['limit=1&limit=2', undefined, { limit: 2 }],
    ['heartbeat=true', undefined, { heartbeat: 60_000 }],
    ['heartbeat=10000', undefined, { heartbeat: 10_000 }],
    ['heartbeat=100000&timeout=100000', undefined, { heartbeat: 60_000, timeout: 60_000 }],
    ['timeout=0', undefined, { timeout: 0 }],
    ['since="now"', undefined, { since: 'now' }],
    ['since="7-x"', undefined, { since: '7-x' }],
    ['last-event-id=7-x', undefined, { since: '7-x' }],
    ['feed=eventsource&since=1', '"7-x"', { since: '7-x' }],
    ['since=1', '7-x', { since: '1' }],
    ['style=all_docs&seq_interval=5&_nonce=12', undefined, { style: 'all_docs', seqInterval: 5 }],
    ['limit=99999999999999999999999', undefined, { limit: 1e23 }],
  ]
  for (const [search, lastEventId, expected] of cases) t.match(read(search, lastEventId), expected, search)
})

t.test('invalid parameters are refused with the texts of protocol.md 1.2', async (t) => {
  const cases: [search: string, reason: string][] = [
    ['feed=foo', 'Supported `feed` types: normal, continuous, live, longpoll, eventsource'],
    ['feed=constructor', 'Supported `feed` types: normal, continuous, live, longpoll, eventsource'],
    ['limit=-1', 'The limit value should be a non-negative integer'],
    ['limit=x', 'The limit parameter should be a non-negative integer'],
    ['limit=1.5', 'The limit parameter should be a non-negative integer'],
    ['timeout=-1', 'The timeout value should be a non-negative integer'],
    ['timeout=', 'The timeout parameter should be a non-negative integer'],
    ['heartbeat=-1', 'The heartbeat value should be a positive integer (in milliseconds).'],
    ['heartbeat=0', 'The heartbeat value should be a positive integer (in milliseconds).'],
    ['heartbeat=foo', 'Invalid heartbeat value. Expecting a positive integer value (in milliseconds).'],
    ['seq_interval=0', 'invalid_seq_interval'],
    ['seq_interval=x', 'invalid_seq_interval'],
    ['style=most_docs', 'Supported `style` values: main_only, all_docs'],
  ]
  for (const [search, reason] of cases) {
    t.equal(
      reasonOf(() => read(search)),
      reason,
      search,
    )
  }
})
