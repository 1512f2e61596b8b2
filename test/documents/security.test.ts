/** Rights in a database: protocol.md 4.8, 11.4, 11.6, 19.7, and settee's own rule for absent `members`. */
import t from 'tap'
import type { SecurityObject, UserCtx } from '../../src/core/types.ts'
import { databaseRole } from '../../src/documents/security.ts'
import { ADMIN, ANNA, body, jsonOf, NOBODY, type Opened, openDatabase, text } from './helpers.ts'

const OTHER: UserCtx = { name: 'otto', roles: ['staff'] }
const DB_ADMIN: UserCtx = { name: 'dora', roles: [] }
const SECURITY: SecurityObject = { admins: { names: ['dora'] }, members: { names: ['anna'] } }

const ROLES: [
  name: string,
  security: SecurityObject | null,
  anna: string,
  staff: string,
  anonymous: string,
][] = [
  ['none was ever set', null, 'none', 'none', 'none'],
  ['an empty object', {}, 'none', 'none', 'none'],
  ['admins alone: members absent is closed', { admins: { names: ['anna'] } }, 'admin', 'none', 'none'],
  ['members with empty lists: public', { members: { names: [], roles: [] } }, 'member', 'member', 'member'],
  ['members with no lists: public', { members: {} }, 'member', 'member', 'member'],
  ['a member by name', { members: { names: ['anna'] } }, 'member', 'none', 'none'],
  ['a member by role', { members: { roles: ['staff'] } }, 'none', 'member', 'none'],
  [
    'an admin by role',
    { admins: { roles: ['staff'] }, members: { names: ['anna'] } },
    'member',
    'admin',
    'none',
  ],
  [
    'an admin of a public database',
    { admins: { names: ['anna'] }, members: {} },
    'admin',
    'member',
    'member',
  ],
  ['readers where there are no members', { readers: { names: ['anna'] } }, 'member', 'none', 'none'],
  [
    'members before readers',
    { readers: { names: ['anna'] }, members: { roles: ['staff'] } },
    'none',
    'member',
    'none',
  ],
  [
    'CouchDB’s default',
    { admins: { roles: ['_admin'] }, members: { roles: ['_admin'] } },
    'none',
    'none',
    'none',
  ],
]

t.test('the role of a user in a database', async (t) => {
  for (const [name, security, anna, staff, anonymous] of ROLES) {
    t.same(
      [ANNA, OTHER, NOBODY].map((user) => databaseRole(user, security)),
      [anna, staff, anonymous],
      name,
    )
    t.equal(databaseRole(ADMIN, security), 'admin', `${name}: a server admin always is one`)
  }
})

interface Secured extends Opened {
  /** The first revision of an empty document. */
  readonly emptyRev: string
}

type Call = (opened: Secured, user: UserCtx) => Promise<unknown>

const MEMBER_CALLS: Record<string, Call> = {
  info: ({ database }, user) => database.info(user),
  revsLimit: ({ database }, user) => database.revsLimit(user),
  open: ({ database }, user) => database.open(user, 'x', {}),
  'open of what is not there': ({ database }, user) =>
    database.open(user, 'no', {}).catch((error) => {
      if (error.code !== 'not_found') throw error
    }),
  'open of a _local document': ({ database }, user) => database.open(user, '_local/x', {}),
  openRevs: ({ database }, user) => text(database.openRevs(user, 'x', 'all', {})),
  put: ({ database }, user) => database.put(user, 'new', body({}), {}),
  'put with new_edits=false': ({ database }, user) =>
    database.put(user, 'other', body({ _rev: '1-a' }), { newEdits: false }),
  'put of a _local document': ({ database }, user) => database.put(user, '_local/y', body({}), {}),
  post: ({ database }, user) => database.post(user, body({})),
  remove: ({ database, emptyRev }, user) => database.remove(user, 'gone', emptyRev),
  copy: ({ database }, user) => database.copy(user, { id: 'x' }, { id: 'copied' }),
  bulkDocs: ({ database }, user) => text(database.bulkDocs(user, body({ docs: [{}] }))),
  bulkGet: ({ database }, user) => text(database.bulkGet(user, body({ docs: [{ id: 'x' }] }), {})),
  'bulkGet of nothing': ({ database }, user) => text(database.bulkGet(user, body({ docs: [] }), {})),
  revsDiff: ({ database }, user) => database.revsDiff(user, body({ x: ['1-a'] })),
  'revsDiff of nothing': ({ database }, user) => database.revsDiff(user, body({})),
  missingRevs: ({ database }, user) => database.missingRevs(user, body({ x: ['1-a'] })),
  allDocs: ({ database }, user) => text(database.allDocs(user, 'all', {}, null)),
  'allDocs with keys': ({ database }, user) => text(database.allDocs(user, 'all', { keys: [] }, null)),
  localDocs: ({ database }, user) => text(database.allDocs(user, 'local', {}, null)),
  openAttachment: ({ database }, user) => database.openAttachment(user, 'x', 'a', undefined),
}

