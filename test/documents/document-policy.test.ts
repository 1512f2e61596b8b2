/** The policy of hosted mode, quotas and full disks: which writes a database refuses. */
import t, { type Test } from 'tap'
import { HOSTED_POLICY } from '../../src/config/settings.ts'
import {
  type Allowance,
  DEFAULT_LIMITS,
  DEFAULT_RULES,
  type DocumentPolicy,
  type UserCtx,
} from '../../src/core/types.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from '../../src/documents/auth-design.ts'
import {
  dependsOnCounts,
  exactNearLimit,
  isBuiltInDesign,
  policyRefusals,
  policySandbox,
} from '../../src/documents/document-policy.ts'
import type { IncomingDoc } from '../../src/documents/incoming-document.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import type { DocState, StoreView } from '../../src/storage/engine.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
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
  parse,
  replicated,
  spooled,
} from './helpers.ts'

/** The same store with a policy that allows everything (`before`), and with the policy of hosted mode. */
async function openHosted(name: string) {
  const engine = memoryEngine()
  const { incarnation } = await (await engine.openCatalog()).create(name)
  const opened = await engine.openDatabase(name)
  const staged: string[] = []
  const store: VersionedStore = new Proxy(opened, {
    get: (target, member: keyof VersionedStore) => {
      if (member === 'uploadBlob') staged.push(member)
      const value = target[member]
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const make = (policy: DocumentPolicy) =>
    storeDatabase(store, {
      name,
      limits: () => DEFAULT_LIMITS,
      rules: () => ({ ...DEFAULT_RULES, policy }),
      onSecured: () => undefined,
      sandbox: policySandbox(policy, localSandbox(), name),
      incarnation,
      startCompaction: async () => undefined,
    })
  return { before: make(DEFAULT_RULES.policy), hosted: make(HOSTED_POLICY), store, staged }
}

const AUTH = JSON.parse(AUTH_DESIGN_BODY) as Record<string, unknown>
const doc = (body: string, deleted = false) => ({ body, deleted, attachments: [] })

const refusal = (database: string, edit: Parameters<typeof policyRefusals>[2][number]) =>
  policyRefusals(HOSTED_POLICY, database, [edit])?.[0] ?? null

t.test('_design/_auth of _users is exempt, exactly as settee has it', (t) => {
  t.equal(refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY) }), null)
  const attachments = [{ name: 'a', type: 'text/plain', revpos: undefined, content: null }]
  const refused = [
    refusal('users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY) }),
    refusal('_users', { id: '_design/auth', doc: doc(AUTH_DESIGN_BODY) }),
    refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY.replace('}', ',"x":1}')) }),
    refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY, true) }),
  ]
  for (const found of refused) t.match(found, { code: 'hosted_design', status: 403, error: 'forbidden' })
  t.match(refusal('_users', { id: AUTH_DESIGN_ID, doc: { ...doc(AUTH_DESIGN_BODY), attachments } }), {
    code: 'hosted_attachment',
  })
  t.equal(isBuiltInDesign('_users', AUTH_DESIGN_ID, '{}'), false)
  t.end()
})

t.test('every method accepts it, but no method accepts its tombstone', async (t) => {
  for (const newEdits of [true, false]) {
    const { hosted } = await openHosted('_users')
    const rev = newEdits ? {} : { _rev: '1-abc' }
    const docs = [{ _id: AUTH_DESIGN_ID, ...rev, ...AUTH }]
    await jsonOf(hosted.bulkDocs(ADMIN, body({ docs, new_edits: newEdits })))
    const stored = parse((await hosted.open(ADMIN, AUTH_DESIGN_ID, {})).json)
    t.match(stored, AUTH)
    await t.rejects(hosted.remove(ADMIN, AUTH_DESIGN_ID, stored._rev), { code: 'hosted_design' })
    const other = { ...AUTH, validate_doc_update: 'function () {}', _rev: stored._rev }
    await t.rejects(hosted.put(ADMIN, AUTH_DESIGN_ID, body(other), {}), { code: 'hosted_design' })
  }
  const { hosted } = await openHosted('_users')
  t.match(await hosted.put(ADMIN, AUTH_DESIGN_ID, body(AUTH), {}), { rev: /^1-/ })
})

