/** The index stores of PostgreSQL. */
import t from 'tap'
import { Connections } from '../../../src/storage/postgres/connections.ts'
import { migrate } from '../../../src/storage/postgres/migrations.ts'
import { PostgresIndexes } from '../../../src/storage/postgres/postgres-indexes.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { runIndexTests } from '../../storage/index-conformance.ts'

const server = await startPostgres(t)
const address = await readStoreAddress(await server.createDatabase(), null)
const admin = new Connections({ address, size: 2 })
t.teardown(() => admin.close())
await migrate(admin)
let databases = 0
let openers = 0

/** Makes the row of a database. @returns its number */
async function makeDatabase(): Promise<number> {
  databases += 1
  const text = `INSERT INTO database (db, incarnation, created_at, partitioned, timeline, epochs)
    VALUES ($1, $1, 0, false, '', '[]')`
  await admin.write({ name: 'make_database', text, values: [databases] })
  return databases
}

runIndexTests('postgres', {
  sharedOpeners: true,
  many: 12_000,
  create: async (t, onOperation) => {
    const db = await makeDatabase()
    const connections = new Connections({ address, size: 4, onOperation })
    t.teardown(() => connections.close())
    return { open: async () => new PostgresIndexes({ db, connections, opener: `opener${++openers}` }) }
  },
})

t.test('the rows of stores that were emptied or removed are removed, some at a time', async (t) => {
  const connections = new Connections({ address, size: 4 })
  t.teardown(() => connections.close())
  const db = await makeDatabase()
  const stores = new PostgresIndexes({ db, connections, opener: 'sweeper' })
  const fill = async (signature: string) => {
    const store = stores.open(signature, 1)
    const docs = Array.from({ length: 2500 }, (_, n) => {
      const key = Uint8Array.of(1, n >> 8, n & 255, 0)
      return { id: `d${n}`, rows: [[{ key, keyText: String(n), valueText: 'null' }]] }
    })
    const position = { seq: 1, seen: 1, epoch: 'a', purgeSeq: 0 }
    const version = await store.update(docs, { from: 0, position, more: false })
    return { store, version: version as number }
  }
  const [kept, cleared] = [await fill('kept'), await fill('cleared')]
  await fill('removed')
  t.equal(await cleared.store.clear(cleared.version), true)
  t.equal((await cleared.store.counts(0, [])).total, 0)
  await stores.remove('removed')
  const left = async (table: string) => {
    const text = `SELECT count(*) FROM ${table} WHERE db = $1`
    return (await admin.read<[number]>({ name: `left_${table}`, text, values: [db] }))[0]?.[0]
  }
  await until(async () => (await left('index_leaving')) === 0)
  t.equal(await left('index_row'), 2500)
  t.equal(await left('index_doc'), 2500)
  t.equal((await kept.store.counts(0, [])).total, 2500)
  stores.close()
})
