/** What `settee postgres distribute` would do with the tables and functions that a node makes. */
import { Client } from 'pg'
import t from 'tap'
import {
  CATALOG_FUNCTIONS,
  CATALOG_TABLES,
  distributionStatements,
  schemaOf,
} from '../../../src/storage/postgres/distribution.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'

t.test(
  'tables go with the database by which their keys begin, and functions with their first argument',
  async (t) => {
    const connectionString = await (await startPostgres(t)).createDatabase()
    const engine = postgresEngine({ address: await readStoreAddress(connectionString, null), poolSize: 2 })
    t.teardown(() => engine.close())
    await engine.openCatalog()
    const client = new Client({ connectionString })
    await client.connect()
    t.teardown(() => client.end())
    const schema = await schemaOf(client)
    const { tables, functions } = schema
    t.same(
      tables.filter((table) => CATALOG_TABLES.includes(table)).toSorted(),
      CATALOG_TABLES,
      'the catalog is there',
    )
    const { rows: keys } = await client.query<{ table: string; keys: string[] }>(
      `SELECT c.relname AS table, array_agg(a.attname::text) AS keys
      FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
      WHERE c.relnamespace = 'settee'::regnamespace GROUP BY 1`,
    )
    const beginWithDatabase = (table: string) =>
      keys.every((each) => each.table !== table || each.keys.every((key) => key === 'db'))
    const others = tables.filter((table) => !CATALOG_TABLES.includes(table))
    t.same(
      others.filter((table) => !beginWithDatabase(table)),
      [],
      'each unique key of a distributed table begins with the database',
    )
    const { rows: named } = await client.query<{ name: string }>(
      `SELECT DISTINCT proname AS name FROM pg_proc
      WHERE pronamespace = 'settee'::regnamespace AND proargnames[1] IN ('p_db', '_db')`,
    )
    const ofDatabase = functions
      .filter(({ name, first }) => !CATALOG_FUNCTIONS.includes(name) && first === 'bigint')
      .map(({ name }) => name)
    t.same(
      ofDatabase.toSorted(),
      named
        .map(({ name }) => name)
        .filter((name) => !CATALOG_FUNCTIONS.includes(name))
        .toSorted(),
      'the first argument of a number is a database',
    )
    for (const statement of distributionStatements(schema, null)) {
      const [, name] = /\('([^']+)'/.exec(statement) ?? []
      const type = statement.includes('distributed_table') ? 'regclass' : 'regprocedure'
      await client.query(`SELECT $1::text::${type}`, [name])
    }
  },
)