t.test('stored validate functions do not run', async (t) => {
  const { before, hosted } = await openHosted('_users')
  const no = { validate_doc_update: 'function () { throw { forbidden: "it has run" } }' }
  await before.put(ADMIN, '_design/no', body(no), {})
  await before.put(ADMIN, AUTH_DESIGN_ID, body({ ...AUTH, ...no }), {})
  t.match(await hosted.put(ADMIN, 'x', body({}), {}), { rev: /^1-/ })
  await t.rejects(before.put(ADMIN, 'y', body({}), {}), { code: 'forbidden', reason: 'it has run' })
})

t.test('a policy that allows everything has no refusals', (t) => {
  const edits = [{ id: '_design/d', doc: doc('{}'), attachment: 'a' }]
  t.equal(policyRefusals(DEFAULT_RULES.policy, 'notes', edits), null)
  t.end()
})

t.test('the sandbox refuses all functions except settee’s own', async (t) => {
  const calls: string[] = []
  const asked = (name: string) => async () => {
    calls.push(name)
    return []
  }
  const inner = {
    compile: async () => void calls.push('compile'),
    filter: asked('filter'),
    map: asked('map'),
    mapViews: asked('mapViews'),
    reduce: asked('reduce'),
    validate: asked('validate'),
    render: async () => String(calls.push('render')),
    list: async () => String(calls.push('list')),
  } satisfies Sandbox
  const source = `{"_id":"${AUTH_DESIGN_ID}","_rev":"1-a",${AUTH_DESIGN_BODY.slice(1)}`
  const own = { database: 1, ddoc: AUTH_DESIGN_ID, rev: '1-a', path: ['validate_doc_update'], source }
  const all = (sandbox: Sandbox, fn: typeof own): Promise<unknown>[] => [
    sandbox.compile(fn),
    sandbox.filter(fn, [], '{}'),
    sandbox.map(fn, []),
    sandbox.mapViews(fn, []),
    sandbox.reduce(fn, []),
    sandbox.validate(fn, []),
    sandbox.render('show', fn, []),
    sandbox.list(fn, [], async () => ''),
  ]
  for (const [database, fn] of [
    ['notes', own],
    ['_users', { ...own, ddoc: '_design/other' }],
    ['_users', { ...own, source: source.replace('}', ',"x":1}') }],
    ['_users', { ...own, rev: '2-b' }],
  ] as const) {
    for (const call of all(policySandbox(HOSTED_POLICY, inner, database), fn)) {
      await t.rejects(call as Promise<void>, { code: 'hosted_function' })
    }
  }
  t.same(calls, [])
  await Promise.all(all(policySandbox(HOSTED_POLICY, inner, '_users'), own))
  t.same(calls, ['compile', 'filter', 'map', 'mapViews', 'reduce', 'validate', 'render', 'list'])
})

t.test('contents are neither read nor staged', async (t) => {
  const { hosted, store, staged } = await openHosted('notes')
  const large = Buffer.alloc(700_000, 'settee')
  const put = { type: 'text/plain', encoding: null }
  await t.rejects(hosted.putAttachment(ADMIN, 'x', 'a', { bytes: large }, put), { code: 'hosted_attachment' })
  await t.rejects(
    hosted.putAttachment(ADMIN, 'x', 'a', await spooled(t, large), { ...put, encoding: 'gzip' }),
    {
      code: 'hosted_attachment',
    },
  )
  const odd = [{ data: 'no base64' }, { data: 5 }, 7, { stub: true, revpos: -1 }, { content_type: 1 }]
  for (const a of odd) {
    await t.rejects(hosted.put(ADMIN, 'x', body({ _attachments: { a } }), {}), { code: 'hosted_attachment' })
  }
  await t.rejects(hosted.put(ADMIN, 'x', body({ _attachments: [] }), {}), { code: 'doc_validation' })
  t.same(staged, [])
  t.equal(await store.countAttachments(10), 0)
  t.equal((await hosted.info(ADMIN)).sizes.external, 0)
})

