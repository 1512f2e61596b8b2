/** Rights to read and write documents of `_users`, by every method; protocol.md 11.4, 11.7. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { UserCtx } from '../../src/core/types.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from '../../src/documents/auth-design.ts'
import type { Body, Database } from '../../src/documents/database.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, ANNA, body, chunksOf, NOBODY, parse, text } from './helpers.ts'
import { KEEPER, openUsers, reopenUsers, type Users } from './users-helpers.ts'

const BERT: UserCtx = { name: 'bert', roles: ['_metrics'] }
const ID = 'org.couchdb.user:anna'
const DESIGN = '_design/_auth'

/** The methods that read a document, by name; each returns text. */
const READS: Readonly<Record<string, (db: Database, user: UserCtx, id: string) => Promise<string>>> = {
  open: async (db, user, id) => bytes((await db.open(user, id, {})).json),
  'open, with its history': async (db, user, id) => bytes((await db.open(user, id, { revs: true })).json),
  openRevs: (db, user, id) => text(db.openRevs(user, id, 'all', {})),
  openParts: async (db, user, id) => bytes((await db.openParts(user, id, {}, 'follows')).json),
  openRevsMixed: (db, user, id) => text(db.openRevsMixed(user, id, 'all', {}, 'b')),
  bulkGet: (db, user, id) => text(db.bulkGet(user, body({ docs: [{ id }] }), {})),
  'bulkGet with contents': (db, user, id) =>
    text(db.bulkGet(user, body({ docs: [{ id }] }), { attachments: true })),
  bulkGetMixed: (db, user, id) => text(db.bulkGetMixed(user, body({ docs: [{ id }] }), {}, 'b')),
  openAttachment: async (db, user, id) => {
    const found = await db.openAttachment(user, id, 'face', undefined)
    return `derived_key salt city ${await text(db.readAttachment(found, 0, found.storedLength))}`
  },
}

function bytes(value: Uint8Array): string {
  return Buffer.from(value).toString()
}

async function vault(): Promise<Users> {
  const users = await openUsers()
  const face = { content_type: 'text/plain', data: Buffer.from('smile').toString('base64') }
  await users.putUser('anna', { password: 'sesame', city: 'Graz', _attachments: { face } })
  return users
}

/** The error of a read, or the visible part of the document. */
async function seen(read: Promise<string>): Promise<string> {
  const got = await read.catch((error) => `${error.status} ${error.reason}`)
  if (/"missing"/.test(got)) return '404 missing'
  const found = ['derived_key', 'salt', 'city'].filter((member) => got.includes(member))
  return found.length > 0 ? found.join() : got
}

t.test('an account', async (t) => {
  const { database, rules } = await vault()
  for (const [name, read] of Object.entries(READS)) {
    for (const user of [ADMIN, KEEPER, ANNA]) {
      t.equal(await seen(read(database, user, ID)), 'derived_key,salt,city', `${name}: ${user.name}`)
    }
    for (const user of [BERT, NOBODY]) {
      t.equal(await seen(read(database, user, ID)), '404 missing', `${name}: ${user.name}`)
    }
  }
  rules.users = { ...rules.users, publicFields: ['city', 'none'] }
  for (const [name, read] of Object.entries(READS)) {
    t.equal(await seen(read(database, ANNA, ID)), 'derived_key,salt,city', `${name}: the user`)
    const others = name === 'openAttachment' ? '404 Document is missing attachment' : 'city'
    t.equal(await seen(read(database, BERT, ID)), others, `${name}: others, public fields`)
  }
  rules.users = { ...rules.users, publicFields: ['none'] }
  for (const [name, read] of Object.entries(READS)) {
    t.equal(await seen(read(database, NOBODY, ID)), '404 missing', `${name}: none of the public fields`)
  }
})

t.test('public fields are cut out of the text, not serialized again', async (t) => {
  const { database, rules, putUser } = await openUsers()
  rules.users = { ...rules.users, publicFields: ['n', 'city'] }
  const id = 'org.couchdb.user:bert'
  const doc = '{"name":"bert","n":9007199254740993,"type":"user","city":1.0,"roles":[]}'
  await database.put(ADMIN, id, body(doc), {})
  const got = bytes((await database.open(ANNA, id, {})).json)
  t.match(got, /,"n":9007199254740993,"city":1\.0\}\n$/)
  await putUser('carl')
  const rows = await text(
    database.bulkGet(ANNA, body({ docs: [{ id }, { id: 'org.couchdb.user:carl' }] }), {}),
  )
  t.match(JSON.parse(rows).results, [
    { docs: [{ ok: { city: 1 } }] },
    { docs: [{ error: { reason: 'missing' } }] },
  ])
})

