import t from 'tap'
import {
  COUCH_ID_VERSION,
  type CouchReplication,
  couchCheckpointId,
  type Endpoint,
  type PouchReplication,
  pouchCheckpointId,
} from '../../src/replication/replication-id.ts'

const PLAIN: PouchReplication = { sourceId: 'a', targetId: 'b' }

t.test(
  'a PouchDB id is the MD5 of its parts in base64, in an alphabet that addresses can hold',
  async (t) => {
    // printf ab | openssl md5 -binary | base64, and the like
    t.equal(pouchCheckpointId(PLAIN), '_local/GH70Q2Ei0cwvQNwrkvDroA==')
    t.equal(pouchCheckpointId({ ...PLAIN, targetId: 'b10' }), '_local/ByYj5rqGam23Mii_CvC.RQ==')
    // Computed by pouchdb 9 on Node; its browsers' build agrees up to U+00FF.
    t.equal(pouchCheckpointId({ sourceId: 'aé', targetId: 'b' }), '_local/TVkJkus7vipQqvviNDy_jw==')
    t.equal(pouchCheckpointId({ sourceId: 'a中', targetId: 'b' }), '_local/jKLtWQzy6iQE8uZ2QbzfUA==')
  },
)

t.test('options of PouchDB that name another set of documents make another id, others do not', async (t) => {
  const filtered = { ...PLAIN, filter: 'd/f' }
  const different: PouchReplication[] = [
    PLAIN,
    { sourceId: 'b', targetId: 'a' },
    { ...PLAIN, docIds: ['x', 'y'] },
    { ...PLAIN, docIds: ['x'] },
    filtered,
    { ...filtered, queryParams: { a: '1' } },
    { ...filtered, queryParams: { a: '2' } },
    { ...PLAIN, filter: '_view', view: 'd/v' },
    { ...PLAIN, filter: '_view', view: 'd/w' },
    { ...PLAIN, selector: { type: 'note' } },
    { ...PLAIN, selector: { a: 1, b: 2 } },
    { ...PLAIN, selector: { b: 2, a: 1 } },
  ]
  t.equal(new Set(different.map(pouchCheckpointId)).size, different.length)
  const same: [what: string, PouchReplication, PouchReplication][] = [
    ['document ids in any order', { ...PLAIN, docIds: ['y', 'x'] }, { ...PLAIN, docIds: ['x', 'y'] }],
    ['no document ids', { ...PLAIN, docIds: [] }, PLAIN],
    ['query parameters without a filter', { ...PLAIN, queryParams: { a: 1 } }, PLAIN],
    [
      'query parameters in any order',
      { ...filtered, queryParams: { b: 1, a: 2 } },
      { ...filtered, queryParams: { a: 2, b: 1 } },
    ],
    ['a view without its filter', { ...PLAIN, view: 'd/v' }, PLAIN],
  ]
  for (const [what, one, other] of same) t.equal(pouchCheckpointId(one), pouchCheckpointId(other), what)
})

const COUCH: CouchReplication = {
  serverUuid: '0'.repeat(32),
  source: { url: 'http://host/notes' },
  target: { url: 'https://other:6984/notes/' },
}

function withSource(source: Endpoint): CouchReplication {
  return { ...COUCH, source }
}

function basic(credentials: string): Record<string, string> {
  return { Authorization: `Basic ${Buffer.from(credentials).toString('base64')}` }
}

t.test('a CouchDB id is 32 hex digits that stay the same for ever', async (t) => {
  t.equal(COUCH_ID_VERSION, 4)
  t.equal(couchCheckpointId(COUCH), '_local/2690829a2313ecf746b80d0d4ab13f82')
  t.equal(couchCheckpointId(COUCH, 4), couchCheckpointId(COUCH))
  t.equal(
    couchCheckpointId({ ...COUCH, filter: '(doc) => true', queryParams: { a: '1' }, sinceSeq: '7-x' }),
    '_local/b5e6e25abfbac2f139d5bd0b2e957c48',
  )
})

t.test('what names the same replication of CouchDB makes the same id', async (t) => {
  const user = withSource({ url: 'http://anna:one@host/notes' })
  const same: [what: string, CouchReplication, CouchReplication][] = [
    ['a slash at the end', withSource({ url: 'http://host/notes/' }), COUCH],
    ['https', withSource({ url: 'https://host/notes' }), COUCH],
    ["CouchDB's own port", withSource({ url: 'http://host:5984/notes' }), COUCH],
    ['capitals in the host', withSource({ url: 'http://HOST/notes' }), COUCH],
    ['a new password', withSource({ url: 'http://anna:two@host/notes' }), user],
    ['credentials in a header', withSource({ url: 'http://host/notes', headers: basic('anna:x:y') }), user],
    ['an escaped user', withSource({ url: 'http://%61nna@host/notes' }), user],
    [
      'the user of the address before that of a header',
      withSource({ url: 'http://anna:one@host/notes', headers: basic('bob:b') }),
      user,
    ],
    ['document ids twice', { ...COUCH, docIds: ['b', 'a', 'b'] }, { ...COUCH, docIds: ['a', 'b'] }],
    [
      "a selector's members in any order",
      { ...COUCH, selector: { a: { $gt: 1, $lt: 2 }, b: [{ c: 1, d: 2 }] } },
      { ...COUCH, selector: { b: [{ d: 2, c: 1 }], a: { $lt: 2, $gt: 1 } } },
    ],
    ['no query parameters', { ...COUCH, filter: 'f' }, { ...COUCH, filter: 'f', queryParams: {} }],
    ['query parameters without a filter', { ...COUCH, queryParams: { a: 1 } }, COUCH],
    ['all revisions, said aloud', { ...COUCH, winningRevsOnly: false }, COUCH],
    [
      "a header's name in capitals",
      withSource({ url: 'http://host/notes', headers: { 'X-A': '1' } }),
      withSource({ url: 'http://host/notes', headers: { 'x-a': '1' } }),
    ],
  ]
  for (const [what, one, other] of same) t.equal(couchCheckpointId(one), couchCheckpointId(other), what)
})

t.test('what names another replication of CouchDB makes another id', async (t) => {
  const different: CouchReplication[] = [
    COUCH,
    { ...COUCH, serverUuid: '1'.repeat(32) },
    { ...COUCH, source: COUCH.target, target: COUCH.source },
    withSource({ url: 'http://host2/notes' }),
    withSource({ url: 'http://host:8080/notes' }),
    withSource({ url: 'http://host/notes2' }),
    withSource({ url: 'http://host/couch/notes' }),
    withSource({ url: 'http://anna:one@host/notes' }),
    withSource({ url: 'http://bob:one@host/notes' }),
    withSource({ url: 'http://host/notes', headers: { 'x-tenant': 'a' } }),
    withSource({ url: 'http://host/notes', headers: { authorization: 'Basic bm9jb2xvbg==' } }),
    withSource({ url: 'no address' }),
    withSource({ url: 'http://%zz@host/notes' }),
    { ...COUCH, docIds: [] },
    { ...COUCH, docIds: ['a'] },
    { ...COUCH, filter: 'a' },
    { ...COUCH, filter: 'a', queryParams: { b: 1 } },
    { ...COUCH, selector: {} },
    { ...COUCH, selector: { a: [1, 2] } },
    { ...COUCH, selector: { a: [2, 1] } },
    { ...COUCH, winningRevsOnly: true },
    { ...COUCH, sinceSeq: 0 },
    { ...COUCH, sinceSeq: '5-x' },
  ]
  t.equal(new Set(different.map((one) => couchCheckpointId(one))).size, different.length)
})
