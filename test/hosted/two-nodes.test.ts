/** Hosted mode on two nodes over one store: what one node did, the other respects. */
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { CouchError } from '../../src/core/errors.ts'
import { Listeners } from '../../src/core/listeners.ts'
import type { SecurityObject } from '../../src/core/types.ts'
import { openHosted } from '../../src/hosted/hosted.ts'
import { SignUpCounts } from '../../src/hosted/sign-up-counts.ts'
import { Tenants } from '../../src/hosted/tenants.ts'
import { Claims } from '../../src/threads/claims.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { type MemoryRecords, sharedRecords } from '../storage/memory/records.ts'

/** A database as both nodes see it. */
interface Stored {
  security: SecurityObject | null
  bytes: number
}

/** The databases of one node over what all nodes store. */
function databasesOver(stored: Map<string, Stored>, records: MemoryRecords) {
  const writes = new Listeners<[string]>()
  const get = (name: string): Stored => {
    const found = stored.get(name)
    if (found === undefined) throw new CouchError('no_database')
    return found
  }
  const databases = {
    readRecords: (kind: string, keys: readonly string[]) => records.readRecords(kind, keys),
    listRecords: (...args: Parameters<MemoryRecords['listRecords']>) => records.listRecords(...args),
    writeRecords: records.writeRecords.bind(records),
    watchCatalog: records.watchCatalog.bind(records),
    limitGrowth: () => undefined,
    watchWrites: (listener: (name: string) => void) => writes.add(listener),
    updates: async () => ({ rows: [], lastSeq: 0, epochs: [] }),
    has: async (name: string) => stored.has(name),
    get: async (name: string) => {
      const database = get(name)
      return {
        security: async () => database.security,
        setSecurity: async (_user: unknown, security: SecurityObject) => {
          database.security = security
        },
        info: async () => ({ sizes: { active: database.bytes }, doc_count: 1 }),
        indexUsage: async () => ({ bytes: 0, indexes: 0 }),
      }
    },
    create: async (name: string) => {
      await turn()
      if (stored.has(name)) throw new CouchError('file_exists')
      stored.set(name, { security: null, bytes: 0 })
    },
    delete: async (name: string) => {
      get(name)
      await turn()
      stored.delete(name)
    },
  } as unknown as Databases
  const write = (name: string, bytes: number) => {
    get(name).bytes += bytes
    writes.tell(name)
  }
  return { databases, write }
}

async function startNodes(t: Test, settings: Record<string, string> = {}) {
  const dataDir = await temporaryFolder(t)
  const stored = new Map<string, Stored>()
  const nodes = []
  for (const records of sharedRecords(2)) {
    const config = await openConfig({ dataDir, env: {}, flags: { hosted: true } })
    for (const [path, value] of Object.entries(settings)) {
      const [section = '', key = ''] = path.split('/')
      await config.set(section, key, value)
    }
    const { databases, write } = databasesOver(stored, records)
    const onFault = (fault: unknown) => t.fail('in the background', { fault })
    const claims = new Claims({ records, onFault })
    const hosted = await openHosted({ config, databases, claims, onFault, deleteTokens: async () => 0 })
    t.teardown(async () => {
      await hosted.close()
      await claims.close()
    })
    nodes.push({ hosted, write, records, claims })
  }
  type Node = (typeof nodes)[number]
  return { one: nodes[0] as Node, two: nodes[1] as Node, stored }
}

const codesOf = (settled: readonly PromiseSettledResult<unknown>[]) =>
  settled.map((each) => (each.status === 'fulfilled' ? 'made' : (each.reason as CouchError).code)).sort()

t.test('one of those who want a name gets it, on whatever node', async (t) => {
  const { one, two } = await startNodes(t)
  const tries = ['anna', 'bert', 'cora', 'dora'].map((account, n) =>
    (n % 2 === 0 ? one : two).hosted.databases.createOwn('wanted', account),
  )
  const tried = await Promise.allSettled([...tries, two.hosted.databases.create('wanted', null)])
  t.same(codesOf(tried), [...Array(4).fill('file_exists'), 'made'])
  const owner = await one.hosted.owners.ownerOf('wanted')
  t.equal(await two.hosted.owners.ownerOf('wanted'), owner)
})