t.test('errors of the whole request are reported first', async (t) => {
  const { hosted } = await openHosted('notes')
  const design = { _id: '_design/x' }
  const bulk = (docs: unknown[]) => jsonOf(hosted.bulkDocs(ADMIN, body({ docs })))
  await t.rejects(bulk([design, { _id: 'a', _bad: 1 }]), { code: 'doc_validation' })
  await t.rejects(bulk([design, { _id: '_design/' }]), { code: 'illegal_docid' })
  t.match(await bulk([design, { _id: 'a' }, design]), [
    { id: '_design/x', error: 'forbidden' },
    { ok: true },
    { id: '_design/x', error: 'forbidden' },
  ])
  const twice = [
    { _id: 'b', _attachments: { a: { stub: true } } },
    { _id: 'b', n: 1 },
  ]
  t.match(await bulk(twice), [{ error: 'forbidden' }, { ok: true, rev: /^1-/ }], 'as if it had not been sent')
})

t.test('users without the right to write get that error', async (t) => {
  const { hosted } = await openHosted('notes')
  const refused = { code: 'unauthorized' }
  await t.rejects(hosted.put(NOBODY, '_design/x', body({}), {}), refused)
  await t.rejects(hosted.put(NOBODY, 'x', body({ _attachments: { a: { stub: true } } }), {}), refused)
  await t.rejects(hosted.removeAttachment(NOBODY, 'x', 'a', undefined), refused)
  const put = { type: 'text/plain', encoding: null }
  await t.rejects(hosted.putAttachment(NOBODY, 'x', 'a', body('a'), put), refused)
})

t.test('documents from before the policy: a deletion is accepted, an edit drops attachments', async (t) => {
  const { before, hosted } = await openHosted('notes')
  const a = { data: Buffer.from('a').toString('base64') }
  const [one, two] = [
    await before.put(ADMIN, 'one', body({ _attachments: { a } }), {}),
    await before.put(ADMIN, 'two', body({ _attachments: { a } }), {}),
  ]
  t.same(await hosted.countDisallowed(), { designDocs: 0, attachments: 2 })
  await hosted.remove(ADMIN, 'one', one.rev)
  await hosted.put(ADMIN, 'two', body({ _rev: two.rev, n: 1 }), {})
  t.notMatch(parse((await hosted.open(ADMIN, 'two', {})).json), { _attachments: {} })
})

t.test('earlier contents are counted, except settee’s own design document', async (t) => {
  const { before, hosted } = await openHosted('_users')
  await before.put(ADMIN, AUTH_DESIGN_ID, body(AUTH), {})
  t.same(await hosted.countDisallowed(), { designDocs: 0, attachments: 0 })
  await before.put(ADMIN, '_design/x', body({}), {})
  t.same(await hosted.countDisallowed(), { designDocs: 1, attachments: 0 })
})

// The writes of an account that has used up its quota; docs/hosted.md.

/** A user whose databases have this many bytes and documents left, in addition to this database. */
async function userWith({ store }: Opened, left: Partial<Record<'bytes' | 'documents' | 'size', number>>) {
  const { sizes, docCount } = await store.info()
  const allowance: Allowance = {
    bytes: { limit: sizes.active + (left.bytes ?? Infinity), others: 0, here: sizes.active },
    documents: { limit: docCount + 7 + (left.documents ?? Infinity), others: 7 },
    indexes: { limit: Infinity, others: 0 },
    maxDocumentSize: left.size ?? Infinity,
  }
  return { ...ADMIN, allowance }
}

