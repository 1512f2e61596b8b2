/**
 * Databases that Citus distributes, for the tests that use PostgreSQL: `SETTEE_TEST_CITUS=true`, with a PostgreSQL that has
 * Citus (`PGBIN`), runs them with a coordinator and a worker.
 */
import { distribute } from '../../src/storage/postgres/distribution.ts'
import { postgresEngine } from '../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import type { PostgresServer } from './postgres-server.ts'

export const HAS_CITUS = process.env.SETTEE_TEST_CITUS !== undefined

export const CITUS_SETTINGS = {
  shared_preload_libraries: 'citus',
  max_prepared_transactions: '400',
  'citus.node_conninfo': 'sslmode=disable',
}

/** Each table has so many parts, and each database of the tests as many tables. */
const SHARDS = 4

/**
 * Makes a database as docs/scaling.md tells an operator to: its account is created where Citus is already in use.
 * @returns the address of a database with the tables of settee, of which the worker has the distributed ones
 */
export async function createDistributed(
  coordinator: PostgresServer,
  worker: PostgresServer,
): Promise<string> {
  const url = new URL(await coordinator.createDatabase())
  const name = url.pathname.slice(1)
  await worker.query(`CREATE DATABASE ${name} STRATEGY file_copy`)
  for (const server of [coordinator, worker]) await server.query('CREATE EXTENSION citus', [], name)
  await coordinator.query("SELECT citus_set_coordinator_host('127.0.0.1', $1)", [coordinator.port], name)
  await coordinator.query("SELECT citus_add_node('127.0.0.1', $1)", [worker.port], name)
  url.username = `settee_${name}`
  await coordinator.query(`CREATE ROLE ${url.username} LOGIN`, [], name)
  await coordinator.query(`ALTER DATABASE ${name} OWNER TO ${url.username}`, [], name)
  const address = await readStoreAddress(url.href, null)
  const engine = postgresEngine({ address, poolSize: 2 })
  await engine.openCatalog()
  await engine.close()
  await distribute(address, SHARDS)
  return url.href
}
