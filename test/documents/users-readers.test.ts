/** Who reads what of `_users`, by every method that reads; protocol.md 11.4, 11.7. */
import t from 'tap'
import type { UserCtx } from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { ADMIN, ANNA, body, chunksOf, NOBODY, parse, text } from './helpers.ts'
import { KEEPER, openUsers, type Users } from './users-helpers.ts'

const BERT: UserCtx = { name: 'bert', roles: ['_metrics'] }
const ID = 'org.couchdb.user:anna'
const DESIGN = '_design/_auth'

/** By name, how a user reads what; what comes is text. */
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

/** What a reader makes of a document: how it is refused, or what of it is seen. */
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

t.test('public fields are cut out of the text, not made anew', async (t) => {
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

t.test('what is no account', async (t) => {
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

t.test(
  'as a new server has it, nobody but server admins gets in, not even to his own document',
  async (t) => {
    const { database, putUser } = await openUsers(false)
    await putUser('anna', { city: 'Graz' })
    for (const [name, read] of Object.entries(READS)) {
      if (name === 'openAttachment') continue
      t.equal(await seen(read(database, ANNA, ID)), '403 You are not allowed to access this db.', name)
      t.equal(await seen(read(database, NOBODY, ID)), '401 You are not authorized to access this db.', name)
      t.equal(
        await seen(read(database, NOBODY, DESIGN)),
        '401 You are not authorized to access this db.',
        name,
      )
      t.equal(await seen(read(database, ADMIN, ID)), 'city', name)
    }
  },
)

t.test('what is about more than single documents is for admins', async (t) => {
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
