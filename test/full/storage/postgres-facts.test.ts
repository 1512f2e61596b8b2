/** What a real PostgreSQL says about itself as a store, and what is judged of it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { storeFindings } from '../../../src/doctor/store-checks.ts'
import { readStoreFacts } from '../../../src/storage/postgres/store-facts-reader.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { refusalOf, type StoreFacts, warningOf } from '../../../src/storage/store-facts.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'

const server = await startPostgres(t, { settings: { max_prepared_transactions: '4', wal_level: 'logical' } })
const factsOf = async (address: string) => readStoreFacts(await readStoreAddress(address, null))
const statesOf = (facts: StoreFacts) =>
  Object.fromEntries(
    storeFindings(facts, 30).map(({ name, state, text, cures }) => [name, { state, text, cures }]),
  )

async function connect(t: Test, connectionString: string, application_name = ''): Promise<Client> {
  const client = new Client({ connectionString, application_name })
  await client.connect()
  t.teardown(() => client.end())
  return client
}

t.test('a PostgreSQL as it is installed can be used', async (t) => {
  const facts = await factsOf(await server.createDatabase())
  t.equal(refusalOf(facts, 30), null)
  t.equal(warningOf(facts, 30), null)
  t.ok(Math.abs(facts.clockAheadMs) < 1000)
  t.match(facts, {
    encoding: 'UTF8',
    hasCollationC: true,
    isStandby: false,
    mayCreate: true,
    seesOthers: false,
    citus: null,
    limit: null,
    autovacuum: true,
    hasTimeline: true,
    hasChecksums: false,
    transactions: { isolation: 'read committed', isReadOnly: false },
    idleTimeoutMs: 0,
    connections: { max: 200, used: 0, settee: 0 },
    old: [],
  })
  t.ok(facts.roundTripMs > 0 && facts.roundTripMs < 1000)
})

t.test('connections of settee are told apart, and limits count', async (t) => {
  const address = await server.createDatabase()
  for (let at = 0; at < 3; at++) await connect(t, address, 'settee node-1')
  await connect(t, address, 'psql')
  t.match((await factsOf(address)).connections, { used: 4, settee: 3 })
  await server.query('ALTER ROLE settee CONNECTION LIMIT 20')
  t.teardown(() => server.query('ALTER ROLE settee CONNECTION LIMIT -1'))
  const facts = await factsOf(address)
  t.equal(facts.limit, 20)
  t.match(refusalOf(facts, 30), /has 20 connections for settee, and this node alone needs up to 30/)
  t.match(warningOf(facts, 18), /has 17 free connections, and this node needs up to 18/)
  t.match(statesOf(facts).connections, { state: 'wrong', text: /max_connections 200/ })
})

t.test('defaults of the account and the database are told', async (t) => {
  const address = await server.createDatabase()
  const set = (what: string) =>
    server.query(`ALTER DATABASE ${new URL(address).pathname.slice(1)} SET ${what}`)
  await set("default_transaction_isolation = 'serializable'")
  t.match(statesOf(await factsOf(address)).transactions, { state: 'fine', text: /default is serializable/ })
  await set('default_transaction_read_only = on')
  t.match(statesOf(await factsOf(address)).transactions, { state: 'wrong', text: /nothing can be saved/ })
})

t.test('what holds old rows is named', async (t) => {
  const address = await server.createDatabase()
  // A slot waits for older transactions, so it comes first.
  await server.query(`SELECT pg_create_logical_replication_slot('gone', 'test_decoding')`)
  const idle = await connect(t, address, 'report')
  await idle.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
  await idle.query('SELECT 1')
  // Pools keep connections that are idle between transactions, and keep no rows.
  const pooled = await connect(t, address, 'settee node-1')
  await pooled.query('BEGIN')
  await pooled.query('COMMIT')
  const preparing = await connect(t, address)
  await preparing.query('BEGIN')
  await preparing.query(`PREPARE TRANSACTION 'left'`)
  await sleep(20)
  const facts = await readStoreFacts(await readStoreAddress(address, null), 0.01)
  await preparing.query(`ROLLBACK PREPARED 'left'`)
  await server.query(`SELECT pg_drop_replication_slot('gone')`)
  t.match(
    facts.old.map(({ what }) => what).join('; '),
    /connection \d+ of settee \(report, idle in transaction\)/,
  )
  t.match(facts.old.map(({ what }) => what).join('; '), /prepared transaction left of settee/)
  t.match(facts.old.map(({ what }) => what).join('; '), /replication slot gone, which nobody reads/)
  t.equal(facts.old.length, 3, 'an idle connection is not among them')
  t.match(statesOf(facts).snapshots, { state: 'wrong', cures: [{ place: 'PostgreSQL' }] })
})

t.test('settings that lose data or speed are told with their cure', async (t) => {
  const facts = await factsOf(await server.createDatabase())
  const durability = { fsync: 'on', fullPageWrites: 'on', synchronousCommit: 'on' }
  t.match(statesOf({ ...facts, durability }), {
    version: { state: 'fine' },
    durability: { state: 'fine' },
    rights: { state: 'note', cures: [{ line: 'GRANT pg_read_all_stats TO ACCOUNT;' }] },
    checksums: { state: 'note', cures: [{ line: /^pg_checksums --enable/ }] },
    transactions: { state: 'fine', text: 'Transactions are read committed.' },
    idle: { state: 'note', cures: [{ line: /idle_in_transaction_session_timeout = '60s'/ }] },
    connections: { state: 'fine', text: /^Room for 6 more nodes/ },
    clock: { state: 'fine' },
    snapshots: { state: 'fine' },
    sharding: { state: 'fine' },
  })
  const wrong = (change: Partial<StoreFacts>, name: string) => statesOf({ ...facts, ...change })[name]?.state
  t.equal(wrong({ durability: { ...durability, fsync: 'off' } }, 'durability'), 'wrong')
  t.equal(wrong({ durability: { ...durability, synchronousCommit: 'off' } }, 'durability'), 'wrong')
  t.equal(wrong({ durability: { ...durability, fullPageWrites: 'off' } }, 'durability'), 'note')
  t.equal(wrong({ hasChecksums: true }, 'checksums'), 'fine')
  t.equal(wrong({ autovacuum: false }, 'autovacuum'), 'wrong')
  t.equal(wrong({ clockAheadMs: -6000 }, 'clock'), 'wrong')
  t.equal(wrong({ clockAheadMs: 2000 }, 'clock'), 'note')
  t.equal(wrong({ roundTripMs: 20 }, 'round trip'), 'note')
  for (const [change, reason] of [
    [{ version: 140_011, versionText: '14.11' }, /14\.11/],
    [{ encoding: 'LATIN1' }, /LATIN1/],
    [{ isStandby: true }, /standby/],
    [{ hasCollationC: false }, /collation/],
    [{ mayCreate: false }, /GRANT CREATE/],
    [{ hasTimeline: false }, /pg_control_system/],
  ] as const) {
    t.match(refusalOf({ ...facts, ...change }, 1), reason)
    t.match(storeFindings({ ...facts, ...change }, 1), [{ name: 'version', state: 'wrong' }])
  }
})
