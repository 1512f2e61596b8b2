/** The accounts of `_users` on the HTTP thread: found, remembered, and forgotten in time. */
import { createHash, pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { type Account, type Accounts, userAccount } from '../../src/auth/accounts.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { HashUpgrades } from '../../src/auth/hash-upgrades.ts'
import { verifyPassword } from '../../src/auth/password.ts'
import { combinedAccounts, usersAccounts } from '../../src/auth/users.ts'
import { CouchError } from '../../src/core/errors.ts'
import { USERS_DATABASE } from '../../src/core/ids.ts'
import { SYSTEM_USER } from '../../src/core/types.ts'
import { maxUserIterations } from '../../src/documents/password-hashing.ts'
import { body } from '../documents/helpers.ts'
import { memoryDatabases } from './memory-databases.ts'

const ID = 'org.couchdb.user:anna'
const HASHING = { hashing: () => ({ iterations: 10 }) }

async function open() {
  const world = await memoryDatabases()
  const users = usersAccounts(world.databases, HASHING)
  const told: (readonly string[] | 'all')[] = []
  users.onChange((names) => told.push(names === 'all' ? 'all' : [...names]))
  const fits = async (password: string) => {
    const account = await users.find('anna')
    return account?.stored ? verifyPassword(password, account.stored) : null
  }
  return { ...world, world, users, told, fits }
}

t.test('an account is found, and remembered', async (t) => {
  const { users, putUser, opened } = await open()
  await putUser('anna', { password: 'one', roles: ['a', '_metrics'] })
  t.match(await users.find('anna'), { name: 'anna', roles: ['a', '_metrics'], salt: /^[0-9a-f]{32}$/ })
  const before = opened.get(ID)
  await users.find('anna')
  t.equal(opened.get(ID), before)
  t.equal(await users.find('bert'), null)
  await users.find('bert')
  t.equal(opened.get('org.couchdb.user:bert'), 1, 'a missing account is cached')
  for (const name of ['', '\ud800', 'x'.repeat(10_000)]) t.equal(await users.find(name), null)
})

t.test('simultaneous requests share one read', async (t) => {
  const { users, putUser, opened } = await open()
  await putUser('anna', { password: 'one' })
  const before = opened.get(ID) ?? 0
  await users.find('nobody')
  await Promise.all(Array.from({ length: 20 }, () => users.find('anna')))
  t.equal(opened.get(ID), before + 1)
})

t.test('a change takes effect at once, and listeners get the account', async (t) => {
  const { users, putUser, removeUser, told, fits } = await open()
  await putUser('anna', { password: 'one' })
  await putUser('bert')
  t.equal(await fits('one'), true)
  told.length = 0
  await putUser('anna', { password: 'two' })
  t.same([await fits('one'), await fits('two')], [false, true])
  t.same(told, [['anna']])
  await removeUser('anna')
  t.equal(await users.find('anna'), null)
  await putUser('anna', { password: 'three' })
  t.equal(await fits('three'), true, 'made anew')
  const design = { validate_doc_update: 'function () {}' }
  told.length = 0
  const opened = await open()
  await (await opened.databases.get(USERS_DATABASE)).put(SYSTEM_USER, '_design/x', body(design), {})
  t.same(told, [])
})

t.test('an account that changes while it is read is not cached', async (t) => {
  const { world, users, putUser, fits } = await open()
  await putUser('anna', { password: 'one' })
  await users.find('bert')
  world.beforeOpen = async () => {
    world.beforeOpen = () => {}
    await putUser('anna', { password: 'two' })
  }
  await users.find('anna')
  t.equal(await fits('two'), true)
})

t.test('documents that are not accounts, or that allow no login', async (t) => {
  const { databases, users, putUser } = await open()
  const database = await databases.get(USERS_DATABASE)
  await putUser('anna', { password: 'one' })
  const rev = '2-0123456789abcdef0123456789abcdef'
  const other = { _rev: rev, name: 'anna', type: 'user', roles: ['x'], password: 'two' }
  await database.put(SYSTEM_USER, ID, body(other), { newEdits: false })
  const refused = { code: 'account_conflicts', status: 401 }
  await t.rejects(users.find('anna'), refused, 'an account in conflict is refused')
  await t.rejects(users.find('anna'), refused, 'an account in conflict is also refused from the cache')
  await putUser('bert', { password: 'b', totp: { key: 'x' } })
  t.match(await users.find('bert'), { name: 'bert', stored: null })
  await putUser('carl', { password: null })
  t.match(await users.find('carl'), { name: 'carl', stored: null })
})

t.test('deleting the database ends all accounts; those of another one count', async (t) => {
  const { databases, users, putUser, told, fits } = await open()
  await putUser('anna', { password: 'one' })
  t.equal(await fits('one'), true)
  await databases.delete(USERS_DATABASE)
  t.equal(told.at(-1), 'all')
  t.equal(await users.find('anna'), null)
  await databases.create(USERS_DATABASE)
  t.equal(await users.find('anna'), null)
  await putUser('anna', { password: 'two' })
  t.same([await fits('one'), await fits('two')], [false, true])
})

t.test("after a thread's death everything is doubted, and commits are heard of as before", async (t) => {
  const { users, putUser, told, emit, fits, opened } = await open()
  await putUser('anna', { password: 'one' })
  t.equal(await fits('one'), true)
  emit(USERS_DATABASE, { type: 'closed' })
  t.equal(told.at(-1), 'all')
  const before = opened.get(ID) ?? 0
  t.equal(await fits('one'), true)
  t.equal(opened.get(ID), before + 1)
  await putUser('anna', { password: 'two' })
  t.equal(await fits('two'), true)
  t.same(told.at(-1), ['anna'])
  users.close()
})

t.test('a feed that cannot be read is no reason to believe what is remembered', async (t) => {
  const { world, putUser, told, fits } = await open()
  await putUser('anna', { password: 'one' })
  t.equal(await fits('one'), true)
  world.beforeChanges = () => {
    world.beforeChanges = () => {}
    throw new CouchError('unavailable')
  }
  await putUser('anna', { password: 'two' })
  t.same([await fits('one'), await fits('two')], [false, true])
  t.ok(told.includes('all'))
  world.beforeChanges = () => {
    throw new CouchError('unavailable')
  }
  await putUser('anna', { password: 'three' })
  await t.rejects(fits('three'), { code: 'unavailable' })
  world.beforeChanges = () => {}
  t.equal(await fits('three'), true)
})

t.test('admins and users together', async (t) => {
  const account = (name: string, roles: string[]): Account => ({ name, roles, stored: `${name}'s`, salt: '' })
  const of = (...known: Account[]): Accounts => ({
    find: async (name) => known.find((each) => each.name === name) ?? null,
    decoy: () => 'decoy',
    isUpToDate: () => true,
    onChange: () => () => {},
  })
  const admins = of(
    { ...account('root', ['_admin']), stored: 'of the configuration' },
    account('boss', ['_admin']),
  )
  const both = combinedAccounts(admins, of(account('root', ['team']), account('anna', [])))
  t.match(await both.find('root'), { roles: ['_admin', 'team'], stored: 'of the configuration' })
  t.match(await both.find('boss'), { roles: ['_admin'] })
  t.match(await both.find('anna'), { roles: [], stored: "anna's" })
  t.equal(await both.find('none'), null)
  t.equal(both.decoy(), 'decoy')
  const broken = { ...of(), find: async () => Promise.reject(new CouchError('unavailable')) }
  const apart = combinedAccounts(admins, broken)
  t.match(await apart.find('root'), { roles: ['_admin'] }, 'an admin can log in without _users')
  await t.rejects(apart.find('anna'), { code: 'unavailable' })
})

// A document of `_users` as an account.

const SALT = '5f2d1a0c9b8e7d6c'
const SHA = createHash('sha1').update(`pw${SALT}`).digest('hex')

function key(rounds: number, length: number, digest: string, password = 'pw', salt = SALT): string {
  return pbkdf2Sync(password, salt, rounds, length, digest).toString('hex')
}

t.test('passwords in every form that CouchDB has written', async (t) => {
  const table: Record<string, Record<string, unknown>> = {
    '1.0': { salt: SALT, password_sha: SHA },
    simple: { salt: SALT, password_sha: SHA, password_scheme: 'simple' },
    '1.3 to 3.3': { salt: SALT, password_scheme: 'pbkdf2', iterations: 10, derived_key: key(10, 20, 'sha1') },
    'without its rounds': { salt: SALT, password_scheme: 'pbkdf2', derived_key: key(10_000, 20, 'sha1') },
    '3.4': {
      salt: SALT,
      password_scheme: 'pbkdf2',
      pbkdf2_prf: 'sha512',
      iterations: 11,
      derived_key: key(11, 64, 'sha512'),
    },
    '3.5, in between': {
      salt: SALT,
      password_scheme: 'simple+pbkdf2',
      pbkdf2_prf: 'sha256',
      iterations: 12,
      derived_key: key(12, 32, 'sha256', SHA),
    },
    'an odd salt': {
      salt: 'a,b\n,c',
      password_scheme: 'pbkdf2',
      iterations: 10,
      derived_key: key(10, 20, 'sha1', 'pw', 'a,b\n,c'),
    },
  }
  for (const [name, hash] of Object.entries(table)) {
    const account = userAccount('anna', { name: 'anna', roles: [], ...hash })
    t.equal(account?.salt, hash.salt, name)
    t.equal(await verifyPassword('pw', account?.stored ?? ''), true, name)
    t.equal(await verifyPassword('pW', account?.stored ?? ''), false, name)
  }
})

t.test('accounts that no password opens', async (t) => {
  const good = { salt: SALT, password_scheme: 'pbkdf2', iterations: 10, derived_key: key(10, 20, 'sha1') }
  const table: Record<string, object> = {
    nothing: {},
    'an unknown scheme': { ...good, password_scheme: 'bcrypt' },
    'an unknown digest': { ...good, pbkdf2_prf: 'md5' },
    'a digest of another length': { ...good, pbkdf2_prf: 'sha256' },
    'no rounds': { ...good, iterations: 0 },
    'rounds without end': { ...good, iterations: 1e9 },
    'a salt without end': { ...good, salt: 'x'.repeat(1025) },
    'rounds that are none': { ...good, iterations: 'x' },
    'a key that is none': { ...good, derived_key: null },
    'a second factor': { ...good, totp: { key: 'JBSWY3DPEHPK3PXP' } },
    'no hash of its scheme': { ...good, password_scheme: 'simple' },
  }
  for (const [name, hash] of Object.entries(table)) {
    t.match(userAccount('anna', { name: 'anna', roles: [], ...hash }), { name: 'anna', stored: null }, name)
  }
})

t.test('an account of a document with more rounds than this server computes', async (t) => {
  const good = { salt: SALT, password_scheme: 'pbkdf2', iterations: 10, derived_key: key(10, 20, 'sha1') }
  const stored = (iterations: number, most: number) =>
    userAccount('anna', { name: 'anna', roles: [], ...good, iterations }, most)?.stored
  t.equal(stored(2_000_001, maxUserIterations(600_000)), null)
  t.type(stored(2_000_000, maxUserIterations(600_000)), 'string')
  t.type(stored(5_000_000, maxUserIterations(5_000_000)), 'string', 'the configuration asks for as many')
})

t.test('roles, and what is no account at all', async (t) => {
  const roles = (given: unknown) => userAccount('anna', { name: 'anna', roles: given })?.roles
  t.same(roles(['a', '_admin', '_metrics', '_x', 7, null, 'b']), ['a', '_metrics', 'b'])
  for (const odd of [undefined, null, 'a', {}]) t.same(roles(odd), [])
  for (const doc of [null, [], 'x', {}, { name: 'bert' }, { name: ['anna'] }]) {
    t.equal(userAccount('anna', doc), null)
  }
  t.throws(() => userAccount('anna', { name: 'anna', roles: [], _conflicts: ['1-a'] }), {
    code: 'account_conflicts',
  })
})

// Weak hashes of users, made anew after a login.

const USER_ID = 'org.couchdb.user:anna'
const OLD_SALT = 'a,salt'

function weak(iterations: number) {
  const key = pbkdf2Sync('pw', OLD_SALT, iterations, 20, 'sha1').toString('hex')
  return { password_scheme: 'pbkdf2', salt: OLD_SALT, iterations, derived_key: key }
}

async function openUpgrades({ isOn = true, iterations = 20, prf = 'sha256' } = {}) {
  const world = await memoryDatabases()
  const users = usersAccounts(world.databases, { hashing: () => ({ iterations }) })
  const faults: unknown[] = []
  const upgrades = new HashUpgrades({
    databases: world.databases,
    isOn: () => isOn,
    hashing: () => ({ iterations, prf }),
    onFault: (fault) => faults.push(fault),
  })
  const asked: string[] = []
  const checker = new CredentialChecker(users, {
    onVerified: (account, password) => {
      asked.push(account.name)
      upgrades.consider(account, password)
    },
  })
  return { world, users, upgrades, faults, checker, asked }
}

/** Waits for a revision of a generation. */
async function revision(world: Awaited<ReturnType<typeof memoryDatabases>>, generation: number) {
  for (;;) {
    const doc = await world.getUser('anna')
    if (doc._rev.startsWith(`${generation}-`)) return doc
    await new Promise((resolve) => setImmediate(resolve))
  }
}

t.test('once, with the same salt, and all else as it was', async (t) => {
  const { world, checker, asked, faults } = await openUpgrades()
  await world.putUser('anna', { ...weak(30), city: 'Graz' })
  for (const password of ['wrong', 'pw', 'pw']) await checker.check('anna', password)
  t.same(asked, ['anna'], 'only a computed check asks for an upgrade of the hash')
  const { _id, _rev, ...doc } = await revision(world, 2)
  t.match(doc, {
    city: 'Graz',
    salt: OLD_SALT,
    password_scheme: 'pbkdf2',
    pbkdf2_prf: 'sha256',
    iterations: 20,
  })
  t.equal(doc.derived_key, pbkdf2Sync('pw', OLD_SALT, 20, 32, 'sha256').toString('hex'))
  t.match(await checker.check('anna', 'pw'), { name: 'anna' })
  t.equal((await world.getUser('anna'))._rev, _rev)
  t.same(faults, [])
})

t.test('not where it is good enough, or not wished for, or of an admin', async (t) => {
  for (const given of [{ isOn: false }, { iterations: 30, prf: 'sha' }]) {
    const { world, checker } = await openUpgrades(given)
    await world.putUser('anna', weak(30))
    t.match(await checker.check('anna', 'pw'), { name: 'anna' })
    await checker.check('anna', 'other')
    t.match((await world.getUser('anna'))._rev, /^1-/)
  }
  const { world, upgrades } = await openUpgrades()
  const stored = `-hashed-${'0'.repeat(40)},x`
  upgrades.consider({ name: 'anna', roles: ['_admin'], stored, salt: '' }, 'pw')
  upgrades.consider({ name: 'anna', roles: [], stored: null, salt: '' }, 'pw')
  t.equal(world.opened.get(USER_ID), undefined)
})

t.test('a write in between wins; a removed document is left alone', async (t) => {
  const { world, users, upgrades, faults } = await openUpgrades()
  await world.putUser('anna', weak(10))
  const account = (await users.find('anna')) as Account
  let isRead = () => {}
  const read = new Promise<void>((resolve) => (isRead = resolve))
  world.beforeOpen = async () => {
    world.beforeOpen = () => {}
    await world.putUser('anna', { ...weak(11), city: 'Linz' })
    isRead()
  }
  upgrades.consider(account, 'pw')
  upgrades.consider(account, 'pw')
  await read
  await users.find('x')
  t.match(await world.getUser('anna'), { city: 'Linz', iterations: 11 })
  await world.removeUser('anna')
  upgrades.consider({ ...account, name: 'gone' }, 'pw')
  await users.find('y')
  t.same(faults, [])
})