t.test('documents that are not accounts', async (t) => {
  const { database, rules } = await vault()
  rules.users = { ...rules.users, publicFields: ['language', 'city'] }
  await database.put(ADMIN, '_local/x', body({ city: 'Graz' }), {})
  for (const [name, read] of Object.entries(READS)) {
    if (name === 'openAttachment') continue
    for (const user of [ANNA, NOBODY]) {
      const refusal = '403 Only administrators can view design docs in the users database.'
      t.equal(await seen(read(database, user, DESIGN)), refusal, `${name}: design document, ${user.name}`)
      if (!name.startsWith('openRevs')) {
        t.equal(await seen(read(database, user, '_local/x')), '404 missing', `${name}: _local, ${user.name}`)
      }
    }
    t.match(await read(database, KEEPER, DESIGN), /validate_doc_update/, name)
  }
  t.match(parse((await database.open(KEEPER, '_local/x', {})).json), { city: 'Graz' })
})

t.test('with the security object of a new server, users cannot read even their own document', async (t) => {
  const { database, putUser } = await openUsers(false)
  await putUser('anna', { city: 'Graz' })
  for (const [name, read] of Object.entries(READS)) {
    if (name === 'openAttachment') continue
    t.equal(await seen(read(database, ANNA, ID)), '403 You are not allowed to access this db.', name)
    t.equal(await seen(read(database, NOBODY, ID)), '401 You are not authorized to access this db.', name)
    t.equal(await seen(read(database, NOBODY, DESIGN)), '401 You are not authorized to access this db.', name)
    t.equal(await seen(read(database, ADMIN, ID)), 'city', name)
  }
})

t.test('methods about more than single documents are for admins', async (t) => {
  const { database } = await vault()
  const NO_SERVER_ADMIN = { code: 'not_server_admin' }
  const server: Record<string, (user: UserCtx) => Promise<unknown>> = {
    allDocs: (user) => chunksOf(database.allDocs(user, 'all', {}, null)),
    'allDocs, design': (user) => chunksOf(database.allDocs(user, 'design', {}, null)),
    'allDocs, local': (user) => chunksOf(database.allDocs(user, 'local', {}, null)),
    allDocsQueries: (user) => chunksOf(database.allDocsQueries(user, 'all', {}, body({ queries: [{}] }))),
    purge: (user) => database.purge(user, body({ x: ['1-a'] })),
    purgedInfosLimit: (user) => database.purgedInfosLimit(user),
    setPurgedInfosLimit: (user) => database.setPurgedInfosLimit(user, 10),
  }
  for (const [name, call] of Object.entries(server)) {
    for (const user of [ANNA, NOBODY, KEEPER])
      await t.rejects(call(user), NO_SERVER_ADMIN, `${name}: ${user.name}`)
    await t.resolves(call(ADMIN), name)
  }
  const admins: Record<string, (user: UserCtx) => Promise<unknown>> = {
    revsDiff: (user) => database.revsDiff(user, body({ [ID]: ['1-a'] })),
    missingRevs: (user) => database.missingRevs(user, body({ [ID]: ['1-a'] })),
    purgedInfos: (user) => database.purgedInfos(user),
    setRevsLimit: (user) => database.setRevsLimit(user, 10),
    setSecurity: (user) => database.setSecurity(user, { admins: { roles: ['keepers'] }, members: {} }),
  }
  for (const [name, call] of Object.entries(admins)) {
    await t.rejects(call(ANNA), { code: 'forbidden' }, `${name}: a user`)
    await t.rejects(call(NOBODY), { code: 'unauthorized' }, `${name}: a stranger`)
    for (const user of [KEEPER, ADMIN]) await t.resolves(call(user), `${name}: ${user.name}`)
  }
})

// Rights to write documents of `_users`, by every method that writes; protocol.md 11.7.

const BERT_WITHOUT_ROLES: UserCtx = { name: 'bert', roles: [] }
const BOUNDARY = 'edge'

