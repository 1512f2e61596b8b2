/** The index stores of PostgreSQL. */
import t from 'tap'
import { Connections } from '../../../src/storage/postgres/connections.ts'
import { migrate } from '../../../src/storage/postgres/migrations.ts'
import { PostgresIndexes } from '../../../src/storage/postgres/postgres-indexes.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { runIndexTests } from '../../storage/index-conformance.ts'

const server = await startPostgres(t)
const address = await readStoreAddress(await server.createDatabase(), null)
const admin = new Connections({ address, size: 2 })
t.teardown(() => admin.close())
await migrate(admin)
let databases = 0
let openers = 0

runIndexTests('postgres', {
  sharedOpeners: true,
  many: 12_000,
  create: async (t, onOperation) => {
    const db = ++databases
    const text = `INSERT INTO database (db, incarnation, created_at, partitioned, timeline, epochs)
      VALUES ($1, $1, 0, false, '', '[]')`
    await admin.write({ name: 'make_database', text, values: [db] })
    const connections = new Connections({ address, size: 4, onOperation })
    t.teardown(() => connections.close())
    return { open: async () => new PostgresIndexes({ db, connections, opener: `opener${++openers}` }) }
  },
})