async function bulkAs({ database }: Opened, user: UserCtx, request: unknown): Promise<Json> {
  const chunks: Uint8Array[] = []
  for await (const chunk of database.bulkDocs(user, { bytes: Buffer.from(JSON.stringify(request)) })) {
    chunks.push(chunk)
  }
  return JSON.parse(Buffer.concat(chunks).toString())
}

function putAs({ database }: Opened, user: UserCtx, id: string, doc: unknown) {
  return database.put(user, id, { bytes: Buffer.from(JSON.stringify(doc)) }, {})
}

async function seeded(t: Test) {
  const opened = await openDatabase()
  const rev = await opened.put('a', { text: 'a'.repeat(3000) })
  await opened.put('b', { n: 1 })
  t.equal((await opened.store.info()).docCount, 2)
  return { ...opened, rev }
}

t.test('over the limit of bytes, only deletions are accepted', async (t) => {
  const opened = await seeded(t)
  const { rev } = opened
  const user = await userWith(opened, { bytes: 0 })
  await t.rejects(putAs(opened, user, 'c', {}), {
    code: 'forbidden',
    reason: /may store \d+ bytes and stores \d+/,
  })
  await t.rejects(putAs(opened, user, 'a', { _rev: rev }), { code: 'forbidden' })
  const docs = [
    { _id: 'new' },
    { _id: 'a', _rev: rev, _deleted: true, why: 'x'.repeat(2000) },
    { _id: 'never', _deleted: true },
  ]
  const rows = await bulkAs(opened, user, { docs })
  t.match(
    rows,
    [{ error: 'forbidden' }, { ok: true }, { error: 'forbidden' }],
    'a tombstone may say something of itself, but must be of something',
  )
  const revB = (await opened.get('b'))._rev
  t.match(await opened.database.remove(user, 'b', revB), { id: 'b' })
  t.equal((await opened.store.info()).docCount, 0)
})

t.test('a tombstone of a missing or deleted document counts as new data', async (t) => {
  const opened = await seeded(t)
  const user = await userWith(opened, { bytes: 0 })
  const never = { _id: 'x1', _deleted: true, x: 'x'.repeat(1000) }
  await t.rejects(putAs(opened, user, 'x1', never), { code: 'forbidden' })
  const revision = { ...never, _revisions: { start: 1, ids: ['f'] } }
  t.match(await bulkAs(opened, user, { docs: [never] }), [{ error: 'forbidden' }])
  t.match(await bulkAs(opened, user, { new_edits: false, docs: [revision] }), [{ error: 'forbidden' }])
  const gone = { _id: 'b', _deleted: true, x: 'x'.repeat(1000) }
  const { _rev } = await opened.get('b')
  const [row] = await bulkAs(opened, user, { docs: [{ ...gone, _rev }] })
  t.match(row, { ok: true })
  const again = await bulkAs(opened, user, { docs: [{ ...gone, _rev: row.rev }, gone] })
  t.match(again, [{ error: 'conflict' }, { error: 'conflict' }], 'a tombstone cannot be deleted again')
  t.equal((await opened.store.info()).docCount, 1)
})

t.test('tombstones cannot be used to store more data', async (t) => {
  const opened = await seeded(t)
  const { rev } = opened
  const user = await userWith(opened, { bytes: 0 })
  const replicated = (docs: unknown[]) => bulkAs(opened, user, { new_edits: false, docs })
  const gone = (_id: string, _rev: string, more: object = {}) => ({ _id, _rev, _deleted: true, ...more })
  const [, hash = ''] = rev.split('-')
  const ids = (id: string) => ({ _revisions: { start: 2, ids: [id, hash] } })
  t.match(
    await replicated([
      gone('unknown', '2-b', { _revisions: { start: 2, ids: ['b', 'a'] } }),
      gone('a', '5-e'),
      gone('a', '2-large', { ...ids('large'), text: 'x'.repeat(5000) }),
    ]),
    [
      { id: 'unknown', error: 'forbidden' },
      { id: 'a', error: 'forbidden' },
      { id: 'a', error: 'forbidden' },
    ],
    'of what is not here, of no leaf, larger than what it deletes',
  )
  t.same(await replicated([gone('a', '2-d', ids('d'))]), [], 'one that ends a leaf is taken')
  t.same(await replicated([gone('a', '2-d', ids('d'))]), [], 'a known deletion is accepted without an error')
  const later = await userWith(opened, { bytes: 0 })
  const second = { new_edits: false, docs: [gone('a', '2-f', ids('f'))] }
  t.match(await bulkAs(opened, later, second), [{ error: 'forbidden' }], 'no second one')
})

