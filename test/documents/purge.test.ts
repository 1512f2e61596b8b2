/** `_purge` and the recorded purges: protocol.md 4.7, 18 (39), 19.8. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { isKnown } from '../../src/revisions/branch-index.ts'
import { merge } from '../../src/revisions/merge.ts'
import { show } from '../revisions/helpers.ts'
import { type Arrival, arrivals, type Node, nodeKey, path, worlds } from '../revisions/histories.ts'
import { ENGINES } from './engines.ts'
import {
  ADMIN,
  ANNA,
  body,
  type Json,
  jsonOf,
  NOBODY,
  type Opened,
  openDatabase,
  openOn,
  parse,
  replicated,
  text,
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
  t.equal(await put('x', { n: 1 }), first, 'a purged document can be created again')
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
  t.same(
    (await revsDiff(opened, { x: ['1-a', '2-b'] })).x.missing,
    ['2-b'],
    'an ancestor of no other leaf is removed with its leaf',
  )
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

t.test('an invalid request purges nothing', async (t) => {
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

t.test('the default limits are those of CouchDB', async (t) => {
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

t.test('names that are special in JavaScript or are not UTF-8 are ordinary ids', async (t) => {
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

t.test('a disk error is in the row of one document, and fails the request if it affects all', async (t) => {
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

// A document before and after compaction: protocol.md 4.6, 6.2.

/** Starts a compaction like a client, and waits until it ends. */
async function compact({ database, store }: Opened): Promise<void> {
  await database.compact(ADMIN)
  await store.compact()
}

async function edited({ put }: Opened, id: string, times: number): Promise<string[]> {
  const revs: string[] = []
  for (let n = 0; n < times; n++) {
    const _attachments = {
      file: { content_type: 'text/plain', data: Buffer.from(`${n}`).toString('base64') },
    }
    revs.push(await put(id, { n, _attachments, ...(n > 0 && { _rev: revs.at(-1) }) }))
  }
  return revs
}

for (const [name, make] of Object.entries(ENGINES)) {
  t.test(`superseded revisions are missing, but known (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, get, updateSeq } = opened
    const revs = await edited(opened, 'x', 4)
    const [first = '', , , last = ''] = revs
    const whole = await get('x', { revs: true, attachments: true })
    t.match(await get('x', { rev: first }), { n: 0 })
    const seq = await updateSeq()
    await compact(opened)
    t.equal(await updateSeq(), seq)
    t.same(await get('x', { revs: true, attachments: true }), whole)
    t.same(
      (await get('x', { revsInfo: true }))._revs_info.map(({ status }: { status: string }) => status),
      ['available', 'missing', 'missing', 'missing'],
    )
    for (const rev of revs.slice(0, -1)) {
      await t.rejects(get('x', { rev }), { code: 'not_found', reason: 'missing' })
      await t.rejects(database.openAttachment(ADMIN, 'x', 'file', rev), { code: 'not_found' })
    }
    t.match(await get('x', { rev: first, latest: true }), { _rev: last })
    const open = (given: string[]) => jsonOf(database.openRevs(ADMIN, 'x', given, {}))
    t.match(await open([last]), [{ ok: { _rev: last } }])
    t.same(await open([first]), [{ missing: first }])
    const bulk = await jsonOf(database.bulkGet(ADMIN, body({ docs: [{ id: 'x', rev: first }] }), {}))
    t.match(bulk.results[0].docs[0], { error: { id: 'x', rev: first, error: 'not_found' } })
    t.equal(Buffer.from(await database.revsDiff(ADMIN, body({ x: revs }))).toString(), '{}\n')
    await t.rejects(
      database.copy(ADMIN, { id: 'x', rev: first }, { id: 'y' }),
      { code: 'not_found' },
      'a purged revision cannot be copied',
    )
  })

  t.test(`later writes have the same results as without a compaction (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { put, get, replicate, database } = opened
    const [, second = ''] = await edited(opened, 'x', 2)
    await compact(opened)
    const third = await put('x', { _rev: second, n: 2, _attachments: { file: { stub: true } } })
    t.match(await get('x', { attachments: true }), { n: 2, _attachments: { file: { data: 'MQ==' } } })
    await database.remove(ADMIN, 'x', third)
    await compact(opened)
    await t.rejects(get('x'), { code: 'deleted' })
    await put('x', { n: 'again' })
    t.match(await get('x'), { _rev: /^5-/ })
    await replicate('x', { start: 3, ids: ['branch', second.slice(2)], doc: { n: 'other' } })
    t.match(await get('x', { conflicts: true }), { _conflicts: ['3-branch'] })
    await compact(opened)
    t.match(await get('x', { rev: '3-branch' }), { n: 'other' }, 'every leaf stays')
    await replicate('x', { start: 2, ids: [second.slice(2)], doc: { n: 'late' } })
    await t.rejects(get('x', { rev: second }), { code: 'not_found' }, 'an inner revision gets no body again')
  })

  t.test(`a download under way continues (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, put } = opened
    const bytes = Buffer.alloc(700_000, 'settee')
    const rev = await put('x', { _attachments: { file: { data: bytes.toString('base64') } } })
    const found = await database.openAttachment(ADMIN, 'x', 'file', undefined)
    const reading = database.readAttachment(found, 0, found.storedLength)[Symbol.asyncIterator]()
    const chunks = [(await reading.next()).value]
    await put('x', { _rev: rev })
    await compact(opened)
    for (let next = await reading.next(); !next.done; next = await reading.next()) chunks.push(next.value)
    t.equal(Buffer.concat(chunks).length, found.storedLength)
    await compact(opened)
    await t.rejects(text(database.readAttachment(found, 0, 1)), { code: 'no_attachment' })
  })

  t.test(`the information object shows a running compaction (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, store } = opened
    await edited(opened, 'x', 3)
    await database.compact(ADMIN)
    t.match(await database.info(ADMIN), { compact_running: true })
    await store.compact()
    t.match(await database.info(ADMIN), { compact_running: false })
  })
}