t.test('an account makes no more databases than it may have', async (t) => {
  const { one, two, stored } = await startNodes(t, { 'quota/databases': '2' })
  const names = ['a', 'b', 'c', 'd', 'e', 'f']
  const tried = await Promise.allSettled(
    names.map((name, n) => (n % 2 === 0 ? one : two).hosted.databases.createOwn(name, 'anna')),
  )
  t.same(codesOf(tried), [...Array(4).fill('forbidden'), 'made', 'made'])
  t.equal(stored.size, 2)
  t.equal((await two.hosted.owners.databasesOf('anna', {}, 10)).length, 2)
})

t.test('a suspension counts on the other node, whose feeds are told', async (t) => {
  const { one, two } = await startNodes(t)
  t.equal(await two.hosted.policy.refusalOf('anna'), null)
  const told = new Promise((resolve) => two.hosted.tenants.onChange(resolve))
  await one.hosted.tenants.change('anna', { isSuspended: true, quota: { requests: 7 } })
  t.same(await told, new Set(['anna']))
  t.match(await two.hosted.policy.refusalOf('anna'), /suspended/)
  t.equal((await two.hosted.tenants.quotaOf('anna')).requests, 7)
  await t.rejects(two.hosted.databases.createOwn('notes', 'anna'), { code: 'forbidden' })
  const changes = [one, two].map(({ hosted }, n) =>
    hosted.tenants.change('anna', n === 0 ? { isSuspended: false } : { quota: { feeds: 3 } }),
  )
  await Promise.all(changes)
  t.match(await one.hosted.tenants.stateOf('anna'), {
    isSuspended: false,
    overrides: { requests: 7, feeds: 3 },
  })
})

t.test('what one node writes counts in the allowance on the other', async (t) => {
  const { one, two } = await startNodes(t, { 'quota/bytes': '1000' })
  await one.hosted.databases.createOwn('a', 'anna')
  await two.hosted.databases.createOwn('b', 'anna')
  one.write('a', 700)
  two.write('b', 200)
  await Promise.all([one.hosted.usage.measureChanged(), two.hosted.usage.measureChanged()])
  await turn()
  t.match(await two.hosted.policy.allowance('b'), { bytes: { limit: 1000, others: 700, here: 200 } })
  t.match(await one.hosted.policy.allowance('a'), { bytes: { limit: 1000, others: 200, here: 700 } })
  await two.hosted.databases.delete('a')
  t.match(await two.hosted.usage.sumOf('anna'), { databases: 1, bytes: 200 })
})

t.test('a node continues what another has left when it died', async (t) => {
  const { one, two, stored } = await startNodes(t)
  await one.hosted.databases.createOwn('notes', 'anna')
  await one.hosted.tenants.change('anna', { isBeingDeleted: true })
  await one.hosted.owners.set('half', { account: 'bert', state: 'making' })
  stored.set('half', { security: null, bytes: 0 })
  const held = await one.claims.take('database half')
  await two.hosted.resume()
  t.equal(await two.hosted.owners.ownerOf('half'), undefined, 'on which the other still works')
  t.notOk(stored.has('notes'), 'the account is deleted')
  await held?.release()
  await two.hosted.resume()
  t.equal(await two.hosted.owners.ownerOf('half'), 'bert')
  t.match(stored.get('half'), { security: { members: { names: ['bert'] } } })
})

t.test('sign-ups of an address count together, and are forgotten after their time', async (t) => {
  const [records, others] = sharedRecords(2) as [MemoryRecords, MemoryRecords]
  let now = 0
  const one = new SignUpCounts(records, () => now)
  const two = new SignUpCounts(others, () => now)
  const tries = [one, two, one, two, one, two, two].map((node) => node.add('192.0.2.1', 1000, 5))
  t.same((await Promise.all(tries)).map(({ current }) => current).sort(), [1, 2, 3, 4, 5, 6, 6])
  now = 500
  await two.add('192.0.2.2', 1000, 5)
  await one.sweep()
  t.equal(records.all('sign_up').length, 2)
  now = 1000
  t.same(await one.add('192.0.2.3', 1000, 5), { current: 1, ttl: 1000 })
  await one.sweep()
  t.same(
    records.all('sign_up').map(({ key }) => key),
    ['192.0.2.2', '192.0.2.3'],
  )
})

t.test('an account whose record is damaged is suspended until the operator ends that', async (t) => {
  const [records] = sharedRecords(1) as [MemoryRecords]
  const tenants = new Tenants(records, await openConfig({ dataDir: t.testdir(), env: {}, flags: {} }))
  for (const value of ['{', 'null', '[]']) {
    await records.writeRecords([{ kind: 'tenant', key: 'anna', value }])
    t.match(await tenants.refusalOf('anna'), /suspended/, value)
    t.match(await tenants.stateOf('anna'), { isSuspended: true })
    await tenants.change('anna', { isSuspended: false })
    t.equal(await tenants.refusalOf('anna'), null)
  }
})

