import t from 'tap'
import {
  type CouchCheckpoint,
  couchResume,
  nextCouchCheckpoint,
  nextPouchCheckpoint,
  type PouchCheckpoint,
  parseCouchCheckpoint,
  parsePouchCheckpoint,
  pouchResume,
} from '../../src/replication/checkpoint.ts'
import { type PouchReplication, pouchCheckpointId } from '../../src/replication/replication-id.ts'

const POUCH: PouchCheckpoint = {
  session_id: 's2',
  last_seq: '20-x',
  version: 1,
  replicator: 'pouchdb',
  history: [
    { session_id: 's2', last_seq: '20-x' },
    { session_id: 's1', last_seq: 10 },
  ],
}

const COUCH: CouchCheckpoint = {
  session_id: 's2',
  source_last_seq: '20-x',
  replication_id_version: 4,
  history: [
    {
      session_id: 's2',
      start_time: 'Fri, 21 Nov 2025 10:00:00 GMT',
      end_time: 'Fri, 21 Nov 2025 10:00:05 GMT',
      start_last_seq: '10-x',
      end_last_seq: '20-x',
      recorded_seq: '20-x',
      missing_checked: 10,
      missing_found: 9,
      docs_read: 9,
      docs_written: 8,
      doc_write_failures: 1,
    },
    { session_id: 's1', recorded_seq: 10 },
  ],
}

t.test('documents of both shapes are read without their _id and _rev', async (t) => {
  t.same(parsePouchCheckpoint({ _id: '_local/x', _rev: '0-2', ...POUCH }), POUCH)
  t.same(parseCouchCheckpoint({ _id: '_local/x', _rev: '0-2', ...COUCH }), COUCH)
})

t.test('sessions that make no sense are left out, the others are kept', async (t) => {
  const nonsense = [
    null,
    1,
    'x',
    [],
    {},
    { session_id: 's1' },
    { session_id: 1, last_seq: 1, recorded_seq: 1 },
  ]
  t.same(parsePouchCheckpoint({ ...POUCH, history: [...nonsense, ...POUCH.history] }), POUCH)
  t.same(parseCouchCheckpoint({ ...COUCH, history: [...nonsense, ...COUCH.history] }), COUCH)
  t.match(parsePouchCheckpoint({ ...POUCH, replicator: 5 }), { replicator: 'pouchdb' })
  t.match(parseCouchCheckpoint({ ...COUCH, replication_id_version: 'x' }), { replication_id_version: 4 })
})

t.test('anything other than a checkpoint is null, never an error', async (t) => {
  const nothing: unknown[] = [
    undefined,
    null,
    5,
    'x',
    [],
    {},
    { last_seq: 0 },
    { _id: '_local/x', last_seq: 0 },
  ]
  const bad = [null, -1, 1.5, Number.NaN, '', [5, 'x'], {}]
  const pouch = [
    ...nothing,
    COUCH,
    { ...POUCH, version: 2 },
    { ...POUCH, session_id: '' },
    { ...POUCH, history: {} },
    ...bad.map((last_seq) => ({ ...POUCH, last_seq })),
  ]
  for (const doc of pouch) t.equal(parsePouchCheckpoint(doc), null, JSON.stringify(doc) ?? 'undefined')
  const couch = [
    ...nothing,
    POUCH,
    { ...COUCH, session_id: 7 },
    { ...COUCH, history: null },
    ...bad.map((source_last_seq) => ({ ...COUCH, source_last_seq })),
  ]
  for (const doc of couch) t.equal(parseCouchCheckpoint(doc), null, JSON.stringify(doc) ?? 'undefined')
})

t.test('a session is written in front of the others, and in the place of its own last word', async (t) => {
  t.same(nextPouchCheckpoint(null, { session_id: 's1', last_seq: 5 }), {
    session_id: 's1',
    last_seq: 5,
    version: 1,
    replicator: 'pouchdb',
    history: [{ session_id: 's1', last_seq: 5 }],
  })
  const third = { session_id: 's3', last_seq: '30-x' }
  t.same(nextPouchCheckpoint(POUCH, third), { ...POUCH, ...third, history: [third, ...POUCH.history] })
  const again = { session_id: 's2', last_seq: '25-x' }
  t.same(nextPouchCheckpoint(POUCH, again), { ...POUCH, ...again, history: [again, POUCH.history[1]] })
  const couchThird = { session_id: 's3', recorded_seq: '30-x', docs_read: 1 }
  t.same(nextCouchCheckpoint(COUCH, couchThird), {
    session_id: 's3',
    source_last_seq: '30-x',
    replication_id_version: 4,
    history: [couchThird, ...COUCH.history],
  })
  t.match(nextCouchCheckpoint(null, couchThird), { source_last_seq: '30-x', history: [couchThird] })
})

