/** couch_peruser: a database for each account; protocol.md 11.7, 12.2. */
import t, { type Test } from 'tap'
import { PerUserDatabases } from '../../src/auth/peruser.ts'
import { withoutOwners } from '../../src/auth/policy.ts'
import { openConfig } from '../../src/config/config.ts'
import { CouchError } from '../../src/core/errors.ts'
import { USERS_DATABASE } from '../../src/core/ids.ts'
import { SYSTEM_USER } from '../../src/core/types.ts'
import { readRecord } from '../../src/storage/records.ts'
import { Claims, claimsOfOne, type Duty } from '../../src/threads/claims.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { sharedRecords } from '../storage/memory/records.ts'
import { memoryDatabases } from './memory-databases.ts'

const ANNA = 'userdb-616e6e61'
const BERT = 'userdb-62657274'
const OWNED = (name: string) => ({
  members: { roles: ['_admin'], names: [name] },
  admins: { roles: ['_admin'], names: [name] },
})

async function open(t: Test, enable = 'true') {
  const world = await memoryDatabases()
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} })
  const set = (key: string, value: string) => config.set('couch_peruser', key, value)
  await set('enable', enable)
  const faults: [name: string | null, fault: unknown][] = []
  const start = (duty = claimsOfOne().duty('upkeep')) => {
    const perUser = new PerUserDatabases({
      databases: world.databases,
      registry: withoutOwners(world.databases),
      config,
      duty,
      onFault: (fault, name) => faults.push([name, fault]),
    })
    perUser.start()
    t.teardown(() => perUser.close())
    return perUser
  }
  const { has: isThere, get } = world.databases
  const security = async (name: string) => ((await isThere(name)) ? (await get(name)).security() : null)
  return { ...world, world, set, start, faults, isThere, security }
}

t.test('an account gets its database, and is its admin and member', async (t) => {
  const { start, putUser, isThere, security } = await open(t)
  start()
  await putUser('anna')
  await until(() => isThere(ANNA))
  await until(async () => (await security(ANNA)) !== null)
  t.same(await security(ANNA), OWNED('anna'))
})

t.test('those that are there already are caught up, at the start and when it is switched on', async (t) => {
  const { start, set, putUser, isThere, databases } = await open(t, 'false')
  await putUser('anna')
  const perUser = start()
  await putUser('bert')
  t.same(await Array.fromAsync(databases.allNames()), [USERS_DATABASE])
  await set('enable', 'true')
  await until(async () => (await isThere(ANNA)) && (await isThere(BERT)))
  await perUser.close()
  await databases.delete(BERT)
  start()
  await until(() => isThere(BERT))
  t.same(
    await Array.fromAsync(databases.allNames()),
    [USERS_DATABASE, ANNA, BERT],
    'a missing database is created again',
  )
})

t.test('finished work is not repeated: a changed security object stays', async (t) => {
  const { start, putUser, databases, security } = await open(t)
  const first = start()
  await putUser('anna')
  await until(async () => (await security(ANNA)) !== null)
  await until(async () => {
    const stored = await readRecord(databases, 'couch_peruser', 'checkpoint')
    const { update_seq: now } = await (await databases.get(USERS_DATABASE)).info(SYSTEM_USER)
    return stored?.includes(now) ?? false
  })
  await first.close()
  const changed = { members: { names: ['bert'] }, admins: { names: ['bert'] } }
  await (await databases.get(ANNA)).setSecurity(SYSTEM_USER, changed)
  start()
  await putUser('bert')
  await until(async () => (await databases.has(BERT)) && (await security(BERT)) !== null)
  t.same(await security(ANNA), changed)
  await putUser('anna', { city: 'Graz' })
  await until(async () => JSON.stringify(await security(ANNA)).includes('anna'))
  t.same(await security(ANNA), { members: { names: ['bert', 'anna'] }, admins: { names: ['bert', 'anna'] } })
})

