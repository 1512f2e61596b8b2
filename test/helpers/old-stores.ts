/** Stores in PostgreSQL as older versions of settee have them: the rows of today, as far as the older schema can store them. */
import { FUNCTIONS, MIGRATIONS } from '../../src/storage/postgres/schema.ts'
import type { PostgresServer } from './postgres-server.ts'

/**
 * Turns a store that nobody writes to into one of an older schema. Its functions are those of today, which suit all schemas that can be
 * in use together with today's.
 * @param address of the store
 * @param schema at least 1
 */
export async function makeOldStore(server: PostgresServer, address: string, schema: number): Promise<void> {
  const name = new URL(address).pathname.slice(1)
  const sql = (text: string) => server.query(text, [], name)
  // A node that has it open has asked its connections for the timeline, which names a table that is made anew here.
  await sql(`ALTER DATABASE ${name} CONNECTION LIMIT 0`)
  await sql(
    `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '${name}' AND usename = 'settee'`,
  )
  await sql('ALTER SCHEMA settee RENAME TO today; CREATE SCHEMA settee AUTHORIZATION settee')
  const steps = [...MIGRATIONS.slice(0, schema), FUNCTIONS].join('')
  await sql(`SET ROLE settee; SET search_path = settee; SET check_function_bodies = off; ${steps}`)
  await sql('SET ROLE settee; CREATE TABLE settee.schema_version (LIKE today.schema_version INCLUDING ALL)')
  const columns =
    await sql(`SELECT o.table_name AS table, string_agg(quote_ident(o.column_name), ', ') AS columns
    FROM information_schema.columns o
    JOIN information_schema.columns n USING (table_name, column_name)
    WHERE o.table_schema = 'settee' AND n.table_schema = 'today' GROUP BY 1`)
  for (const { table, columns: list } of columns)
    await sql(`INSERT INTO settee.${table} (${list}) SELECT ${list} FROM today.${table}`)
  await sql(`UPDATE settee.schema_version SET version = ${schema}; DROP SCHEMA today CASCADE`)
  // It names a table, so that one that was restored from a dump is recognised.
  for (const table of ['store', 'database'])
    await sql(`UPDATE settee.${table} SET timeline = settee.timeline()`)
  await sql(`ALTER DATABASE ${name} CONNECTION LIMIT -1`)
}

export async function schemaOfStore(server: PostgresServer, address: string): Promise<number> {
  const name = new URL(address).pathname.slice(1)
  const [row] = await server.query('SELECT version FROM settee.schema_version', [], name)
  return row?.version as number
}