t.test('a sequence that is already stored is not written again, in any session', async (t) => {
  t.equal(nextPouchCheckpoint(POUCH, { session_id: 's3', last_seq: '20-x' }), null)
  t.equal(nextCouchCheckpoint(COUCH, { session_id: 's3', recorded_seq: '20-x' }), null)
})

t.test('PouchDB keeps 5 sessions, CouchDB 50', async (t) => {
  let pouch: PouchCheckpoint | null = null
  let couch: CouchCheckpoint | null = null
  for (let n = 1; n <= 60; n++) {
    pouch = nextPouchCheckpoint(pouch, { session_id: `s${n}`, last_seq: n })
    couch = nextCouchCheckpoint(couch, { session_id: `s${n}`, recorded_seq: n })
  }
  t.same(
    pouch?.history.map((past) => past.session_id),
    ['s60', 's59', 's58', 's57', 's56'],
  )
  t.equal(couch?.history.length, 50)
  t.equal(couch?.history.at(-1)?.session_id, 's11')
})

/** A log as `session:position`s, newest first. */
type Told = readonly string[]

function sessions(told: Told): [id: string, position: number][] {
  return told.map((text) => {
    const [id = '', position] = text.split(':')
    return [id, Number(position)]
  })
}

function pouchOf(told: Told): PouchCheckpoint | null {
  const history = sessions(told).map(([session_id, last_seq]) => ({ session_id, last_seq }))
  return history[0] ? { ...POUCH, ...history[0], history } : null
}

function couchOf(told: Told): CouchCheckpoint | null {
  const history = sessions(told).map(([session_id, recorded_seq]) => ({ session_id, recorded_seq }))
  const [newest] = history
  if (!newest) return null
  return { ...COUCH, session_id: newest.session_id, source_last_seq: newest.recorded_seq, history }
}

t.test('a replication goes on from the newest session that both ends know', async (t) => {
  const table: [what: string, source: Told, target: Told, position: number][] = [
    ['neither end knows anything', [], [], 0],
    ['the source knows nothing', [], ['a:1'], 0],
    ['the target knows nothing', ['a:1'], [], 0],
    ['the same session', ['b:2', 'a:1'], ['b:2', 'a:1'], 2],
    ['the last write reached the target only', ['a:10'], ['a:12'], 10],
    ['the last write reached the source only', ['a:12'], ['a:10'], 10],
    ["the source's newest is older", ['a:1'], ['c:3', 'b:2', 'a:1'], 1],
    ["the target's newest is older", ['c:3', 'b:2', 'a:1'], ['a:1'], 1],
    ['both have gone their own ways since', ['d:4', 'b:2', 'a:1'], ['c:3', 'b:2', 'a:1'], 2],
    ['one came back from a copy of long ago', ['a:30', 'x:5'], ['a:10', 'x:5'], 10],
    ['nothing in common', ['b:2', 'a:1'], ['d:4', 'c:3'], 0],
    ['in another order', ['a:1', 'b:2'], ['b:2', 'a:1'], 1],
  ]
  for (const [what, source, target, position] of table) {
    t.equal(pouchResume(pouchOf(source), pouchOf(target)), position, `PouchDB: ${what}`)
    t.equal(couchResume(couchOf(source), couchOf(target)), position, `CouchDB: ${what}`)
  }
})

t.test("tokens are compared by their number; where one has none, the source's counts", async (t) => {
  const table: [source: string | number, target: string | number, position: string | number][] = [
    ['9-x', '10-a', '9-x'],
    ['10-a', '9-x', '9-x'],
    [100, '20-x', '20-x'],
    ['10-a', '10-b', '10-a'],
    ['opaque', '3-x', 'opaque'],
    ['3-x', 'opaque', '3-x'],
  ]
  for (const [source, target, position] of table) {
    const [ours, theirs] = [source, target].map((last_seq) => ({ ...POUCH, last_seq })) as [
      PouchCheckpoint,
      PouchCheckpoint,
    ]
    t.equal(pouchResume(ours, theirs), position, `${source} and ${target}`)
  }
})

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