interface Target {
  readonly id: string
  /** The stored revision; undefined for a missing account. */
  readonly rev: string | undefined
  readonly doc: Record<string, unknown>
}

type Write = (db: Database, user: UserCtx, target: Target) => Promise<unknown>

const EDITS: Readonly<Record<string, Write>> = {
  put: (db, user, { id, doc }) => db.put(user, id, body(doc), {}),
  'put, multipart': (db, user, { id, doc }) => db.put(user, id, related(doc), { boundary: BOUNDARY }),
  'put, replicated': (db, user, { id, doc, rev }) =>
    db.put(user, id, body({ ...doc, ...after(rev) }), { newEdits: false }),
  post: (db, user, { id, doc }) => db.post(user, body({ ...doc, _id: id })),
  postForm: (db, user, { id, doc, rev }) =>
    db.postForm(user, id, form(doc), { boundary: BOUNDARY, ...(rev && { rev }) }),
  bulkDocs: (db, user, { id, doc }) => text(db.bulkDocs(user, body({ docs: [{ ...doc, _id: id }] }))),
  'bulkDocs, replicated': (db, user, { id, doc, rev }) =>
    text(db.bulkDocs(user, body({ new_edits: false, docs: [{ ...doc, _id: id, ...after(rev) }] }))),
}

const CHANGES: Readonly<Record<string, Write>> = {
  remove: (db, user, { id, rev }) => db.remove(user, id, rev),
  'remove, bulk': (db, user, { id, rev }) =>
    text(db.bulkDocs(user, body({ docs: [{ _id: id, _rev: rev, _deleted: true }] }))),
  putAttachment: (db, user, { id, rev }) =>
    db.putAttachment(user, id, 'a', body('x'), { type: 'text/plain', encoding: null, ...(rev && { rev }) }),
  removeAttachment: (db, user, { id, rev }) => db.removeAttachment(user, id, 'face', rev),
}

/** A replicated revision that follows another. */
function after(rev: string | undefined): Record<string, unknown> {
  if (rev === undefined) return { _rev: '1-abc' }
  const [pos, id] = rev.split('-')
  return { _rev: undefined, _revisions: { start: Number(pos) + 1, ids: ['abc', id] } }
}

function related(doc: unknown): Body {
  return body(
    `--${BOUNDARY}\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(doc)}\r\n--${BOUNDARY}--`,
  )
}

function form(doc: unknown): Body {
  const head = 'Content-Disposition: form-data; name="_doc"'
  return body(`--${BOUNDARY}\r\n${head}\r\n\r\n${JSON.stringify(doc)}\r\n--${BOUNDARY}--`)
}

async function anna({ putUser, getUser }: Users): Promise<Target> {
  const face = { content_type: 'text/plain', data: 'eHh4' }
  const rev = await putUser('anna', { roles: ['a'], _attachments: { face } })
  const doc = { ...(await getUser('anna')), _attachments: { face: { stub: true } }, city: 'Graz' }
  return { id: 'org.couchdb.user:anna', rev, doc }
}

/** The result of a write, or its error for the whole request or in its row. */
async function outcome(written: Promise<unknown>): Promise<string> {
  try {
    const answer = await written
    const [row] = typeof answer === 'string' ? JSON.parse(answer) : [answer]
    return row?.error === undefined ? 'stored' : `row: ${row.error} ${row.reason}`
  } catch (error) {
    const { status, reason } = error as { status: number; reason: string }
    return `${status} ${reason}`
  }
}

t.test('an existing account', async (t) => {
  for (const [name, write] of Object.entries({ ...EDITS, ...CHANGES })) {
    for (const user of [ADMIN, KEEPER, ANNA]) {
      const users = await openUsers()
      const target = await anna(users)
      t.equal(await outcome(write(users.database, user, target)), 'stored', `${name}: ${user.name}`)
    }
    const users = await openUsers()
    const target = await anna(users)
    const before = await users.store.view()
    t.equal(
      await outcome(write(users.database, BERT_WITHOUT_ROLES, target)),
      '404 missing',
      `${name}: another user`,
    )
    t.match(await outcome(write(users.database, NOBODY, target)), /conflict/, `${name}: a stranger`)
    t.equal((await users.store.view()).updateSeq, before.updateSeq, `${name}: nothing was written`)
  }
})