const ADMIN_CALLS: Record<string, Call> = {
  'put of a design document': ({ database }, user) => database.put(user, '_design/new', body({}), {}),
  'removal of a design document': ({ database, emptyRev }, user) =>
    database.remove(user, '_design/gone', emptyRev),
  'copy to a design document': ({ database }, user) => database.copy(user, { id: 'x' }, { id: '_design/c' }),
  setSecurity: ({ database }, user) => database.setSecurity(user, SECURITY),
  setRevsLimit: ({ database }, user) => database.setRevsLimit(user, 500),
}

async function secured(): Promise<Secured> {
  const opened = await openDatabase()
  await opened.put('x', { _attachments: { a: { data: '' } } })
  await opened.put('_local/x', {})
  await opened.put('gone', {})
  const emptyRev = await opened.put('_design/gone', {})
  await opened.database.setSecurity(ADMIN, SECURITY)
  return { ...opened, emptyRev }
}

const REFUSALS: [who: string, user: UserCtx, expected: { code: string; reason: string }][] = [
  ['anonymous', NOBODY, { code: 'unauthorized', reason: 'You are not authorized to access this db.' }],
  ['logged in', OTHER, { code: 'forbidden', reason: 'You are not allowed to access this db.' }],
]

t.test('every call for members is refused to other users and stores nothing', async (t) => {
  for (const [name, call] of Object.entries(MEMBER_CALLS)) {
    const opened = await secured()
    const before = await opened.store.view()
    for (const [who, user, expected] of REFUSALS)
      await t.rejects(call(opened, user), expected, `${name}, ${who}`)
    t.match(await opened.store.view(), { updateSeq: before.updateSeq }, name)
    for (const user of [ANNA, DB_ADMIN, ADMIN]) {
      await t.resolves(call(await secured(), user), `${name}, ${user.name}`)
    }
  }
})

t.test('every call for database admins is refused to members', async (t) => {
  for (const [name, call] of Object.entries(ADMIN_CALLS)) {
    const opened = await secured()
    for (const [who, user, expected] of REFUSALS)
      await t.rejects(call(opened, user), expected, `${name}, ${who}`)
    const expected = { code: 'forbidden', reason: 'You are not a db or server admin.' }
    await t.rejects(call(await secured(), ANNA), expected, name)
    for (const user of [DB_ADMIN, ADMIN]) {
      await t.resolves(call(await secured(), user), `${name}, ${user.name}`)
    }
  }
})

t.test('an anonymous member gets unauthorized for calls of admins', async (t) => {
  const { database } = await openDatabase()
  await database.setSecurity(ADMIN, { members: {} })
  const expected = { code: 'unauthorized', reason: 'You are not a db or server admin.' }
  await t.rejects(database.put(NOBODY, '_design/d', body({}), {}), expected)
  await t.resolves(database.put(NOBODY, 'x', body({}), {}))
})

t.test('in a bulk design documents are refused row by row', async (t) => {
  const { database } = await secured()
  const docs = [{ _id: 'a' }, { _id: '_design/d' }, { _id: 'b' }]
  t.match(await jsonOf(database.bulkDocs(ANNA, body({ docs }))), [
    { ok: true, id: 'a' },
    { id: '_design/d', error: 'forbidden', reason: 'You are not a db or server admin.' },
    { ok: true, id: 'b' },
  ])
  const replicated = docs.map((doc) => ({ ...doc, _rev: '7-x' }))
  t.match(await jsonOf(database.bulkDocs(ANNA, body({ new_edits: false, docs: replicated }))), [
    { id: '_design/d', rev: '7-x', error: 'forbidden' },
  ])
})

t.test('members may read design documents', async (t) => {
  const { database, put } = await secured()
  await put('_design/d', {})
  await t.resolves(database.open(ANNA, '_design/d', {}))
})

