/** The records of owners: two nodes that change them at once, and crashes between two writes. */
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { systemClock } from '../../src/changes/source.ts'
import { RANKS, rankKey, readTotals, SIZES, TOTALS } from '../../src/hosted/account-totals.ts'
import { Owners } from '../../src/hosted/owners.ts'
import { OF_ACCOUNT, OWNER, type Owned, prefixOf, readOwned, UNFINISHED } from '../../src/hosted/ownership.ts'
import { Usage } from '../../src/hosted/usage.ts'
import type { WatchedRecords } from '../../src/storage/records.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { MemoryRecords, sharedRecords } from '../storage/memory/records.ts'

const at = (account: string, state: Owned['state']): Owned => ({ account, state })

t.test('the owner of a database, its other records, and what a restart finds', async (t) => {
  const [records, others] = sharedRecords(2) as [MemoryRecords, MemoryRecords]
  const owners = new Owners(records)
  await owners.set('a', at('anna', 'making'))
  t.equal(await owners.ownerOf('a'), undefined, 'nobody owns what is not finished')
  t.same(await owners.databasesOf('anna', {}, 10), [])
  t.same(
    records.all(UNFINISHED).map(({ key }) => key),
    ['a'],
  )
  t.equal((await owners.totalsOf('anna')).databases, 1, 'but it counts')
  await owners.set('a', at('anna', 'owned'))
  await owners.set('b', at('anna', 'owned'))
  await owners.set('b', at('anna', 'deleted'))
  for (const each of [owners, new Owners(others)]) {
    t.equal(await each.ownerOf('a'), 'anna')
    t.equal(await each.ownerOf('b'), undefined)
    t.same(await each.databasesOf('anna', {}, 10), ['a'])
    t.same(await each.formerDatabasesOf('anna'), ['b'])
    t.same(await each.namesInUpdates('anna'), { own: ['a'], former: ['b'] })
  }
  await owners.set('b', at('bert', 'owned'))
  t.same(await owners.formerDatabasesOf('anna'), [])
  for (const name of ['a', 'b']) await owners.set(name, null)
  for (const account of ['anna', 'bert']) await owners.forgetAccount(account)
  for (const kind of [OWNER, OF_ACCOUNT, UNFINISHED, TOTALS, RANKS]) t.same(records.all(kind), [], kind)
})

t.test('names in pages, also of an account whose name begins like another', async (t) => {
  const owners = new Owners(new MemoryRecords())
  for (const name of ['a-1', 'a-2', 'a-3', 'b-1']) await owners.set(name, at('anna', 'owned'))
  await owners.set('a-2', at('anna', 'making'))
  await owners.set('c', at('anna/a', 'owned'))
  t.same(await owners.databasesOf('anna', {}, 2), ['a-1', 'a-3'])
  t.same(await owners.databasesOf('anna', { after: 'a-3' }, 2), ['b-1'])
  t.same(await owners.databasesOf('anna', { prefix: 'a-', after: 'a-1' }, 2), ['a-3'])
})

t.test('the latest 100 deleted databases are remembered', async (t) => {
  const records = new MemoryRecords()
  let now = 0
  const owners = new Owners(records, () => now++)
  for (let n = 0; n < 105; n++) {
    await owners.set(`db${n}`, at('anna', 'owned'))
    await owners.set(`db${n}`, at('anna', 'deleted'))
  }
  const former = await owners.formerDatabasesOf('anna')
  t.same([former.length, former[0], records.all(OWNER).length], [100, 'db5', 100])
})

t.test('what one node changes, the other sees', async (t) => {
  const [one, two] = sharedRecords(2).map((records) => new Owners(records)) as [Owners, Owners]
  t.equal(await two.ownerOf('notes'), undefined)
  await one.set('notes', at('anna', 'owned'))
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(await two.ownerOf('notes'), 'anna')
})

t.test('two nodes do not exceed the number of databases together', async (t) => {
  const nodes = sharedRecords(2).map((records) => new Owners(records))
  const make = (name: string, n: number) =>
    (nodes[n % 2] as Owners).change(name, {
      next: () => at('anna', 'making'),
      checkTotals: ({ databases }) => {
        if (databases >= 3) throw new Error('too many')
      },
    })
  const made = await Promise.allSettled(['a', 'b', 'c', 'd', 'e', 'f'].map(make))
  t.equal(made.filter(({ status }) => status === 'fulfilled').length, 3)
  t.equal((await (nodes[0] as Owners).totalsOf('anna')).databases, 3)
})