const hashes = (count: number, prefix: string) =>
  Array.from({ length: count }, (_, n) => `${prefix}${n}`.padEnd(32, '0'))

t.test('ancestors count, with whatever they come', async (t) => {
  const opened = await seeded(t)
  const push = (user: UserCtx, _id: string, ids: readonly string[], more: object = {}) => {
    const doc = { _id, _revisions: { start: 1000, ids }, ...more }
    return bulkAs(opened, user, { new_edits: false, docs: [doc] })
  }
  const stored = hashes(2, 'e')
  t.same(await push(ADMIN, 'small', stored), [])
  t.same(await push(ADMIN, 'large', stored, { text: 'x'.repeat(5000) }), [])
  const user = await userWith(opened, { bytes: 0 })
  const refused = [{ error: 'forbidden' }]
  const older = [...stored, ...hashes(100, 'a')]
  t.match(await push(user, 'small', older), refused, 'older ones of a stored revision')
  t.match(await push(user, 'small', older.slice(1)), refused, 'older ones of an ancestor')
  t.same(await push(user, 'small', stored.slice(0, 1)), [], 'fewer')
  const end = (count: number) => ({
    _revisions: { start: 1000 + count, ids: [...hashes(count, 'b'), ...stored] },
  })
  const gone = (count: number) => ({ ...end(count), _deleted: true })
  t.match(await push(user, 'small', [], gone(100)), refused, 'a long history of a deletion is refused')
  t.match(
    await push(user, 'small', [], { _deleted: true, _revisions: { start: 1001, ids: ['c', ...older] } }),
    refused,
    'older ones that come with a deletion',
  )
  t.same(await push(user, 'small', [], gone(30)), [], 'a deletion after a few edits')
  t.same(await push(user, 'large', [], gone(100)), [], 'no more than what it deletes')
})

t.test('a known revision changes nothing and is not refused', async (t) => {
  const opened = await seeded(t)
  const user = await userWith(opened, { bytes: 0 })
  const docs = [
    { _id: 'a', _rev: opened.rev },
    { _id: 'new', _rev: '1-a' },
  ]
  t.match(await bulkAs(opened, user, { new_edits: false, docs }), [
    { id: 'new', rev: '1-a', error: 'forbidden' },
  ])
})

t.test('over the limit of documents, new documents are refused and edits are accepted', async (t) => {
  const opened = await seeded(t)
  const gone = await opened.put('gone', { _deleted: true })
  t.ok(gone)
  const user = await userWith(opened, { documents: 1 })
  const docs = [
    { _id: 'new' },
    { _id: 'one-too-many' },
    { _id: 'a', _rev: opened.rev, edited: true },
    { _id: 'gone' },
    { _id: 'tombstone', _deleted: true },
  ]
  const rows = await bulkAs(opened, user, { docs })
  t.match(rows[0], { ok: true }, 'as many as there is room for')
  t.match(rows[1], { error: 'forbidden', reason: /may store 10 documents and stores 10/ })
  t.match(rows[2], { ok: true })
  t.match(rows[3], { error: 'forbidden' }, 'one that comes back counts as new')
  t.match(rows[4], { ok: true })
})