t.test('a long document is refused by every method', async (t) => {
  for (const [name, write] of Object.entries(EDITS)) {
    const users = await openUsers()
    const target = await anna(users)
    const doc = { ...target.doc, city: 'x'.repeat(131_072) }
    const refusal = /^413 a document of the users database holds more than 131072 characters$/
    t.match(await outcome(write(users.database, ANNA, { ...target, doc })), refusal, name)
  }
})

t.test('a missing account', async (t) => {
  const id = 'org.couchdb.user:anna'
  for (const [name, write] of Object.entries(EDITS)) {
    const doc = { name: 'anna', type: 'user', roles: [] }
    for (const user of [ADMIN, KEEPER, NOBODY, ANNA]) {
      const { database } = await openUsers()
      t.equal(
        await outcome(write(database, user, { id, rev: undefined, doc })),
        'stored',
        `${name}: ${user.name}`,
      )
    }
    const { database } = await openUsers()
    t.equal(
      await outcome(write(database, BERT_WITHOUT_ROLES, { id, rev: undefined, doc })),
      '404 missing',
      name,
    )
    const greedy = { ...doc, roles: ['a'] }
    const refused = await outcome(write(database, NOBODY, { id, rev: undefined, doc: greedy }))
    t.match(refused, /Only _admin may set roles/, name)
  }
})

t.test('with the security object of a new server, only server admins may write', async (t) => {
  for (const [name, write] of Object.entries({ ...EDITS, ...CHANGES })) {
    const users = await openUsers(false)
    const target = await anna(users)
    t.match(await outcome(write(users.database, ANNA, target)), /^403 You are not allowed/, name)
    t.match(await outcome(write(users.database, NOBODY, target)), /^401 You are not authorized/, name)
    t.equal(await outcome(write(users.database, ADMIN, target)), 'stored', name)
  }
})

t.test('a copy needs the right to read the source and to write the target', async (t) => {
  const users = await openUsers()
  const { database, rules } = users
  const { id, rev } = await anna(users)
  const copy = (user: UserCtx, source: string, target: string) =>
    outcome(database.copy(user, { id: source }, { id: target }))
  t.equal(await copy(BERT_WITHOUT_ROLES, id, 'org.couchdb.user:bert'), '404 missing')
  t.equal(await copy(NOBODY, id, 'org.couchdb.user:bert'), '404 missing')
  t.equal(await copy(ANNA, id, 'org.couchdb.user:bert'), '404 missing')
  t.equal(await copy(ANNA, id, '_local/x'), '404 missing')
  t.match(await copy(ADMIN, id, 'org.couchdb.user:bert'), /^403 Doc ID must be/)
  t.equal(
    await copy(ANNA, '_design/_auth', id),
    '403 Only administrators can view design docs in the users database.',
  )
  rules.users = { ...rules.users, publicFields: ['city', 'type'] }
  t.match(
    await copy(BERT_WITHOUT_ROLES, id, 'org.couchdb.user:bert'),
    /^403 doc.name is required/,
    'only what is public comes along',
  )
  t.equal(await outcome(database.copy(ANNA, { id }, { id, rev: rev as string })), 'stored')
})

t.test('documents that are not accounts are for admins', async (t) => {
  const { database } = await openUsers()
  for (const user of [ANNA, NOBODY]) {
    t.equal(await outcome(database.put(user, '_local/x', body({}), {})), '404 missing')
    t.equal(await outcome(database.put(user, 'x', body({ type: 'user' }), {})), '404 missing')
    t.equal(await outcome(database.remove(user, '_local/x', undefined)), '404 missing')
    const designs = text(database.bulkDocs(user, body({ docs: [{ _id: '_design/x' }] })))
    t.match(await outcome(designs), /row: .* You are not a db or server admin/)
    t.match(await outcome(database.put(user, '_design/x', body({}), {})), /You are not a db or server admin/)
    const locals = text(database.bulkDocs(user, body({ docs: [{ _id: '_local/x' }] })))
    t.equal(await outcome(locals), '404 missing')
  }
  t.equal(await outcome(database.put(KEEPER, '_local/x', body({}), {})), 'stored')
})

