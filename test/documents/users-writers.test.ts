/** Who writes what of `_users`, by every method that writes; protocol.md 11.7. */
import t from 'tap'
import type { UserCtx } from '../../src/core/types.ts'
import type { Body, Database } from '../../src/documents/database.ts'
import { ADMIN, ANNA, body, NOBODY, parse, text } from './helpers.ts'
import { KEEPER, openUsers, type Users } from './users-helpers.ts'

const BERT: UserCtx = { name: 'bert', roles: [] }
const BOUNDARY = 'edge'

interface Target {
  readonly id: string
  /** The revision that stands; undefined for an account that is not there. */
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

/** `checkDatabase`, or how it was refused, as a whole or in its row. */
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

t.test('an account that is there', async (t) => {
  for (const [name, write] of Object.entries({ ...EDITS, ...CHANGES })) {
    for (const user of [ADMIN, KEEPER, ANNA]) {
      const users = await openUsers()
      const target = await anna(users)
      t.equal(await outcome(write(users.database, user, target)), 'stored', `${name}: ${user.name}`)
    }
    const users = await openUsers()
    const target = await anna(users)
    const before = await users.store.view()
    t.equal(await outcome(write(users.database, BERT, target)), '404 missing', `${name}: another user`)
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

t.test('an account that is not there', async (t) => {
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
    t.equal(await outcome(write(database, BERT, { id, rev: undefined, doc })), '404 missing', name)
    const greedy = { ...doc, roles: ['a'] }
    const refused = await outcome(write(database, NOBODY, { id, rev: undefined, doc: greedy }))
    t.match(refused, /Only _admin may set roles/, name)
  }
})

t.test('as a new server has it, nobody but server admins writes', async (t) => {
  for (const [name, write] of Object.entries({ ...EDITS, ...CHANGES })) {
    const users = await openUsers(false)
    const target = await anna(users)
    t.match(await outcome(write(users.database, ANNA, target)), /^403 You are not allowed/, name)
    t.match(await outcome(write(users.database, NOBODY, target)), /^401 You are not authorized/, name)
    t.equal(await outcome(write(users.database, ADMIN, target)), 'stored', name)
  }
})

t.test('a copy: of what one may see, to what one may write', async (t) => {
  const users = await openUsers()
  const { database, rules } = users
  const { id, rev } = await anna(users)
  const copy = (user: UserCtx, source: string, target: string) =>
    outcome(database.copy(user, { id: source }, { id: target }))
  t.equal(await copy(BERT, id, 'org.couchdb.user:bert'), '404 missing')
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
    await copy(BERT, id, 'org.couchdb.user:bert'),
    /^403 doc.name is required/,
    'only what is public comes along',
  )
  t.equal(await outcome(database.copy(ANNA, { id }, { id, rev: rev as string })), 'stored')
})

t.test('what is no account is for admins', async (t) => {
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

t.test('a bulk is refused as a whole for a document of another user, not for a bad one', async (t) => {
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

t.test('rights count as they are in the turn of the write', async (t) => {
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