t.test('a document over the size limit of its owner', async (t) => {
  const opened = await seeded(t)
  const user = await userWith(opened, { size: 1000 })
  const docs = [
    { _id: 'large', text: 'x'.repeat(1000) },
    { _id: 'small', text: 'x'.repeat(100) },
  ]
  t.match(await bulkAs(opened, user, { docs }), [
    { error: 'forbidden', reason: /has 1011 bytes; .* up to 1000 bytes/ },
    { ok: true },
  ])
  await t.rejects(putAs(opened, user, 'wide', { text: 'ä'.repeat(600) }), { code: 'forbidden' })
  await t.rejects(putAs(opened, user, '_local/x', { text: 'x'.repeat(1000) }), { code: 'forbidden' })
})

t.test('small _local documents are accepted, new ones up to a limit', async (t) => {
  const opened = await seeded(t)
  await opened.put('_local/old', { n: 1 })
  const full = await userWith(opened, { bytes: 0 })
  t.match(await putAs(opened, full, '_local/new', { n: 1 }), { id: '_local/new' })
  t.match(await putAs(opened, full, '_local/old', { text: 'x'.repeat(60_000) }), { id: '_local/old' })
  await t.rejects(putAs(opened, full, '_local/new2', { text: 'x'.repeat(70_000) }), { code: 'forbidden' })
  const beyond = await userWith(opened, { bytes: -17 * 1024 * 1024 })
  t.match(await putAs(opened, beyond, '_local/old', { n: 2 }), { id: '_local/old' })
  await t.rejects(putAs(opened, beyond, '_local/new2', { n: 1 }), { code: 'forbidden' })
  t.match(await opened.database.remove(beyond, '_local/new', '0-1'), { deleted: true })
})

t.test('the size is measured again near a limit', async (t) => {
  const opened = await seeded(t)
  const { sizes } = await opened.store.info()
  const stale = await userWith(opened, { bytes: 100_000 })
  const thought = { ...stale.allowance.bytes, here: sizes.active + 1_000_000 }
  const user = { ...stale, allowance: { ...stale.allowance, bytes: thought } }
  t.match(await putAs(opened, user, 'c', {}), { id: 'c' }, 'a compaction has made room since')
})

t.test('a bulk of many groups ends at the limit', async (t) => {
  const opened = await seeded(t)
  const user = await userWith(opened, { bytes: 3_000_000 })
  const docs = Array.from({ length: 20 }, (_, at) => ({ _id: `large ${at}`, text: 'x'.repeat(500_000) }))
  const rows: Json[] = await bulkAs(opened, user, { docs })
  const stored = rows.filter(({ ok }) => ok).length
  t.equal(stored, 5, 'the sixth would pass it')
})

t.test('far from every limit nothing is measured', async (t) => {
  const opened = await seeded(t)
  const user = await userWith(opened, { bytes: 1_000_000, documents: 10, size: 100_000 })
  const measure = async () => t.fail('it was measured')
  const doc = { id: undefined, path: null, deleted: false, body: '{}', attachments: [] }
  t.equal(await exactNearLimit(measure as never, user, [{ id: 'a', doc }]), user)
})

// Histories, which take space beside bodies.

/** The `_revisions` of a replicated document, newest first, with ids of this length. */
function history(start: number, last: string, length = 32) {
  const older = Array.from({ length: start - 1 }, (_, at) => `${start - 1 - at}`.padStart(length, 'f'))
  return { start, ids: [last, ...older] }
}

async function replicateAs(opened: Opened, user: UserCtx, docs: unknown[]): Promise<Json[]> {
  return bulkAs(opened, user, { new_edits: false, docs })
}

t.test('long ids of ancestors count with all their bytes', async (t) => {
  const opened = await seeded(t)
  const { start, ids } = history(200, 'x'.repeat(500), 500)
  const known = { _id: 'known', _revisions: { start, ids: ids.slice(0, 1) } }
  await replicateAs(opened, ADMIN, [known])
  const longer = [{ ...known, _revisions: { start, ids } }]
  const refused = await replicateAs(opened, await userWith(opened, { bytes: 50_000 }), longer)
  t.match(refused, [{ id: 'known', error: 'forbidden' }])
  t.same(await replicateAs(opened, await userWith(opened, { bytes: 150_000 }), longer), [])
})