t.test('a document of another user refuses the whole bulk, an invalid document does not', async (t) => {
  const { database, bulk, putUser, getUser } = await openUsers()
  await putUser('anna')
  const mine = { ...(await getUser('anna')), city: 'Graz' }
  const his = { _id: 'org.couchdb.user:bert', name: 'bert', type: 'user', roles: [] }
  await t.rejects(bulk(ANNA, { docs: [mine, his] }), { code: 'not_found', reason: 'missing' })
  t.equal((await getUser('anna')).city, undefined)
  await t.rejects(database.open(ADMIN, his._id, {}), { code: 'not_found' })
  const rows = await bulk(ADMIN, { docs: [{ ...mine, roles: 1 }, his] })
  t.match(rows, [{ error: 'forbidden', reason: 'doc.roles must be an array' }, { ok: true }])
})

t.test('the security object', async (t) => {
  const { database, rules } = await openUsers()
  rules.users = { ...rules.users, securityEditable: false }
  const refusal = { code: 'forbidden', reason: "You can't edit the security object of the user database." }
  for (const user of [ADMIN, KEEPER, ANNA, NOBODY]) await t.rejects(database.setSecurity(user, {}), refusal)
  rules.users = { ...rules.users, securityEditable: true }
  await t.rejects(database.setSecurity(ANNA, {}), {
    code: 'forbidden',
    reason: 'You are not a db or server admin.',
  })
  await t.resolves(database.setSecurity(ADMIN, {}))
})

t.test('rights are checked in the turn of the write', async (t) => {
  const { database, putUser, getUser } = await openUsers()
  await putUser('bert')
  const doc = { ...(await getUser('bert')), city: 'Graz' }
  const edit = database.put(KEEPER, 'org.couchdb.user:bert', body(doc), {})
  const secured = database.setSecurity(ADMIN, { members: {}, admins: {} })
  await secured
  const done = await outcome(edit)
  t.ok(['stored', '404 missing'].includes(done), done)
  t.equal(
    parse((await database.open(ADMIN, 'org.couchdb.user:bert', {})).json).city,
    done === 'stored' ? 'Graz' : undefined,
  )
})

// The rules of `_design/_auth`, protocol.md 11.7, run in the sandbox.

const GOOD = { name: 'anna', type: 'user', roles: [] }

t.test('the design document exists once, with exactly our text', async (t) => {
  const { database } = await openUsers()
  const doc = parse((await database.open(ADMIN, AUTH_DESIGN_ID, {})).json)
  t.match(doc._rev, /^1-/)
  const { _id, _rev, ...members } = doc
  t.equal(JSON.stringify(members), AUTH_DESIGN_BODY)
})

t.test('the errors of a document, in the order of the checks', async (t) => {
  const { database } = await openUsers()
  const rows: [user: UserCtx, id: string, doc: Record<string, unknown>, reason: string][] = [
    [ADMIN, 'anna', { ...GOOD, type: 'x' }, 'doc.type must be user'],
    [ADMIN, 'anna', { name: 'anna', roles: [] }, 'doc.type must be user'],
    [ADMIN, 'anna', { type: 'user', roles: [] }, 'doc.name is required'],
    [ADMIN, 'anna', { ...GOOD, name: 7 }, 'doc.name is required'],
    [ADMIN, 'anna', { type: 'user', name: 'anna' }, 'doc.roles must exist'],
    [ADMIN, 'anna', { ...GOOD, roles: 'x' }, 'doc.roles must be an array'],
    [ADMIN, 'anna', { ...GOOD, roles: {} }, 'doc.roles must be an array'],
    [ADMIN, 'anna', { ...GOOD, roles: ['a', 1] }, 'doc.roles can only contain strings'],
    [ADMIN, 'bert', GOOD, 'Doc ID must be of the form org.couchdb.user:name'],
    [
      ADMIN,
      'anna',
      { ...GOOD, roles: ['a', '_admin'] },
      'No system roles (starting with underscore) in users db.',
    ],
    [ADMIN, '_x', { ...GOOD, name: '_x' }, 'Username may not start with underscore.'],
    [ADMIN, 'a:b', { ...GOOD, name: 'a:b' }, 'Character `:` is not allowed in usernames.'],
    [ADMIN, 'anna', { ...GOOD, password_sha: 'ab' }, 'Users with password_sha must have a salt.'],
    [ADMIN, 'anna', { ...GOOD, password_scheme: 'md5' }, 'Password scheme `md5` not supported.'],
    [ADMIN, 'anna', { ...GOOD, password_scheme: 'pbkdf2' }, 'derived_key must be a string.'],
    [
      ADMIN,
      'anna',
      { ...GOOD, password_scheme: 'pbkdf2', derived_key: 'ab', iterations: '10' },
      'iterations must be a number.',
    ],
    [NOBODY, 'anna', { ...GOOD, roles: ['a'] }, 'Only _admin may set roles'],
    [ANNA, 'anna', { ...GOOD, roles: ['a'] }, 'Only _admin may set roles'],
  ]
  for (const [user, name, doc, reason] of rows) {
    const put = database.put(user, `org.couchdb.user:${name}`, body(doc), {})
    await t.rejects(put, new CouchError('forbidden', reason), reason)
  }
  await t.rejects(database.put(ADMIN, 'anna', body(GOOD), {}), /^Doc ID must be/)
})

