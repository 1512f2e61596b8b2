/** `_purge` and what is remembered of it: protocol.md 4.7, 18 (39), 19.8. */
import t, { type Test } from 'tap'
import { ENGINES } from './engines.ts'
import {
  ADMIN,
  ANNA,
  body,
  type Json,
  NOBODY,
  type Opened,
  openDatabase,
  openOn,
  parse,
  replicated,
} from './helpers.ts'

/** The answer's `purged`. */
async function purge({ database }: Opened, request: unknown): Promise<Json> {
  const answer = parse(await database.purge(ADMIN, body(request)))
  t.same(Object.keys(answer), ['purge_seq', 'purged'])
  t.equal(answer.purge_seq, null)
  return answer.purged
}

async function revsDiff({ database }: Opened, request: unknown): Promise<Json> {
  return parse(await database.revsDiff(ADMIN, body(request)))
}

async function feed({ store }: Opened): Promise<string[]> {
  const page = await store.readChanges(
    { since: 0 },
    { limit: 1000 },
    ({ id, seq, rev }) => `${seq} ${id} ${rev}`,
  )
  return page.rows
}

function overEngines(sentence: string, run: (t: Test, opened: Opened) => Promise<void>): void {
  for (const [name, make] of Object.entries(ENGINES)) {
    t.test(`${sentence} (${name})`, async (t) => run(t, await openOn(await make(t))))
  }
}

overEngines('a wholly purged document is as if it had never been', async (t, opened) => {
  const { put, get, database, updateSeq } = opened
  const first = await put('x', { n: 1 })
  const second = await put('x', { _rev: first, n: 2 })
  await put('y', {})
  t.same(await purge(opened, { x: [second] }), { x: [second] })
  await t.rejects(get('x'), { code: 'not_found', reason: 'missing' })
  await t.rejects(get('x', { rev: second }), { code: 'not_found', reason: 'missing' })
  t.same(await revsDiff(opened, { x: [first, second] }), { x: { missing: [first, second] } })
  t.match(await feed(opened), [/^3 y /])
  t.equal(await updateSeq(), 3)
  t.match(await database.info(ADMIN), { doc_count: 1, doc_del_count: 0, purge_seq: /^1-/, update_seq: /^3-/ })
  t.equal(await put('x', { n: 1 }), first, 'and is made anew')
})

overEngines('of a conflict one leaf goes, and the document moves in the feed', async (t, opened) => {
  const { replicate, get } = opened
  await replicate(
    'x',
    { start: 3, ids: ['c', 'b', 'a'], doc: { is: 'c' } },
    { start: 3, ids: ['d', 'b', 'a'], doc: { is: 'd' } },
    { start: 2, ids: ['e', 'a'], doc: { is: 'e' } },
  )
  await opened.put('y', {})
  t.same(await purge(opened, { x: ['3-d'] }), { x: ['3-d'] })
  t.match(await get('x', { conflicts: true }), { is: 'c', _conflicts: ['2-e'] })
  t.match(await feed(opened), [/^2 y /, '3 x 3-c'])
  t.same(await revsDiff(opened, { x: ['1-a', '2-b', '2-e', '3-c', '3-d'] }), {
    x: { missing: ['3-d'], possible_ancestors: ['2-e'] },
  })
  t.same(await purge(opened, { x: ['3-c'] }), { x: ['3-c'] })
  t.match(await get('x', { conflicts: true }), { is: 'e', _rev: '2-e' })
  t.same((await revsDiff(opened, { x: ['1-a', '2-b'] })).x.missing, ['2-b'], 'which served no other leaf')
})

overEngines('superseded bodies of what is purged go, those of what stays do not', async (t, opened) => {
  const { put, get, replicate, store } = opened
  const first = await put('x', { n: 1 })
  const second = await put('x', { _rev: first, n: 2 })
  const third = await put('x', { _rev: second, n: 3 })
  await replicate('x', { start: 2, ids: ['z', first.slice(2)], doc: { n: 'other' } })
  t.same(await purge(opened, { x: [third] }), { x: [third] })
  t.match(await get('x', { rev: first }), { n: 1 })
  await t.rejects(get('x', { rev: second }), { code: 'not_found' })
  const [rows] = await store.readDocs(['x'], (doc) => doc?.revisions().map(({ rev }) => rev))
  t.same(rows?.toSorted(), [first, '2-z'].toSorted())
})

