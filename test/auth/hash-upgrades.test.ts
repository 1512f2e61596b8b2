/** Weak hashes of users, made anew after a login. */
import { pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import type { Account } from '../../src/auth/accounts.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { HashUpgrades, usersAccounts } from '../../src/auth/users.ts'
import { memoryDatabases } from './memory-databases.ts'

const ID = 'org.couchdb.user:anna'
const SALT = 'a,salt'

function weak(iterations: number) {
  const key = pbkdf2Sync('pw', SALT, iterations, 20, 'sha1').toString('hex')
  return { password_scheme: 'pbkdf2', salt: SALT, iterations, derived_key: key }
}

async function open({ isOn = true, iterations = 20, prf = 'sha256' } = {}) {
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
  const { world, checker, asked, faults } = await open()
  await world.putUser('anna', { ...weak(30), city: 'Graz' })
  for (const password of ['wrong', 'pw', 'pw']) await checker.check('anna', password)
  t.same(asked, ['anna'], 'asked of what was computed, not of what is remembered')
  const { _id, _rev, ...doc } = await revision(world, 2)
  t.match(doc, { city: 'Graz', salt: SALT, password_scheme: 'pbkdf2', pbkdf2_prf: 'sha256', iterations: 20 })
  t.equal(doc.derived_key, pbkdf2Sync('pw', SALT, 20, 32, 'sha256').toString('hex'))
  t.match(await checker.check('anna', 'pw'), { name: 'anna' })
  t.equal((await world.getUser('anna'))._rev, _rev)
  t.same(faults, [])
})

t.test('not where it is good enough, or not wished for, or of an admin', async (t) => {
  for (const given of [{ isOn: false }, { iterations: 30, prf: 'sha' }]) {
    const { world, checker } = await open(given)
    await world.putUser('anna', weak(30))
    t.match(await checker.check('anna', 'pw'), { name: 'anna' })
    await checker.check('anna', 'other')
    t.match((await world.getUser('anna'))._rev, /^1-/)
  }
  const { world, upgrades } = await open()
  const stored = `-hashed-${'0'.repeat(40)},x`
  upgrades.consider({ name: 'anna', roles: ['_admin'], stored, salt: '' }, 'pw')
  upgrades.consider({ name: 'anna', roles: [], stored: null, salt: '' }, 'pw')
  t.equal(world.opened.get(ID), undefined)
})

t.test('whoever writes in between wins; a document that has gone is left alone', async (t) => {
  const { world, users, upgrades, faults } = await open()
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