t.test('of two nodes one does the work, and the other goes on when it stops', async (t) => {
  const { start, putUser, databases, isThere } = await open(t)
  const claims = sharedRecords(2).map(
    (records) => new Claims({ records, onFault: (fault) => t.fail(String(fault)) }),
  )
  const [one, two] = claims.map((each) => each.duty('upkeep')) as [Duty, Duty]
  await until(() => one.isHeld || two.isHeld)
  const [holder, other] = one.isHeld ? claims : claims.toReversed()
  const made: string[] = []
  const { create } = databases
  databases.create = (name, ...more) => {
    made.push(name)
    return create(name, ...more)
  }
  start(one)
  start(two)
  await putUser('anna')
  await until(() => isThere(ANNA))
  await holder?.close()
  await putUser('bert')
  await until(() => isThere(BERT))
  t.same(made, [ANNA, BERT], 'each database is created once')
  await other?.close()
})

t.test('a crash between the making and the securing is made good', async (t) => {
  const { start, putUser, databases, security } = await open(t)
  await putUser('anna')
  await databases.create(ANNA)
  start()
  await until(async () => (await security(ANNA)) !== null)
  t.same(await security(ANNA), OWNED('anna'))
})

t.test('a deleted account loses its rights, and with delete_dbs its database', async (t) => {
  const { start, set, putUser, removeUser, databases, isThere, security } = await open(t)
  start()
  await putUser('anna')
  await putUser('bert')
  await until(async () => (await isThere(BERT)) && (await security(BERT)) !== null)
  const ofBert = await databases.get(BERT)
  await ofBert.setSecurity(SYSTEM_USER, { members: { names: ['bert'] }, admins: { names: ['bert'] } })
  await removeUser('bert')
  await until(async () => !JSON.stringify(await security(BERT)).includes('bert'))
  const closed = { names: [], roles: ['_admin'] }
  t.same(await security(BERT), { members: closed, admins: closed }, 'the security object admits nobody else')
  await set('delete_dbs', 'true')
  await removeUser('anna')
  await until(async () => !(await isThere(ANNA)))
  t.ok(await isThere(BERT))
})

t.test('an account that is deleted and created again keeps its database', async (t) => {
  const { start, set, world, putUser, removeUser, databases, isThere } = await open(t)
  await set('delete_dbs', 'true')
  start()
  await putUser('anna')
  await until(async () => (await isThere(ANNA)) && (await (await databases.get(ANNA)).security()) !== null)
  const { incarnation } = await databases.get(ANNA)
  let release = () => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  world.beforeChanges = () => held
  await removeUser('anna')
  await new Promise<void>((resolve) => {
    world.beforeOpen = async () => {
      world.beforeOpen = () => {}
      await putUser('anna')
      resolve()
    }
    release()
  })
  await putUser('bert')
  await until(() => isThere(BERT))
  t.equal((await databases.get(ANNA)).incarnation, incarnation)
})

t.test('a name that is too long for a database is logged and delays no others', async (t) => {
  const { start, putUser, isThere, faults, databases } = await open(t)
  const { create } = databases
  databases.create = async (name) => {
    if (name.length > 200) throw new CouchError('database_name_too_long')
    return create(name)
  }
  start()
  await putUser('x'.repeat(200))
  await putUser('anna')
  await until(() => isThere(ANNA))
  t.match(faults, [['x'.repeat(200), { code: 'database_name_too_long' }]])
})

t.test('failed work is retried; the prefix; _users created again', async (t) => {
  const { start, set, world, putUser, isThere, faults, databases } = await open(t)
  world.beforeChanges = () => {
    throw new CouchError('unavailable')
  }
  start()
  await putUser('anna')
  await until(() => faults.length > 0)
  t.match(faults[0], [null, { code: 'unavailable' }])
  world.beforeChanges = () => {}
  await putUser('bert')
  await until(async () => (await isThere(ANNA)) && (await isThere(BERT)))
  await set('database_prefix', 'vault-')
  await until(async () => (await isThere('vault-616e6e61')) && (await isThere('vault-62657274')))
  await t.rejects(set('database_prefix', 'Vault'), { code: 'bad_request' })
  await databases.delete(USERS_DATABASE)
  await databases.create(USERS_DATABASE)
  await putUser('carl')
  await until(() => isThere('vault-6361726c'))
})