t.test('conflicts that take over a long stored history end at the limit', async (t) => {
  const opened = await seeded(t)
  const long = { _id: 'long', _revisions: history(1000, 'x', 500) }
  await replicateAs(opened, ADMIN, [long])
  const [, parent] = history(1000, 'x', 500).ids
  const conflicts = Array.from({ length: 100 }, (_, at) => ({
    _id: 'long',
    _revisions: { start: 1000, ids: [`conflict ${at}`, parent] },
  }))
  const before = (await opened.store.info()).sizes.active
  const limit = 20_000_000
  const rows = await replicateAs(opened, await userWith(opened, { bytes: limit }), conflicts)
  t.ok(rows.length > 90, `${rows.length} of 100 are refused`)
  const grown = (await opened.store.info()).sizes.active - before
  t.ok(grown <= limit / 16, `${grown} bytes are stored, by one of 16 requests at once`)
})

t.test('the _local documents of one request are added up', async (t) => {
  const opened = await seeded(t)
  const docs = Array.from({ length: 40 }, (_, at) => ({ _id: `_local/${at}`, text: 'x'.repeat(20_000) }))
  const full = await userWith(opened, { bytes: -16 * 1024 * 1024 + 200_000 })
  const rows = await bulkAs(opened, full, { docs })
  const stored = rows.filter(({ error }: Json) => error === undefined).length
  t.ok(stored >= 8 && stored <= 11, `${stored} of 40 are stored`)
  const small = Array.from({ length: 40 }, (_, at) => ({ _id: `_local/small ${at}` }))
  await bulkAs(opened, ADMIN, { docs: small })
  const grown = small.map((doc) => ({ ...doc, text: 'x'.repeat(50_000) }))
  const beyond = await userWith(opened, { bytes: -33 * 1024 * 1024 })
  const refused = (await bulkAs(opened, beyond, { docs: grown })).filter(
    ({ error }: Json) => error === 'forbidden',
  )
  t.equal(refused.length, 40, 'stored documents do not grow beyond the quota')
})

// The writes that a database accepts while its disk is full.

