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
  'note_record_checksums',
  'note_updated',
  'store_records',
  'told',
  'update_noted',
  'write_records',
]

/** Citus tells its servers about these, where functions run on connections of their own. */
const ROLE_SETTINGS = SESSION_SETTINGS.map((setting) => `ALTER ROLE CURRENT_USER SET ${setting}`)

/** The type of a database's number. A function whose first argument is one runs whole on the server with the database. */
const NUMBER = 'bigint'

/** A function of settee's schema. */
export interface SchemaFunction {
  readonly name: string
  /** With the types of its arguments, for `regprocedure`. */
  readonly signature: string
  /** The type of its first argument; null if it has none. */
  readonly first: string | null
  /** As PostgreSQL shows it. */
  readonly procedure: string
}

/** The tables and functions of settee. */
export interface Schema {
  readonly tables: readonly string[]
  readonly functions: readonly SchemaFunction[]
}

/**
 * @param shards of each table; null: as many as Citus has by default
 * @returns the statements in their order, each a transaction of its own
 */
export function distributionStatements({ tables, functions }: Schema, shards: number | null): string[] {
  const distributed = tables.filter((table) => !CATALOG_TABLES.includes(table) && table !== FIRST_TABLE)
  const count = shards === null ? '' : `, shard_count => ${shards}`
  return [
    ...(tables.includes(FIRST_TABLE)
      ? [`SELECT create_distributed_table('settee.${FIRST_TABLE}', 'db', colocate_with => 'none'${count})`]
      : []),
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
  const { citus, statements } = await connected(address, async (client) => {
    const citus = await citusVersion(client)
    const schema = await schemaOf(client)
    const statements = distributionStatements(await withoutDistributed(client, schema), shards)
    if (statements.length === 0) throw new Error('The tables of this store are distributed already.')
    for (const setting of ROLE_SETTINGS) await client.query(setting)
    return { citus, statements }
  })
  // Connections of this one to the workers would not have the settings.
  await connected(address, async (client) => {
    // Each by itself: Citus allows some of them outside of a transaction block only.
    for (const statement of statements) await client.query(statement)
  })
  return { citus, statements: [...ROLE_SETTINGS, ...statements] }
}

async function connected<R>(address: StoreAddress, work: (client: pg.Client) => Promise<R>): Promise<R> {
  const client = new pg.Client({ ...clientOptions(address), connectionTimeoutMillis: CONNECT_MS })
  // Statements reject as well; without a listener the process would end.
  client.on('error', () => undefined)
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** Distributes what an upgrade has added to a distributed store. Does nothing elsewhere. */
export async function distributeAdded(client: pg.Client): Promise<void> {
  const { rows: citus } = await client.query(
    "SELECT WHERE to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL",
  )
  if (citus.length === 0) return
  const schema = await schemaOf(client)
  const added = await withoutDistributed(client, schema)
  if (added.tables.includes(FIRST_TABLE)) return
  for (const statement of distributionStatements(added, null)) await client.query(statement)
}

async function withoutDistributed(client: pg.Client, { tables, functions }: Schema): Promise<Schema> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT relname::text AS name FROM pg_dist_partition JOIN pg_class ON oid = logicalrelid
      WHERE relnamespace = to_regnamespace('settee')
    UNION ALL SELECT objid::regprocedure::text FROM pg_dist_object JOIN pg_proc ON oid = objid
      WHERE classid = 'pg_proc'::regclass
        -- Citus copies a new function to each server, but does not know the argument yet.
        AND (distribution_argument_index IS NOT NULL OR proargtypes[0] IS DISTINCT FROM '${NUMBER}'::regtype)`,
  )
  const names = new Set(rows.map(({ name }) => name))
  return {
    tables: tables.filter((table) => !names.has(table)),
    functions: functions.filter(({ procedure }) => !names.has(procedure)),
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
export async function schemaOf(client: pg.Client): Promise<Schema> {
  const tables = await client.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace('settee') AND relkind IN ('r', 'p')`,
  )
  if (tables.rows.length === 0)
    throw new Error('This database has no tables of settee yet: start a node with this store first.')
  const functions = await client.query<SchemaFunction>(
    `SELECT proname AS name, format('%I.%I(%s)', 'settee', proname, oidvectortypes(proargtypes)) AS signature,
        format_type(proargtypes[0], NULL) AS first, oid::regprocedure::text AS procedure
      FROM pg_proc WHERE pronamespace = to_regnamespace('settee') AND prokind = 'f'`,
  )
  return { tables: tables.rows.map(({ name }) => name), functions: functions.rows }
}
