/** The tables of a store: made once, by whichever node comes first, and used by settees of other versions. */
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { MIGRATIONS } from '../../../src/storage/postgres/schema.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'

const server = await startPostgres(t)

async function openOn(t: Test, url: string) {
  const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: 4 })
  t.teardown(() => engine.close())
  return engine.openCatalog()
}

function versionOf(url: string) {
  return server.query('SELECT version FROM settee.schema_version', [], new URL(url).pathname.slice(1))
}

t.test('of many nodes that start on an empty PostgreSQL, one makes the tables', async (t) => {
  const url = await server.createDatabase()
  const catalogs = await Promise.all(Array.from({ length: 12 }, () => openOn(t, url)))
  t.equal(new Set(catalogs.map(({ folderUuid }) => folderUuid)).size, 1, 'all have the same data')
  const made = await Promise.all(catalogs.map((catalog, n) => catalog.create(`db${n}`)))
  t.equal(new Set(made.map(({ incarnation }) => incarnation)).size, 12)
  t.equal(await catalogs[0]?.count(), 12)
  t.same(await versionOf(url), [{ version: MIGRATIONS.length }])
})

t.test(
  'what a node that was killed has left half done is not there, and the next one makes it',
  async (t) => {
    const url = await server.createDatabase()
    const killed = new Client(url)
    const ended = new Promise((resolve) => {
      killed.once('end', () => resolve(null))
    })
    killed.on('error', () => undefined)
    await killed.connect()
    const { rows } = await killed.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await killed.query(`SELECT pg_advisory_lock(${0x736574746565})`)
    await killed.query('BEGIN; CREATE SCHEMA settee; CREATE TABLE settee.store (half text)')
    const opening = openOn(t, url)
    const waits = opening.then(
      () => 'opened',
      () => 'failed',
    )
    t.equal(await Promise.race([waits, new Promise((resolve) => setTimeout(resolve, 300, 'waits'))]), 'waits')
    await server.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid])
    await ended
    t.match((await opening).folderUuid, /^[0-9a-f]{32}$/)
  },
)

t.test('tables of a newer settee are used if they suit this one, and refused otherwise', async (t) => {
  const url = await server.createDatabase()
  await openOn(t, url)
  const name = new URL(url).pathname.slice(1)
  const newer = MIGRATIONS.length + 1
  const set = (oldest: number) =>
    server.query(
      'UPDATE settee.schema_version SET version = $1, oldest_compatible = $2',
      [newer, oldest],
      name,
    )
  await set(MIGRATIONS.length)
  t.ok(await openOn(t, url))
  await set(newer)
  await t.rejects(openOn(t, url), { message: /newer settee/ })
  t.same(await versionOf(url), [{ version: newer }], 'a newer schema is left unchanged')
})

t.test('a database that cannot hold every text is refused', async (t) => {
  await server.query("CREATE DATABASE bytes OWNER settee ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
  const url = server.address.replace(/[^/]*$/, 'bytes')
  await t.rejects(openOn(t, url), { message: /SQL_ASCII/ })
})