t.test('only admins of the database can start a compaction', async (t) => {
  const opened = await openDatabase()
  const { database, store } = opened
  const refusal = 'You are not a server or db admin.'
  await t.rejects(database.compact(ANNA), { code: 'forbidden' })
  await t.rejects(database.compact(NOBODY), { code: 'unauthorized' })
  await database.setSecurity(ADMIN, { admins: { names: ['root'] }, members: { names: ['anna'] } })
  await t.rejects(database.compact(ANNA), { code: 'unauthorized', reason: refusal })
  await database.setSecurity(ADMIN, { members: { names: [], roles: [] } })
  await t.rejects(database.compact(NOBODY), { code: 'unauthorized', reason: refusal })
  t.equal((await store.info()).compacting, false)
  await database.setSecurity(ADMIN, { admins: { names: ['anna'] } })
  await database.compact(ANNA)
  t.equal((await store.info()).compacting, true)
  await store.compact()
})

// Purging random leaves of random histories has the same result as merging only the other branches.

const IDS = ['a', 'b', '_design/c'] as const

type Step =
  | { readonly kind: 'arrival'; readonly id: string; readonly arrival: Arrival }
  /** Leaves by their index, modulo their number plus one. The last index names a revision that is not a leaf. */
  | { readonly kind: 'purge'; readonly picks: readonly { readonly id: string; readonly leaf: number }[] }
  | { readonly kind: 'compact' }

const id = fc.constantFrom(...IDS)
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .tuple(id, arrivals(1))
      .map(([of, [arrival]]): Step => ({ kind: 'arrival', id: of, arrival: arrival as Arrival })),
  },
  {
    weight: 3,
    arbitrary: fc
      .array(fc.record({ id, leaf: fc.nat(5) }), { minLength: 1, maxLength: 4 })
      .map((picks): Step => ({ kind: 'purge', picks })),
  },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'compact' }) },
)

interface ModelDoc {
  branches: Branch[]
  seq: number
}

class Model {
  readonly docs = new Map<string, ModelDoc>()
  updateSeq = 0
  purgeSeq = 0
  designVersion = 0

  write(of: string, branches: Branch[]): void {
    const before = this.docs.get(of)
    const moves = leaves(branches) !== leaves(before?.branches ?? [])
    if (moves) this.updateSeq += 1
    this.docs.set(of, { branches, seq: moves || before === undefined ? this.updateSeq : before.seq })
  }

  /** @returns the leaves to purge */
  purgeRevs(of: string, revs: readonly string[]): string[] {
    const all = this.docs.get(of)?.branches ?? []
    const purged = [...new Set(revs)].filter((rev) => all.some((branch) => leafRev(branch) === rev))
    if (purged.length === 0) return []
    this.purgeSeq += 1
    const rest = all.filter((branch) => !purged.includes(leafRev(branch)))
    if (rest.length === 0) this.docs.delete(of)
    else this.write(of, remerged(rest))
    return purged
  }

  feed(): string[] {
    const rows = [...this.docs].sort(([, a], [, b]) => a.seq - b.seq)
    return rows.map(([of, { seq, branches }]) => `${seq} ${of} ${leafRev(winner(branches) as Branch)}`)
  }
}

function leaves(branches: readonly Branch[]): string {
  return branches.map(leafRev).sort().join()
}

/** The document as if only these branches had been written. */
function remerged(branches: readonly Branch[]): Branch[] {
  return branches.reduce<Branch[]>((merged, branch) => merge(merged, branch, 1000).branches, [])
}