t.test('rights are checked at the time of the write', async (t) => {
  const { database, store } = await secured()
  const docs = Array.from({ length: 600 }, (_, n) => ({ _id: `d${String(n).padStart(3, '0')}` }))
  const answer = database.bulkDocs(ANNA, body({ docs }))[Symbol.asyncIterator]()
  let rest = Buffer.from((await answer.next()).value).toString()
  await database.setSecurity(ADMIN, { members: { names: ['somebody else'] } })
  for (let next = await answer.next(); !next.done; next = await answer.next()) rest += Buffer.from(next.value)
  const rows = JSON.parse(rest)
  t.equal(rows.length, 600)
  t.match([rows[0], rows[599]], [{ ok: true }, { id: 'd599', error: 'forbidden' }])
  const written = rows.filter((row: { ok?: boolean }) => row.ok).length
  t.equal((await store.view()).docCount, written + 3, 'each row says what was done')
})

t.test('a write that is queued after a revocation is refused', async (t) => {
  const { database, store } = await secured()
  const withdrawn = database.setSecurity(ADMIN, { members: { names: ['somebody else'] } })
  const write = database.put(ANNA, 'late', body({}), {})
  await withdrawn
  await t.rejects(write, { code: 'forbidden' })
  t.same(await store.readDocs(['late'], (doc) => doc), [null])
})

// Facts and settings of a database: its information, `_revs_limit`, `_security`.

t.test('the information object has CouchDB’s member names', async (t) => {
  const { database, put } = await openDatabase()
  await put('a', {})
  await database.remove(ADMIN, 'b', await put('b', {}))
  t.match(await database.info(ADMIN), {
    instance_start_time: /^\d{10}$/,
    db_name: 'notes',
    purge_seq: /^0-/,
    update_seq: /^3-/,
    sizes: { file: Number, external: Number, active: Number },
    props: {},
    doc_del_count: 1,
    doc_count: 1,
    disk_format_version: 8,
    compact_running: false,
    cluster: { q: 1, n: 1, w: 1, r: 1 },
  })
})

t.test('_revs_limit takes positive integers', async (t) => {
  const { database } = await openDatabase()
  t.equal(await database.revsLimit(ADMIN), 1000)
  for (const limit of [0, -1, 1.5, '5', null, {}, Number.NaN]) {
    await t.rejects(database.setRevsLimit(ADMIN, limit), { code: 'bad_request' }, String(limit))
  }
  await database.setRevsLimit(ADMIN, 7)
  t.equal(await database.revsLimit(ADMIN), 7)
})

t.test('branches are cut to the limit, and removed ancestors are unknown', async (t) => {
  const { database, put, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 3)
  const revs = [await put('x', {})]
  for (let n = 0; n < 5; n += 1) revs.push(await put('x', { _rev: revs.at(-1), n }))
  const { _revisions } = await get('x', { revs: true })
  t.equal(_revisions.start, 6)
  t.same(
    _revisions.ids,
    revs
      .toReversed()
      .slice(0, 3)
      .map((rev) => rev.slice(2)),
  )
  await t.rejects(get('x', { rev: revs[2] as string }), { code: 'not_found' })
  t.match(await get('x', { rev: revs[3] as string }), { _rev: revs[3] })
  t.equal((await get('x', { revsInfo: true }))._revs_info.length, 3)
})

t.test('replicated branches are cut to the limit', async (t) => {
  const { database, replicate, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 2)
  await replicate('x', { start: 5, ids: ['e', 'd', 'c', 'b', 'a'] })
  t.match(await get('x', { revs: true }), { _revisions: { start: 5, ids: ['e', 'd'] } })
  await replicate('x', { start: 3, ids: ['c', 'b'] })
  t.match(
    await get('x', { conflicts: true }),
    { _rev: '5-e', _conflicts: ['3-c'] },
    'a stemmed-off history is new',
  )
})

t.test('a limit of one keeps only the leaf', async (t) => {
  const { database, put, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 1)
  const first = await put('x', {})
  const second = await put('x', { _rev: first })
  t.match(await get('x', { revs: true }), { _rev: second, _revisions: { start: 2, ids: [second.slice(2)] } })
  await t.rejects(put('x', { _rev: first }), { code: 'conflict' })
})

t.test('a security object is stored unchanged and reported', async (t) => {
  const { database, secured, updateSeq } = await openDatabase()
  t.equal(await database.security(), null)
  const security = { admins: { names: ['anna'], roles: [] }, cloudant: { x: ['_reader'] } }
  await database.setSecurity(ADMIN, security)
  t.same(await database.security(), security)
  t.same(secured, [security])
  t.equal(await updateSeq(), 0)
})
