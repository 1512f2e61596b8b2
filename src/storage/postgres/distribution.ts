/**
 * Distributes the tables of a store over the servers of Citus: those of databases' contents by their database, together, so that a
 * database is on one server. The tables of the catalog stay on the coordinator, where all nodes look for changes.
 */
import pg from 'pg'
import type { StoreAddress } from '../store-address.ts'
import { clientOptions } from './client-options.ts'
import { SESSION_SETTINGS } from './store-connection.ts'

const CONNECT_MS = 5000

/** Tables of the catalog, which stay on the coordinator. All others are distributed. */
export const CATALOG_TABLES: readonly string[] = [
  'catalog_change',
  'catalog_update',
  'entry',
  'leaving',
  'record',
  'schema_version',
  'store',
]

/** The table by which the others are placed. */
const FIRST_TABLE = 'database'

/** Functions of the catalog, which stay on the coordinator. */
export const CATALOG_FUNCTIONS: readonly string[] = [
  'create_database',
  'delete_database',
  'note_updated',
  'told',
  'update_noted',
  'write_records',
]

/** The type of a database's number. A function whose first argument is one runs whole on the server with the database. */
const NUMBER = 'bigint'

/** A function of settee's schema. */
export interface SchemaFunction {
  readonly name: string
  /** With the types of its arguments, for `regprocedure`. */
  readonly signature: string
  /** The type of its first argument; null if it has none. */
  readonly first: string | null
}

/**
 * @param shards of each table; null: as many as Citus has by default
 * @returns the statements in their order, each a transaction of its own
 */
export function distributionStatements(
  tables: readonly string[],
  functions: readonly SchemaFunction[],
  shards: number | null,
): string[] {
  const distributed = tables.filter((table) => !CATALOG_TABLES.includes(table) && table !== FIRST_TABLE)
  const count = shards === null ? '' : `, shard_count => ${shards}`
  return [
    // Citus tells its servers about these, whose functions run on connections of their own.
    ...SESSION_SETTINGS.map((setting) => `ALTER ROLE CURRENT_USER SET ${setting}`),
    `SELECT create_distributed_table('settee.${FIRST_TABLE}', 'db', colocate_with => 'none'${count})`,
    ...distributed
      .toSorted()
      .map(
        (table) =>
          `SELECT create_distributed_table('settee.${table}', 'db', colocate_with => 'settee.${FIRST_TABLE}')`,
      ),
    // Those without a database are called by the others on each server.
    ...functions
      .filter(({ name }) => !CATALOG_FUNCTIONS.includes(name))
      .toSorted((a, b) => Number(isOfDatabase(a)) - Number(isOfDatabase(b)))
      .map(distributeFunction),
  ]
}

function isOfDatabase({ first }: SchemaFunction): boolean {
  return first === NUMBER
}

function distributeFunction(each: SchemaFunction): string {
  const { signature } = each
  const literal = `'${signature.replaceAll("'", "''")}'`
  return isOfDatabase(each)
    ? `SELECT create_distributed_function(${literal}, '$1', colocate_with => 'settee.${FIRST_TABLE}')`
    : `SELECT create_distributed_function(${literal})`
}

/** What {@link distribute} has done. */
export interface Distribution {
  readonly citus: string
  readonly statements: readonly string[]
}

/**
 * Distributes the tables and functions. Nodes may run meanwhile; their writes wait while a table is moved.
 * @throws Error in one sentence if the store has no Citus, no tables, or is distributed already; the error of pg
 */
export async function distribute(address: StoreAddress, shards: number | null): Promise<Distribution> {
  const client = new pg.Client({ ...clientOptions(address), connectionTimeoutMillis: CONNECT_MS })
  // Statements reject as well; without a listener the process would end.
  client.on('error', () => undefined)
  try {
    await client.connect()
    const citus = await citusVersion(client)
    const { tables, functions } = await schemaOf(client)
    const { rows } = await client.query(
      "SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('settee.database')",
    )
    if (rows.length > 0) throw new Error('The tables of this store are distributed already.')
    const statements = distributionStatements(tables, functions, shards)
    // Each by itself: Citus allows some of them outside of a transaction block only.
    for (const statement of statements) await client.query(statement)
    return { citus, statements }
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** @throws Error that says how Citus comes into this PostgreSQL */
async function citusVersion(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ installed: string | null; available: string | null }>(
    `SELECT (SELECT extversion FROM pg_extension WHERE extname = 'citus') AS installed,
      (SELECT default_version FROM pg_available_extensions WHERE name = 'citus') AS available`,
  )
  const { installed = null, available = null } = rows[0] ?? {}
  if (installed !== null) return installed
  throw new Error(
    available === null
      ? "This PostgreSQL is not distributed, since it does not have Citus. Install Citus, set shared_preload_libraries = 'citus', restart, " +
          'and run CREATE EXTENSION citus in this database.'
      : `This PostgreSQL has Citus ${available}, but this database does not use it: run CREATE EXTENSION citus in it.`,
  )
}

/** @throws Error if no node has made the tables yet */
export async function schemaOf(
  client: pg.Client,
): Promise<{ readonly tables: string[]; readonly functions: SchemaFunction[] }> {
  const tables = await client.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace('settee') AND relkind IN ('r', 'p')`,
  )
  if (tables.rows.length === 0)
    throw new Error('This database has no tables of settee yet: start a node with this store first.')
  const functions = await client.query<SchemaFunction>(
    `SELECT proname AS name, format('%I.%I(%s)', 'settee', proname, oidvectortypes(proargtypes)) AS signature,
        format_type(proargtypes[0], NULL) AS first
      FROM pg_proc WHERE pronamespace = to_regnamespace('settee') AND prokind = 'f'`,
  )
  return { tables: tables.rows.map(({ name }) => name), functions: functions.rows }
}