async function take(opened: Opened, model: Model, world: readonly Node[], step: Step): Promise<void> {
  if (step.kind === 'compact') return opened.store.compact()
  if (step.kind === 'purge') return purgeRevs(opened, model, step.picks)
  const nodes = path(world, step.arrival)
  const leaf = nodes[0] as Node
  const ids = nodes.map((node) => node.id)
  const given = { start: leaf.pos, ids, deleted: leaf.deleted, doc: { of: leaf.id } }
  assert.deepEqual(await opened.replicate(step.id, given), [])
  const before = model.docs.get(step.id)?.branches ?? []
  model.write(step.id, merge(before, makeBranch(leaf.pos, ids, leaf.deleted), 1000).branches)
}

async function purgeRevs(
  opened: Opened,
  model: Model,
  picks: Extract<Step, { kind: 'purge' }>['picks'],
): Promise<void> {
  const request: Record<string, string[]> = {}
  for (const { id: of, leaf } of picks) {
    const branches = model.docs.get(of)?.branches ?? []
    const picked = branches[leaf % (branches.length + 1)]
    const inner = branches.flatMap(({ pos, ids }) => (ids.length > 1 ? `${pos - 1}-${ids[1]}` : []))
    request[of] = [...(request[of] ?? []), picked === undefined ? (inner[0] ?? '9-none') : leafRev(picked)]
  }
  const { purged } = parse(await opened.database.purge(ADMIN, body(request)))
  const wanted = Object.entries(request).map(([of, revs]) => [of, model.purgeRevs(of, revs)])
  assert.deepEqual(purged, Object.fromEntries(wanted))
}

async function check({ store }: Opened, model: Model, world: readonly Node[]): Promise<void> {
  const found = await store.readDocs(IDS, (doc) =>
    doc === null
      ? null
      : {
          branches: doc.branches.map(({ pos, ids, deleted }) => makeBranch(pos, [...ids], deleted)),
          winner: [doc.rev, doc.deleted, doc.seq],
          bodies: doc.branches.map((branch) => doc.body(leafRev(branch))),
          rows: doc.revisions().map(({ rev }) => rev),
        },
  )
  for (const [at, of] of IDS.entries()) {
    const [doc, wanted] = [found[at] ?? null, model.docs.get(of)]
    if (doc === null || wanted === undefined) {
      assert.deepEqual([doc, wanted], [null, undefined])
      continue
    }
    assert.deepEqual(show(doc.branches), show(wanted.branches))
    const best = winner(wanted.branches) as Branch
    assert.deepEqual(doc.winner, [leafRev(best), best.deleted, wanted.seq])
    assert.ok(doc.bodies.every((text) => text !== null))
    for (const node of world) {
      assert.equal(isKnown(doc.branches, node), isKnown(wanted.branches, node), nodeKey(node))
    }
    assert.ok(
      doc.rows.every((rev) => isKnown(wanted.branches, parsedRev(rev))),
      'no row of what is unknown',
    )
  }
  await checkCounts(store, model)
}

async function checkCounts(store: Opened['store'], model: Model): Promise<void> {
  const feed = await store.readChanges(
    { since: 0 },
    { limit: 100 },
    (doc) => `${doc.seq} ${doc.id} ${doc.rev}`,
  )
  assert.deepEqual(feed.rows, model.feed())
  const { updateSeq, docCount, deletedCount, purgeSeq, sizes } = await store.info()
  const dead = [...model.docs.values()].filter(({ branches }) => winner(branches)?.deleted).length
  assert.deepEqual(
    [updateSeq, purgeSeq, docCount, deletedCount],
    [model.updateSeq, model.purgeSeq, model.docs.size - dead, dead],
  )
  const bytes = [...model.docs.values()].flatMap(({ branches }) =>
    branches.map(({ leaf }) => `{"of":"${leaf}"}`.length),
  )
  assert.equal(
    sizes.external,
    bytes.reduce((sum, length) => sum + length, 0),
  )
  for (let since = 0; since <= updateSeq; since += 1) {
    const above = [...model.docs.values()].filter(({ seq }) => seq > since).length
    assert.equal(await store.countChanges(since), above, `pending above ${since}`)
  }
}

function parsedRev(rev: string): { pos: number; id: string } {
  const dash = rev.indexOf('-')
  return { pos: Number(rev.slice(0, dash)), id: rev.slice(dash + 1) }
}

for (const [name, make] of Object.entries(ENGINES)) {
  t.test(`purging has the same result as merging only the remaining branches (${name})`, async (t) => {
    const numRuns = name === 'memory' ? 200 : 60
    await fc.assert(
      fc.asyncProperty(worlds(15), fc.array(STEP, { minLength: 1, maxLength: 20 }), async (world, steps) => {
        const engine = await make(t)
        const opened = await openOn(engine)
        const model = new Model()
        for (const step of steps) {
          await take(opened, model, world, step)
          await check(opened, model, world)
        }
        await engine.close()
      }),
      { numRuns },
    )
  })
}
