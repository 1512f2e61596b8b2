/** Hashing passwords in documents of `_users`; protocol.md 11.7. */
import { pbkdf2Sync } from 'node:crypto'
import { inspect } from 'node:util'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { UserCtx } from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, ANNA, body, NOBODY, parse, text } from './helpers.ts'
import { hookedSandbox } from './hooked-sandbox.ts'
import { openUsers } from './users-helpers.ts'

const ID = 'org.couchdb.user:anna'
const GOOD = { name: 'anna', type: 'user', roles: [] }

function derived(password: string, salt: string, iterations: number, length: number, digest: string): string {
  return pbkdf2Sync(password, salt, iterations, length, digest).toString('hex')
}

t.test('every method replaces a password by its hash', async (t) => {
  const ways: Record<string, (db: Database, doc: object) => Promise<unknown>> = {
    put: (db, doc) => db.put(ADMIN, ID, body(doc), {}),
    'put, replicated': (db, doc) => db.put(ADMIN, ID, body({ ...doc, _rev: '1-abc' }), { newEdits: false }),
    post: (db, doc) => db.post(ADMIN, body({ ...doc, _id: ID })),
    bulk: (db, doc) => text(db.bulkDocs(ADMIN, body({ docs: [{ ...doc, _id: ID }] }))),
    'bulk, replicated': (db, doc) =>
      text(db.bulkDocs(ADMIN, body({ new_edits: false, docs: [{ ...doc, _id: ID, _rev: '1-abc' }] }))),
    form: (db, doc) => {
      const head = '--b\r\nContent-Disposition: form-data; name="_doc"\r\n\r\n'
      return db.postForm(ADMIN, ID, body(`${head}${JSON.stringify(doc)}\r\n--b--`), { boundary: 'b' })
    },
    multipart: (db, doc) => {
      const head = '--b\r\nContent-Type: application/json\r\n\r\n'
      return db.put(ADMIN, ID, body(`${head}${JSON.stringify(doc)}\r\n--b--`), { boundary: 'b' })
    },
  }
  for (const [name, write] of Object.entries(ways)) {
    const { database, getUser } = await openUsers()
    const sent = {
      ...GOOD,
      password: 'sésame',
      salt: 'x',
      derived_key: 'y',
      iterations: 3,
      password_sha: 'z',
    }
    await write(database, { ...sent, city: 'Graz' })
    const { _id, _rev, salt, derived_key: key, ...rest } = await getUser('anna')
    const hash = { password_scheme: 'pbkdf2', pbkdf2_prf: 'sha256', iterations: 10 }
    t.strictSame(rest, { ...GOOD, city: 'Graz', ...hash }, name)
    t.match(salt, /^[0-9a-f]{32}$/, name)
    t.equal(key, derived('sésame', salt, 10, 32, 'sha256'), name)
  }
})

t.test('the digests and iterations of the configuration', async (t) => {
  const { rules, putUser, getUser } = await openUsers()
  for (const [prf, digest, length] of [
    ['sha', 'sha1', 20],
    ['sha224', 'sha224', 28],
    ['sha384', 'sha384', 48],
    ['sha512', 'sha512', 64],
  ] as const) {
    rules.hashing = { iterations: length, prf }
    await putUser(prf, { password: 'x' })
    const { salt, ...doc } = await getUser(prf)
    t.match(doc, { pbkdf2_prf: prf, iterations: length })
    t.equal(doc.derived_key, derived('x', salt, length, length, digest), prf)
  }
})

t.test('a document without a password, such as a replicated one, is stored unchanged', async (t) => {
  const { database, getUser } = await openUsers()
  const hash = { password_scheme: 'pbkdf2', iterations: 7, derived_key: 'ab', salt: 's' }
  await database.put(ADMIN, ID, body({ ...GOOD, ...hash }), {})
  const { _id, ...first } = await getUser('anna')
  t.match(first, hash)
  await database.put(ANNA, ID, body({ ...first, city: 'Graz' }), {})
  const { _rev, ...second } = await getUser('anna')
  t.match(second, { ...hash, city: 'Graz' }, 'the hash is kept when it is sent back')
  const text = `{"_rev":"${_rev}","name":"anna","type":"user","roles":[],"password":null,"n":1.0}`
  await database.put(ADMIN, ID, body(text), {})
  const { json } = await database.open(ADMIN, ID, {})
  t.match(Buffer.from(json).toString(), /"password":null,"n":1\.0\}/)
})

t.test('all other members are returned as sent', async (t) => {
  const { database } = await openUsers()
  const doc =
    '{"name":"anna","n":9007199254740993,"type":"user", "a":{"password":"inner","n":-0},"2":1e400,"pass\\u0077ord":"x","roles":[]}'
  await database.put(ADMIN, ID, body(doc), {})
  const { json } = await database.open(ADMIN, ID, {})
  const { derived_key: key, salt } = parse(json)
  t.equal(key, derived('x', salt, 10, 32, 'sha256'), 'its name may be escaped')
  t.match(
    Buffer.from(json).toString(),
    '"name":"anna","n":9007199254740993,"type":"user","a":{"password":"inner","n":-0},"2":1e400,"roles":[],"password_scheme"',
  )
})

t.test('the last of two passwords counts, and neither is stored', async (t) => {
  const { database, store, getUser } = await openUsers()
  await database.put(
    ADMIN,
    ID,
    body('{"password":"one","name":"anna","type":"user","roles":[],"password":"two"}'),
    {},
  )
  const { salt, derived_key: key, _rev } = await getUser('anna')
  t.equal(key, derived('two', salt, 10, 32, 'sha256'))
  const rev = `"_rev":"${_rev}","name":"anna","type":"user","roles":[]`
  await database.put(ADMIN, ID, body(`{${rev},"password":"one","password":null}`), {})
  const [stored] = await store.readDocs([ID], (doc) => doc?.body(doc.rev))
  t.equal(stored, '{"name":"anna","type":"user","roles":[],"password":null}')
})