t.test('an edit', async (t) => {
  const { database, putUser, getUser } = await openUsers()
  await putUser('anna', { roles: ['a', 'b'] })
  const edit = async (user: UserCtx, change: Record<string, unknown>) => {
    const doc = { ...(await getUser('anna')), ...change }
    return database.put(user, 'org.couchdb.user:anna', body(doc), {})
  }
  await t.rejects(edit(ADMIN, { name: 'bert' }), /^Doc ID must be/)
  await t.rejects(edit(ANNA, { roles: ['a'] }), new CouchError('forbidden', 'Only _admin may edit roles'))
  await t.rejects(edit(ANNA, { roles: ['a', 'b', 'c'] }), /Only _admin may edit roles/)
  await t.resolves(edit(ANNA, { roles: ['b', 'a'], city: 'Graz' }), 'their order does not matter')
  await t.resolves(edit(KEEPER, { roles: ['c'] }), 'an admin of the database')
  await t.resolves(edit(ADMIN, { roles: ['_metrics'] }))
})

t.test('a deletion', async (t) => {
  const { database, putUser, store } = await openUsers()
  for (const [name, user] of [
    ['anna', ANNA],
    ['bert', KEEPER],
    ['carl', ADMIN],
  ] as const) {
    const rev = await putUser(name)
    await t.resolves(database.remove(user, `org.couchdb.user:${name}`, rev), name)
  }
  t.equal((await store.view()).deletedCount, 3)
  const rev = await putUser('anna', { roles: ['x'] })
  t.match(rev, /^3-/, 'a name can be given again')
})

t.test('an operator may replace the rules', async (t) => {
  const { database } = await openUsers()
  const { _rev } = parse((await database.open(ADMIN, AUTH_DESIGN_ID, {})).json)
  const own = { validate_doc_update: "function (n) { if (n.no) throw { forbidden: 'own' } }" }
  await database.put(KEEPER, AUTH_DESIGN_ID, body({ _rev, ...own }), {})
  await t.rejects(database.put(ADMIN, 'x', body({ no: true }), {}), new CouchError('forbidden', 'own'))
  await t.resolves(database.put(ADMIN, 'x', body({ type: 'other' }), {}))
})

t.test('deleted rules are restored when the database is opened again, replaced rules are kept', async (t) => {
  for (const [change, comesBack] of [
    [{ _deleted: true }, true],
    [{ validate_doc_update: 'function () {}' }, false],
  ] as const) {
    const engine = memoryEngine()
    const { database } = await openUsers(true, engine)
    const { _rev } = parse((await database.open(ADMIN, AUTH_DESIGN_ID, {})).json)
    await database.put(ADMIN, AUTH_DESIGN_ID, body({ _rev, ...change }), {})
    const again = await reopenUsers(engine)
    const doc = parse((await again.database.open(ADMIN, AUTH_DESIGN_ID, {})).json)
    t.match(doc._rev, comesBack ? /^3-/ : /^2-/)
  }
})

t.test('if the rules cannot be written, the database opens but accepts no writes', async (t) => {
  let isFull = true
  const engine = memoryEngine({
    onOperation: (operation) => {
      if (isFull && operation === 'write document') throw new Error('no space left')
    },
  })
  const { database, putUser } = await openUsers(false, engine)
  await t.rejects(database.open(ADMIN, AUTH_DESIGN_ID, {}), { code: 'not_found' })
  await t.rejects(putUser('anna'), { code: 'internal_server_error' })
  isFull = false
  await t.rejects(putUser('anna', { roles: 1 }), /doc.roles must be an array/)
  await t.resolves(putUser('anna'))
})
