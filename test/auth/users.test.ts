/** The accounts of `_users` on the HTTP thread: found, remembered, and forgotten in time. */
import t from 'tap'
import type { Account, Accounts } from '../../src/auth/accounts.ts'
import { verifyPassword } from '../../src/auth/password.ts'
import { combinedAccounts, usersAccounts } from '../../src/auth/users.ts'
import { SYSTEM_USER } from '../../src/auth/users-feed.ts'
import { CouchError } from '../../src/core/errors.ts'
import { USERS_DATABASE } from '../../src/core/ids.ts'
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
  t.equal(opened.get('org.couchdb.user:bert'), 1, 'that there is none is remembered, too')
  for (const name of ['', '\ud800', 'x'.repeat(10_000)]) t.equal(await users.find(name), null)
})

t.test('who asks at the same time shares one reading', async (t) => {
  const { users, putUser, opened } = await open()
  await putUser('anna', { password: 'one' })
  const before = opened.get(ID) ?? 0
  await users.find('nobody')
  await Promise.all(Array.from({ length: 20 }, () => users.find('anna')))
  t.equal(opened.get(ID), before + 1)
})

t.test('a change counts at once, and those who listen are told whose', async (t) => {
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
  await (await open()).databases.get(USERS_DATABASE).put(SYSTEM_USER, '_design/x', body(design), {})
  t.same(told, [])
})

t.test('what is read while it changes is not remembered', async (t) => {
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

t.test('documents that are no accounts, or that nobody logs in by', async (t) => {
  const { databases, users, putUser } = await open()
  const database = databases.get(USERS_DATABASE)
  await putUser('anna', { password: 'one' })
  const rev = '2-0123456789abcdef0123456789abcdef'
  const other = { _rev: rev, name: 'anna', type: 'user', roles: ['x'], password: 'two' }
  await database.put(SYSTEM_USER, ID, body(other), { newEdits: false })
  const refused = { code: 'account_conflicts', status: 401 }
  await t.rejects(users.find('anna'), refused, 'one with a conflict')
  await t.rejects(users.find('anna'), refused, 'and the same where it is remembered')
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
  emit(USERS_DATABASE, { type: 'gone' })
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
  t.match(await apart.find('root'), { roles: ['_admin'] }, 'an admin gets in whatever has befallen _users')
  await t.rejects(apart.find('anna'), { code: 'unavailable' })
})