overEngines('only leaves go, each once, whatever else is named', async (t, opened) => {
  const { put, replicate } = opened
  const first = await put('x', {})
  const second = await put('x', { _rev: first })
  await replicate('y', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
  const before = await feed(opened)
  t.same(await purge(opened, { x: [first, '9-none'], none: ['1-a'], '_local/x': ['0-1'], z: [] }), {
    x: [],
    none: [],
    '_local/x': [],
    z: [],
  })
  t.same(await feed(opened), before)
  t.match(await opened.database.info(ADMIN), { purge_seq: /^0-/ })
  const purged = await purge(opened, { y: ['1-b', '1-b', '1-a'], x: [first, second, second] })
  t.same(purged, { y: ['1-b', '1-a'], x: [second] })
  t.same(await feed(opened), [])
})

overEngines('tombstones are purged like any leaf', async (t, opened) => {
  const { put, get, replicate, database } = opened
  const { rev } = await database.remove(ADMIN, 'x', await put('x', {}))
  t.same(await purge(opened, { x: [rev] }), { x: [rev] })
  t.match(await database.info(ADMIN), { doc_count: 0, doc_del_count: 0 })
  await replicate('y', { start: 2, ids: ['b', 'a'], deleted: true }, { start: 1, ids: ['z'] })
  t.match(await get('y'), { _rev: '1-z' })
  t.same(await purge(opened, { y: ['1-z'] }), { y: ['1-z'] })
  await t.rejects(get('y'), { code: 'deleted' })
  t.match(await database.info(ADMIN), { doc_count: 0, doc_del_count: 1 })
  t.same(await purge(opened, { y: ['2-b'] }), { y: ['2-b'] })
  t.match(await database.info(ADMIN), { doc_count: 0, doc_del_count: 0, purge_seq: /^3-/ })
})

overEngines('what is purged comes back by replication', async (t, opened) => {
  const { bulk, get } = opened
  const doc = replicated('x', {
    start: 2,
    ids: ['b', 'a'],
    doc: { n: 1, _attachments: { f: { data: 'eA==' } } },
  })
  await bulk({ new_edits: false, docs: [doc] })
  await purge(opened, { x: ['2-b'] })
  await opened.store.compact()
  await bulk({ new_edits: false, docs: [doc] })
  t.match(await get('x', { revs: true, attachments: true }), {
    n: 1,
    _revisions: { start: 2, ids: ['b', 'a'] },
    _attachments: { f: { data: 'eA==' } },
  })
})

overEngines('a purged design document is one that changed', async (t, opened) => {
  const { put, store } = opened
  const rev = await put('_design/x', {})
  const { designVersion } = await store.view()
  await purge(opened, { '_design/x': [rev] })
  t.equal((await store.view()).designVersion, designVersion + 1)
})

t.test('protocol.md 19.8', async (t) => {
  const opened = await openDatabase()
  const [one, , three] = [
    await opened.put('doc1', {}),
    await opened.put('doc2', {}),
    await opened.put('doc3', {}),
  ]
  const bad = `3-${'b'.repeat(32)}`
  t.same(await purge(opened, { doc1: [one], doc2: [bad], doc3: [three] }), {
    doc1: [one],
    doc2: [],
    doc3: [three],
  })
})

t.test('a request that is not understood purges nothing', async (t) => {
  const opened = await openDatabase({ maxPurgedDocuments: 3, maxPurgedRevisions: 4 })
  const rev = await opened.put('x', {})
  const cases: [request: unknown, code: string, reason: string][] = [
    ['', 'invalid_json', 'invalid UTF-8 JSON'],
    ['{"x":', 'invalid_json', 'invalid UTF-8 JSON'],
    [[], 'body_not_object', 'Request body must be a JSON object'],
    [{ x: [rev], y: rev }, 'invalid_revs_list', 'Invalid list of revisions'],
    [{ x: [rev], y: null }, 'invalid_revs_list', 'Invalid list of revisions'],
    [{ x: [rev, 'nonsense'] }, 'invalid_rev', 'Invalid rev format'],
    [{ x: [rev], y: [1] }, 'invalid_rev', 'Invalid rev format'],
    [{ x: [rev], a: [], b: [], c: [] }, 'bad_request', 'Exceeded maximum number of documents.'],
    [{ x: [rev, rev, rev], y: ['1-a', '1-b'] }, 'bad_request', 'Exceeded maximum number of revisions.'],
  ]
  for (const [request, code, reason] of cases) {
    await t.rejects(
      opened.database.purge(ADMIN, body(request)),
      { code, reason, status: 400 },
      JSON.stringify(request),
    )
  }
  t.match(await opened.get('x'), { _rev: rev })
  t.same(await purge(opened, { x: [rev, rev, rev], y: [], z: ['1-a'] }), { x: [rev], y: [], z: [] })
})

t.test('the limits are CouchDB’s unless others are set', async (t) => {
  const { database } = await openDatabase()
  const named = (count: number, revs: string[]) =>
    body(Object.fromEntries(Array.from({ length: count }, (_, n) => [`d${n}`, revs])))
  await t.resolves(database.purge(ADMIN, named(100, Array(10).fill('1-a'))))
  await t.rejects(database.purge(ADMIN, named(101, [])), {
    code: 'bad_request',
    reason: 'Exceeded maximum number of documents.',
  })
  await t.rejects(database.purge(ADMIN, named(91, Array(11).fill('1-a'))), {
    code: 'bad_request',
    reason: 'Exceeded maximum number of revisions.',
  })
})

t.test('names that are special to JavaScript, or no UTF-8, are ids like others', async (t) => {
  const opened = await openDatabase()
  const revs = [await opened.put('constructor', {}), await opened.put('1', {})]
  const request = `{"__proto__":["1-a"],"constructor":["${revs[0]}"],"1":["${revs[1]}"],"\\ud800":["1-a"]}`
  const purged = await purge(opened, request)
  t.same(
    Object.entries(purged)
      .map(([id, gone]) => [id, (gone as string[]).length])
      .sort(),
    [
      ['1', 1],
      ['__proto__', 0],
      ['constructor', 1],
      ['\ud800', 0],
    ],
  )
})

t.test('a fault of the disk is told: of one document in its row, of all as the answer', async (t) => {
  let isBroken = false
  let purges = 0
  const onOperation = (operation: string) => {
    if (isBroken && operation === 'purge document' && ++purges > 1) throw new Error('the disk')
  }
  const opened = await openDatabase({}, { onOperation })
  const revs = [await opened.put('a', {}), await opened.put('b', {})]
  isBroken = true
  t.match(await purge(opened, { a: [revs[0]], b: [revs[1]] }), {
    a: [revs[0]],
    b: { error: 'internal_server_error', reason: String },
  })
  await t.rejects(opened.database.purge(ADMIN, body({ b: [revs[1]] })), { code: 'internal_server_error' })
  isBroken = false
  t.same(await purge(opened, { b: [revs[1]] }), { b: [revs[1]] })
})

t.test('purges are listed to members; the limit is set by server admins', async (t) => {
  const opened = await openDatabase()
  const { database, put } = opened
  await database.setSecurity(ADMIN, { members: { names: ['anna'] } })
  const infos = async () => parse(await database.purgedInfos(ANNA)).purged_infos
  t.same(await infos(), [])
  const purged = []
  for (const id of ['a', 'b', 'c']) {
    const rev = await put(id, {})
    await purge(opened, { [id]: [rev] })
    purged.push({ id, revs: [rev] })
  }
  t.same(await infos(), purged)
  t.equal(await database.purgedInfosLimit(ADMIN), 1000)
  await database.setPurgedInfosLimit(ADMIN, 2)
  t.equal(await database.purgedInfosLimit(ADMIN), 2)
  t.same(await infos(), purged.slice(1))
  for (const limit of [0, -1, 1.5, '5', null, {}, true, 1e300]) {
    await t.rejects(database.setPurgedInfosLimit(ADMIN, limit), {
      code: 'bad_request',
      reason: '`purged_infos_limit` must be positive integer',
    })
  }
  await t.rejects(database.purgedInfos(NOBODY), { code: 'unauthorized' })
  for (const user of [ANNA, NOBODY]) {
    await t.rejects(database.purge(user, body({})), { code: 'not_server_admin' })
    await t.rejects(database.purgedInfosLimit(user), { code: 'not_server_admin' })
    await t.rejects(database.setPurgedInfosLimit(user, 5), { code: 'not_server_admin' })
  }
})
