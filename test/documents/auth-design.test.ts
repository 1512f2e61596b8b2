/** The rules of `_design/_auth`, protocol.md 11.7, as the sandbox runs them. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { UserCtx } from '../../src/core/types.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from '../../src/documents/auth-design.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, ANNA, body, NOBODY, parse } from './helpers.ts'
import { KEEPER, openUsers, reopenUsers } from './users-helpers.ts'

const GOOD = { name: 'anna', type: 'user', roles: [] }

t.test('the design document is there, once, with just the text of ours', async (t) => {
  const { database } = await openUsers()
  const doc = parse((await database.open(ADMIN, AUTH_DESIGN_ID, {})).json)
  t.match(doc._rev, /^1-/)
  const { _id, _rev, ...members } = doc
  t.equal(JSON.stringify(members), AUTH_DESIGN_BODY)
})

t.test('what is wrong with a document, in the order in which it is looked at', async (t) => {
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

t.test('deleted rules come back when the database is opened again, replaced ones stay', async (t) => {
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

t.test('where they cannot be written the database opens, and takes nothing before they are', async (t) => {
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
