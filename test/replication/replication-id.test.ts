/** Ids of replications. CouchDB 3.5.0 has answered each of these bodies with the id beside it. */
import t from 'tap'
import { checkedSelector } from '../../src/query/normal-selector.ts'
import { couchCheckpointId } from '../../src/replication/replication-id.ts'
import {
  type ReplicationDefaults,
  readReplication,
} from '../../src/replication/requests/replication-request.ts'

const DEFAULTS: ReplicationDefaults = {
  usesCheckpoints: true,
  checkpointInterval: 30_000,
  usesBulkGet: true,
  batchSize: 500,
  batches: 4,
  timeout: 30_000,
  retries: 5,
}
const UUID = '0123456789abcdef0123456789abcdef'
/** The target, where a row names none. */
const TARGET = 'https://host.example:6984/a/b'
const CODES: Readonly<Record<string, string>> = {
  'd/f': '  function(doc) { return true }  ',
  'd/g': 'function(doc) {\n  return true\n}',
}

const ROWS: readonly (readonly [id: string, body: Readonly<Record<string, unknown>>])[] = [
  ['8a35e792c582ab0a45acaeca0badc3be', { source: 'http://host.example/notes' }],
  [
    'b921678e25fb6de9ca40015348656de8',
    { source: 'https://host.example/notes/', target: 'http://host.example:5984/x' },
  ],
  [
    '61a079dfea5cc6be0dc4eba124d61eae',
    { source: 'https://host.example:5984/notes', target: 'http://host.example:1234/pre/fix/notes?token=1' },
  ],
  ['736f1e8b358f8e28f917761cc5289648', { source: 'http://anna:s%40cret@host.example/notes' }],
  ['9bd65ddf5cac7697b947a6b4f9cf8b98', { source: 'http://an%40na:secret@host.example/notes' }],
  [
    '3e1e00fe997683f5c07f783cff9d0d8b',
    { source: { url: 'http://host.example/notes', auth: { basic: { username: 'änna', password: 'x' } } } },
  ],
  [
    '4dc5314f8a9ae7895db16fbeb050faec',
    {
      source: {
        url: 'http://host.example/notes',
        headers: { Authorization: 'Basic Ym9iOnB3Ong=', 'X-B': '1', 'a-header': '2' },
      },
    },
  ],
  [
    '808c9a03af19e7c18094d5b1fb0d1adb',
    { source: { url: 'http://host.example/notes', headers: { 'X-B': '1', 'a-header': '2' } } },
  ],
  [
    '83b6fa2cbcbb4519e5c04d9a729185f8',
    { source: { url: 'http://host.example/notes', headers: { Authorization: 'Bearer xyz' } } },
  ],
  [
    '411253c845b2e2f3e29ec2ebbe204458',
    { source: 'http://host.example/notes', doc_ids: ['b', 'a', 'ü', 'b', 'c%2Fd'] },
  ],
  ['e81299cd4ebbd518a7a916c593714576', { source: 'http://host.example/notes', doc_ids: [] }],
  ['64aa744e96926b4b217c07012919ba1b', { source: 'http://host.example/notes', selector: { type: 'note' } }],
  [
    '09a77b3d1c528ce06f8e54e87da950d3',
    {
      source: 'http://host.example/notes',
      selector: {
        b: { $gt: 300, $lt: -70000 },
        a: { $in: [1.5, null, true, 4294967296] },
        $or: [{ x: 1 }, { y: 'ü' }],
      },
    },
  ],
  [
    '13e2b35e5944593f47b3a4e3d401aab4',
    { source: 'http://host.example/notes', selector: { $not: { 'a.b': 1 } } },
  ],
  ['bd547a6d66bad87d419e1b49f5bad809', { source: 'http://host.example/notes', winning_revs_only: true }],
  ['8a35e792c582ab0a45acaeca0badc3be', { source: 'http://host.example/notes', since_seq: '5-x' }],
  [
    'de50c85da097bf7b23b32fbf58df91eb',
    { source: 'http://host.example/notes', filter: '_view', query_params: { view: 'd/v' } },
  ],
  ['e920f0b92ab9f4bd6baf6eb0f53a5446', { source: 'http://adm:pass@127.0.0.1:5994/fsrc', filter: 'd/f' }],
  [
    '2e37cfe78bfda98b672f6a80162b5b86',
    { source: 'http://adm:pass@127.0.0.1:5994/fsrc', filter: 'd/g', query_params: { b: '1', a: '2' } },
  ],
  ['4b64158dd391c395b8d9d05de71d52ae', { source: 'http://[::1]:5990/notes' }],
]

function idOf(body: Readonly<Record<string, unknown>>): string {
  const { source, target, options } = readReplication({ target: TARGET, ...body }, DEFAULTS)
  if (source.type === 'local' || target.type === 'local') throw new Error('a local endpoint')
  const { docIds, selector, filter, queryParams = {} } = options.filter
  const found =
    filter === undefined || filter.startsWith('_') ? { name: filter ?? '' } : { code: CODES[filter] ?? '' }
  return couchCheckpointId({
    serverUuid: UUID,
    source,
    target,
    ...(docIds && { docIds }),
    ...(selector && { selector: checkedSelector(selector) }),
    ...(filter !== undefined && { filter: found, queryParams }),
    winningRevsOnly: options.isWinningRevsOnly,
  })
}

t.test("an id is CouchDB's own", async (t) => {
  for (const [id, body] of ROWS) t.equal(idOf(body), `_local/${id}`, JSON.stringify(body))
})

t.test('a new password keeps the id', async (t) => {
  const [one, two] = ['one', 'two'].map((password) => idOf({ source: `http://anna:${password}@host/notes` }))
  t.equal(one, two)
})

t.test('requests that are not valid are refused in words', async (t) => {
  const source = 'http://host/notes'
  const refused: readonly (readonly [body: Readonly<Record<string, unknown>>, reason: RegExp])[] = [
    [{}, /Missing replicator database/],
    [{ source: 'ftp://host/notes' }, /endpoint has an invalid url/],
    [{ source: 'http://host' }, /endpoint has an invalid url/],
    [{ source, continuous: 1 }, /parameter `continuous` must be a boolean/],
    [{ source, doc_ids: {} }, /parameter `doc_ids` must be an array/],
    [{ source, doc_ids: [], selector: {} }, /mutually exclusive/],
    [{ source, filter: 'd/f', query_params: { a: {} } }, /a value must be a string, a number/],
    [{ source, filter: '_view' }, /Invalid `view` parameter/],
    [{ source, filter: 'f' }, /Must match `ddocname\/filtername`/],
    [{ source, worker_batch_size: 'x' }, /must be an integer/],
    [{ source: { url: source, headers: { 'a b': 'c' } } }, /a header of the source is not valid/],
    [{ source: { url: source, headers: { Host: 'other' } } }, /a header of the source is not valid/],
    [{ source, proxy: 'http://p', source_proxy: 'http://q' }, /mutually exclusive/],
  ]
  for (const [body, reason] of refused) {
    t.throws(() => readReplication({ target: TARGET, ...body }, DEFAULTS), {
      code: /^(?:bad_request|invalid_replication)$/,
      message: reason,
    })
  }
})