t.test('a damaged record of sign-ups refuses none, and hinders no other work', async (t) => {
  const [records] = sharedRecords(1) as [MemoryRecords]
  const counts = new SignUpCounts(records, () => 0)
  for (const value of ['{', 'null', '[]', '{"count":"x"}']) {
    await records.writeRecords(['192.0.2.1', '192.0.2.2'].map((key) => ({ kind: 'sign_up', key, value })))
    t.same(await counts.add('192.0.2.1', 1000, 5), { current: 1, ttl: 1000 }, value)
    await counts.sweep()
    t.equal(records.all('sign_up').length, 1, value)
  }
})

t.test('an account that one node deletes while the other makes databases for it', async (t) => {
  const { one, two, stored } = await startNodes(t)
  await one.hosted.databases.createOwn('first', 'anna')
  const tried = await Promise.allSettled([
    one.hosted.accounts.delete('anna'),
    two.hosted.accounts.delete('anna'),
    ...['a', 'b', 'c', 'd'].map((name) => two.hosted.databases.createOwn(name, 'anna')),
  ])
  t.ok(tried.slice(0, 2).some(({ status }) => status === 'fulfilled'))
  t.notOk(stored.has('first'))
  t.same(
    await one.hosted.owners.databasesOf('anna', {}, 10),
    [...stored.keys()].sort(),
    'no database is left alone',
  )
  t.equal((await two.hosted.owners.totalsOf('anna')).databases, stored.size)
})

t.test('both nodes read each other’s tokens of _db_updates', async (t) => {
  const { one, two } = await startNodes(t)
  const token = one.hosted.policy.updatesOf('anna')?.encode('7-AAAAAAAAAAAA') ?? ''
  t.equal(two.hosted.policy.updatesOf('anna')?.decode(token), '7-AAAAAAAAAAAA')
})

t.test('whatever names a stranger asks for, none of them is read or remembered', async (t) => {
  const { one } = await startNodes(t)
  const { records, hosted } = one
  const reads: string[] = []
  const { readRecords } = records
  records.readRecords = (kind, keys) => {
    reads.push(...keys)
    return readRecords.call(records, kind, keys)
  }
  for (const name of ['A', 'x'.repeat(300), '../x', 'a\u0000', 'ü'])
    t.equal(await hosted.policy.allowance(name), undefined)
  t.same(reads, [])
  const long = 'x'.repeat(10_000)
  for (let n = 0; n < 2; n++) t.equal(await hosted.policy.refusalOf(long), null)
  t.equal(reads.length, 2, 'a long name is read each time')
  for (let n = 0; n < 2; n++) t.equal(await hosted.policy.refusalOf('anna'), null)
  t.equal(reads.length, 3, 'and an ordinary one once')
})

t.test('a start reads nothing that grows with the accounts', async (t) => {
  const [records] = sharedRecords(1) as [MemoryRecords]
  const names = Array.from({ length: 2000 }, (_, n) => `tenant${n}`)
  await records.writeRecords(
    names.flatMap((name) => [
      ...['usage', 'usage_account'].map((kind) => ({ kind, key: name, value: '{"bytes":1,"documents":1}' })),
      { kind: 'owner', key: name, value: JSON.stringify({ account: name }) },
      { kind: 'tenant', key: name, value: '{"quota":{"databases":20},"suspended":false,"leaving":false}' },
    ]),
  )
  let read = 0
  const { readRecords, listRecords } = records
  records.readRecords = async (...args) => {
    const found = await readRecords.apply(records, args)
    read += found.length
    return found
  }
  records.listRecords = async (...args) => {
    const found = await listRecords.apply(records, args)
    read += found.length
    return found
  }
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: { hosted: true } })
  const { databases } = databasesOver(new Map(), records)
  const onFault = (fault: unknown) => t.fail('in the background', { fault })
  const hosted = await openHosted({ config, databases, onFault, deleteTokens: async () => 0 })
  await hosted.resume()
  t.ok(read < 10, `${read} records`)
  t.match(await hosted.policy.allowance('tenant7'), { bytes: { here: 1 } })
  t.ok(read < 20, `${read} records`)
  await hosted.close()
})