const REFUSED = { code: 'insufficient_storage', reason: /MB are free/ }
const ROW = { error: 'insufficient_storage', reason: /MB are free/ }

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(name, async (t) => {
    const engine = await makeEngine(t)
    const { incarnation } = await (await engine.openCatalog()).create('notes')
    const store = await engine.openDatabase('notes')
    const disk = { free: 100, floor: 0 }
    const database = storeDatabase(store, {
      name: 'notes',
      limits: () => DEFAULT_LIMITS,
      rules: () => DEFAULT_RULES,
      space: () => disk,
      onSecured: () => undefined,
      sandbox: localSandbox(),
      incarnation,
      startCompaction: async () => undefined,
    })
    const put = (id: string, doc: object = {}) => database.put(ADMIN, id, body(doc), {})
    const bulk = (request: object): Promise<Json> => jsonOf(database.bulkDocs(ADMIN, body(request)))
    const { rev } = await put('a', { text: 'a' })
    const b = await put('b')
    const c = await put('c')
    const stored = hashes(1, 'e')
    await bulk({ new_edits: false, docs: [replicated('e', { start: 1000, ids: stored })] })
    const file = { type: 'text/plain', encoding: null }
    const withFile = await database.putAttachment(ADMIN, 'd', 'file', body('content'), file)
    disk.floor = 1000

    t.test('writes that make the database grow are refused', async (t) => {
      await t.rejects(put('new'), REFUSED)
      await t.rejects(put('a', { _rev: rev }), REFUSED)
      await t.rejects(database.post(ADMIN, body({})), REFUSED)
      await t.rejects(database.copy(ADMIN, { id: 'a' }, { id: 'copy' }), REFUSED)
      await t.rejects(database.putAttachment(ADMIN, 'a', 'file', body('x'), { ...file, rev }), REFUSED)
      await t.rejects(
        database.putAttachment(ADMIN, 'a', 'file', body('x'.repeat(1e6)), { ...file, rev }),
        REFUSED,
      )
      await t.rejects(
        put('a', { _rev: rev, _deleted: true, text: 'x'.repeat(5000) }),
        REFUSED,
        'a large tombstone',
      )
      await t.rejects(
        bulk({
          new_edits: false,
          docs: [replicated('e', { start: 1000, ids: [...stored, ...hashes(100, 'a')] })],
        }),
        REFUSED,
        'older ancestors of a stored revision',
      )
      await t.rejects(
        put('a', { _rev: '1-abc' }),
        { code: 'conflict' },
        'a conflict is reported as a conflict',
      )
    })

    t.test('a user without the right to write gets that error', async (t) => {
      await database.setSecurity(ADMIN, { members: { names: ['bob'] } })
      await t.rejects(database.put(ANNA, 'new', body({}), {}), { code: 'forbidden' })
      await database.setSecurity(ADMIN, {})
    })

    t.test('a bulk has a row for each refusal, and a push with a refusal fails as a whole', async (t) => {
      const gone = { _id: 'b', _rev: b.rev, _deleted: true }
      t.match(await bulk({ docs: [{ _id: 'new' }, gone] }), [
        { id: 'new', ...ROW },
        { ok: true, id: 'b' },
      ])
      await t.rejects(bulk({ docs: [{ _id: 'new' }] }), REFUSED)
      const known = replicated('a', { start: 1, ids: [rev.slice(2)], doc: { text: 'a' } })
      const tombstone = replicated('c', { start: 2, ids: ['f'.repeat(32), c.rev.slice(2)], deleted: true })
      t.same(await bulk({ new_edits: false, docs: [known] }), [], 'a known revision is accepted')
      await t.rejects(bulk({ new_edits: false, docs: [{ _id: 'new', _rev: '1-a' }, tombstone] }), REFUSED)
      await t.rejects(database.open(ADMIN, 'c', {}), { code: 'deleted' }, 'its deletions are stored')
    })

    t.test('writes that free space are accepted', async (t) => {
      await t.resolves(database.removeAttachment(ADMIN, 'd', 'file', withFile.rev))
      await t.resolves(database.put(ADMIN, '_local/checkpoint', body({ last: 1 }), {}))
      await t.resolves(database.setRevsLimit(ADMIN, 10))
      await t.resolves(database.remove(ADMIN, 'a', rev))
      t.match(await jsonOf(database.allDocs(ADMIN, 'all', {}, null)), { total_rows: 2 })
      await t.resolves(database.compact(ADMIN))
    })

    t.test('when there is space again, every write is accepted', async (t) => {
      disk.floor = 0
      await t.resolves(put('new'))
      t.same(await bulk({ new_edits: false, docs: [{ _id: 'pushed', _rev: '1-a' }] }), [])
    })
  })
}

t.test('only a new document close to the limit of documents depends on how many there are', (t) => {
  const allowance: Allowance = {
    bytes: { limit: 1e9, others: 0, here: 0 },
    documents: { limit: 100_000, others: 50_000 },
    indexes: { limit: 1, others: 0 },
    maxDocumentSize: 1e6,
  }
  const depends = (docCount: number, doc: unknown, deleted = false) =>
    dependsOnCounts(allowance, { docCount } as StoreView, doc as DocState | null, [
      { doc: { deleted } as IncomingDoc },
    ])
  t.equal(depends(39_000, null), false)
  t.equal(depends(41_000, null), true)
  t.equal(depends(41_000, { deleted: true }), true)
  t.equal(depends(41_000, { deleted: false }), false)
  t.equal(depends(41_000, null, true), false)
  t.end()
})