t.test('deleted and odd documents', async (t) => {
  const { database, store, putUser } = await openUsers()
  const rev = await putUser('anna')
  await database.put(ADMIN, ID, body({ _rev: rev, _deleted: true, password: 'sesame' }), {})
  await database.put(ADMIN, '_local/x', body({ password: 'sesame' }), {})
  await database.put(ADMIN, '_design/x', body({ password: 'sesame' }), {})
  const bodies = await store.readDocs([ID, '_design/x'], (doc) => doc?.body(doc.rev))
  const locals = (await store.readLocals(['_local/x'])).map((doc) => doc?.body)
  for (const stored of [...bodies, ...locals]) t.match(stored, /^\{"password_scheme":"pbkdf2",/)
  for (const password of [7, true, {}, []]) {
    const put = database.put(ADMIN, 'org.couchdb.user:bert', body({ ...GOOD, name: 'bert', password }), {})
    await t.rejects(put, new CouchError('forbidden', 'The password must be a string.'))
  }
})

t.test('no function sees a password, and no error contains it', async (t) => {
  const sandbox = hookedSandbox()
  const { database, putUser } = await openUsers(true, memoryEngine(), sandbox)
  await putUser('anna', { password: 'sesame' })
  t.match(sandbox.asked.at(-1)?.calls[0]?.newDoc, /"derived_key":"[0-9a-f]{64}"/)
  const bad = { ...GOOD, name: 'bert', password: 'sesame' }
  const broken = [
    '{"password":"sesame"',
    '["sesame", x]',
    '"sesame',
    '{"docs":[{"password":"sesame"}, oops]}',
  ]
  const refusals: (() => Promise<unknown>)[] = [
    () => database.put(ADMIN, ID, body(bad), {}),
    () => database.put(NOBODY, 'org.couchdb.user:bert', body({ ...bad, roles: ['x'] }), {}),
    () => database.put(ADMIN, ID, body({ ...bad, _x: 1 }), {}),
    ...broken.map((sent) => () => database.put(ADMIN, ID, body(sent), {})),
    ...broken.map((sent) => () => text(database.bulkDocs(ADMIN, body(sent)))),
  ]
  for (const refused of refusals) {
    const error = await refused().catch((thrown: unknown) => thrown)
    t.ok(error instanceof CouchError)
    t.notMatch(inspect(error, { depth: 9 }), /sesame/)
  }
  t.notMatch(JSON.stringify(sandbox.asked), /sesame/)
})

t.test('patterns that a password must match', async (t) => {
  const { database, rules, bulk, putUser } = await openUsers()
  const put = (password: unknown, user: UserCtx = ADMIN) =>
    database.put(user, ID, body({ ...GOOD, password }), {})
  rules.users = {
    ...rules.users,
    passwordRules: [
      { pattern: '.{8}', reason: '' },
      { pattern: '\\d', reason: 'A digit is missing.' },
    ],
  }
  const said = 'Password does not conform to requirements.'
  await t.rejects(put('short1'), new CouchError('bad_request', said))
  await t.rejects(put('long enough'), new CouchError('bad_request', `${said} A digit is missing.`))
  const good = { ...GOOD, name: 'bert', _id: 'org.couchdb.user:bert', password: 'long en0ugh' }
  await t.rejects(bulk(ADMIN, { docs: [good, { ...GOOD, _id: ID, password: 'short' }] }), /does not conform/)
  await t.rejects(database.open(ADMIN, good._id, {}), /missing/, 'nothing of it is written')
  await t.rejects(put('short', { name: 'bert', roles: [] }), new CouchError('not_found'))
  await t.resolves(put('long en0ugh'))
  await t.resolves(putUser('carl'), 'no password, no rule')
  rules.users = { ...rules.users, passwordRules: [{ pattern: '(a+)+$', reason: '' }] }
  await t.rejects(put(`${'a'.repeat(50)}b`), { code: 'bad_request' }, 'in linear time')
  rules.users = { ...rules.users, passwordRules: [{ pattern: '(?=a)', reason: '' }] }
  await t.rejects(
    put('long en0ugh'),
    new CouchError('forbidden', 'Server cannot hash passwords at this time.'),
  )
  rules.users = { ...rules.users, passwordRules: null }
  await t.rejects(
    put('long en0ugh'),
    new CouchError('forbidden', 'Server cannot hash passwords at this time.'),
  )
})

t.test('a limited number of documents waits for hashing; more are refused', async (t) => {
  const { database, rules } = await openUsers()
  rules.hashing = { iterations: 20_000, prf: 'sha256' }
  const names = Array.from({ length: 80 }, (_, at) => `u${at}`)
  const outcomes = await Promise.allSettled(
    names.map((name) =>
      database.put(ADMIN, `org.couchdb.user:${name}`, body({ ...GOOD, name, password: 'x' }), {}),
    ),
  )
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
  t.equal(refused.length, 80 - 65)
  t.match(refused[0], { reason: { status: 503 } })
  const docs = names.map((name) => ({
    ...GOOD,
    _id: `org.couchdb.user:bulk${name}`,
    name: `bulk${name}`,
    password: 'x',
  }))
  rules.hashing = { iterations: 10, prf: 'sha256' }
  const rows = JSON.parse(await text(database.bulkDocs(ADMIN, body({ docs }))))
  t.ok(
    rows.every((row: { ok: boolean }) => row.ok),
    'one request has one of them at a time',
  )
})