/** A node that others overtake between two reads. */
function slowly(records: MemoryRecords): WatchedRecords {
  return {
    readRecords: async (...args) => {
      await turn()
      return records.readRecords(...args)
    },
    listRecords: (...args) => records.listRecords(...args),
    writeRecords: (writes) => records.writeRecords(writes),
    watchCatalog: (listener) => records.watchCatalog(listener),
  }
}

/** Measures databases that have a size. */
function measuring(records: WatchedRecords) {
  const sizes = new Map<string, number>()
  const get = async (name: string) => ({
    info: async () => ({ sizes: { active: sizes.get(name) ?? 0 }, doc_count: 1 }),
    indexUsage: async () => ({ bytes: 0, indexes: 0 }),
  })
  const databases = { get, watchWrites: () => () => {} } as unknown as Pick<Databases, 'get' | 'watchWrites'>
  const onFault = (fault: unknown) => {
    throw fault
  }
  const owners = new Owners(records)
  return {
    sizes,
    owners,
    usage: new Usage({ databases, owners, records, clock: systemClock, onFault }),
  }
}

t.test('damaged records of one account hinder no measuring of others', async (t) => {
  for (const value of ['{', 'null', '[]', '{}']) {
    for (const kind of [OWNER, SIZES, TOTALS]) {
      const records = new MemoryRecords()
      const { owners, usage, sizes } = measuring(records)
      await owners.set('a', at('anna', 'owned'))
      await owners.set('b', at('bert', 'owned'))
      sizes.set('a', 10).set('b', 20)
      await records.writeRecords([{ kind, key: kind === TOTALS ? 'anna' : 'a', value }])
      await usage.measureAll(['a', 'b'])
      t.match(await usage.sumOf('bert'), { bytes: 20 }, `${kind} ${value}`)
      if (kind !== OWNER) t.match(await usage.sumOf('anna'), { bytes: 10 }, `${kind} ${value}`)
    }
  }
})

/** Every record follows from those of the owners and the sizes. */
function checkRecords(records: MemoryRecords): void {
  const owned = records.all(OWNER).map(({ key, value }) => [key, readOwned(value) as Owned] as const)
  const expected = owned
    .filter(([, { state }]) => state !== 'deleted')
    .map(([name, { account, state }]) => `${prefixOf(account)}${name} ${state}`)
  const found = records.all(OF_ACCOUNT).map(({ key, value }) => `${key} ${value}`)
  if (found.join() !== expected.sort().join()) throw new Error(`databases: ${found} but ${expected}`)
  const sizes = new Map(records.all(SIZES).map(({ key, value }) => [key, JSON.parse(value)]))
  for (const { key: account, value } of records.all(TOTALS)) {
    const own = owned.filter(([, each]) => each.account === account && each.state !== 'deleted')
    const totals = readTotals(value)
    const bytes = own.reduce((sum, [name]) => sum + (sizes.get(name)?.bytes ?? 0), 0)
    if (totals.databases !== own.length || totals.bytes !== bytes) throw new Error(`${account}: ${value}`)
    const ranks = records.all(RANKS).filter((each) => each.value === account)
    if (ranks.map(({ key }) => key).join() !== rankKey(account, bytes)) throw new Error(`rank of ${account}`)
  }
}

t.test('whatever nodes change at once, and wherever they crash, the records agree', async (t) => {
  const change = fc.record({
    node: fc.integer({ min: 0, max: 1 }),
    name: fc.constantFrom('a', 'b', 'c'),
    next: fc.option(
      fc.record({
        account: fc.constantFrom('anna', 'bert'),
        state: fc.constantFrom('making' as const, 'owned' as const, 'deleted' as const),
      }),
    ),
    dies: fc.boolean(),
    bytes: fc.option(fc.integer({ min: 0, max: 100_000 })),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(change, { minLength: 3, maxLength: 6 }), { maxLength: 8 }),
      async (rounds) => {
        const openers = sharedRecords(2)
        const slow = openers.map(slowly)
        const nodes = slow.map((records) => measuring(records))
        for (const round of rounds) {
          await Promise.all(
            round.map(({ node, name, next, dies, bytes }) => {
              const { owners, usage, sizes } = nodes[node] as (typeof nodes)[number]
              if (bytes !== null) {
                sizes.set(name, bytes)
                return usage.measureAll([name, 'a'])
              }
              const guards = async () => {
                if (dies) throw new Error('the node has died')
                return []
              }
              return owners.change(name, { next: () => next, guards }).catch(() => undefined)
            }),
          )
          checkRecords(openers[0] as MemoryRecords)
        }
      },
    ),
    { numRuns: 150 },
  )
  t.pass()
})
