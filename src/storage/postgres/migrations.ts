/** Makes and upgrades the tables of a store. Any number of nodes may try it at once; one does it, and the others wait. */
import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import type pg from 'pg'
import { CouchError } from '../../core/errors.ts'
import { epochId } from '../sequence.ts'
import type { Connections } from './connections.ts'
import { distributeAdded } from './distribution.ts'
import { FUNCTIONS, MIGRATIONS, OLDEST_COMPATIBLE } from './schema.ts'
import { storeFault } from './store-fault.ts'

/** PostgreSQL 15, as `server_version_num` has it. */
const OLDEST_SERVER = 150_000
/** The number of the lock for migrations among the advisory locks of the database: "settee" in ASCII. */
const LOCK = 0x736574746565
/** How often it is tried to get the lock, in ms, and for how long. */
const LOCK_RETRY_MS = 100
const LOCK_MS = 10 * 60_000
/**
 * How long a migration waits for the statements that use a table, in ms, since all later ones wait behind it; and how long it then
 * lets them go on. It is tried again for {@link LOCK_MS}. Of a migration and a statement that wait for each other, the migration gives up:
 * PostgreSQL would end the statement after 1 s (`deadlock_timeout`).
 */
const TABLE_WAIT_MS = 700
const TABLE_PAUSE_MS = 500
const LOCK_NOT_AVAILABLE = '55P03'
/** How long the statements of one migration may take, in ms: it may have to write all rows of a store. */
const MIGRATION_MS = 24 * 60 * 60_000

const VERSION_TABLE = `
CREATE SCHEMA settee;
CREATE TABLE settee.schema_version (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version integer NOT NULL,
  -- the schema that the oldest settee may have that can work with these tables
  oldest_compatible integer NOT NULL
);
INSERT INTO settee.schema_version (version, oldest_compatible) VALUES (0, 0);
`

/** Whether the tables are there, and how old they are; a version of null: there are none. */
interface SchemaState {
  readonly version: number | null
  readonly oldestCompatible: number
}

/**
 * Brings the tables to the newest schema. Each call is one transaction, so that a node that is killed leaves nothing half done.
 * @throws Error with one clear line when the server is too old, is not suitable, or has tables of a newer settee that this
 * one cannot use; the error of {@link storeFault}
 */
export async function migrate(connections: Pick<Connections, 'dedicated'>): Promise<void> {
  const client = await connections.dedicated()
  try {
    await checkServer(client)
    if (isUsable(await schemaState(client))) return
    await underLock(client, async () => {
      // Another node may have done it meanwhile.
      const state = await schemaState(client)
      if (isUsable(state)) return
      await upgradeWhenFree(client, state.version)
      if (state.version !== null) await distributeAdded(client)
    })
  } catch (cause) {
    if (cause instanceof UnsuitableStore) throw cause
    throw storeFault(cause)
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** The operator has to do something. */
class UnsuitableStore extends Error {}

/** @returns false if migrations are needed @throws UnsuitableStore when a newer settee has made the tables */
function isUsable({ version, oldestCompatible }: SchemaState): boolean {
  if (version === null || version < MIGRATIONS.length) return false
  if (oldestCompatible <= MIGRATIONS.length) return true
  throw new UnsuitableStore(
    `The tables in PostgreSQL have the schema ${version} of a newer settee, which works with settees from the schema ` +
      `${oldestCompatible} on. This one knows ${MIGRATIONS.length}.`,
  )
}

async function checkServer(client: pg.Client): Promise<void> {
  const [row] = await rowsOf(
    client,
    `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery()`,
  )
  const [version, encoding, isStandby] = row as [number, string, boolean]
  if (version < OLDEST_SERVER)
    throw new UnsuitableStore(
      `PostgreSQL ${Math.floor(version / 10_000)} is too old: settee needs 15 or later.`,
    )
  if (encoding !== 'UTF8')
    throw new UnsuitableStore(
      `The database has the encoding ${encoding}; settee needs one that was created with UTF8.`,
    )
  if (isStandby) throw new CouchError('store_unavailable')
}

async function schemaState(client: pg.Client): Promise<SchemaState> {
  const [[table] = []] = await rowsOf(client, `SELECT to_regclass('settee.schema_version')::text`)
  if (table === null) return { version: null, oldestCompatible: 0 }
  const [row] = await rowsOf(client, 'SELECT version, oldest_compatible FROM settee.schema_version')
  const [version, oldestCompatible] = row as [number, number]
  return { version, oldestCompatible }
}

/** The lock ends with the connection at the latest. It is tried again and again, since a statement that waits has a time limit. */
async function underLock(client: pg.Client, work: () => Promise<void>): Promise<void> {
  const since = performance.now()
  for (;;) {
    const [[isLocked] = []] = await rowsOf(client, `SELECT pg_try_advisory_lock(${LOCK})`)
    if (isLocked) break
    if (performance.now() - since > LOCK_MS) throw new CouchError('store_unavailable')
    await rest(LOCK_RETRY_MS)
  }
  await work()
}

/** Other nodes work meanwhile, and a backup or a forgotten session may hold a table for hours. */
async function upgradeWhenFree(client: pg.Client, version: number | null): Promise<void> {
  const since = performance.now()
  for (;;) {
    try {
      return await upgrade(client, version)
    } catch (cause) {
      if ((cause as pg.DatabaseError).code !== LOCK_NOT_AVAILABLE) throw cause
      if (performance.now() - since > LOCK_MS) throw new UnsuitableStore(IN_USE, { cause })
    }
    await run(client, 'ROLLBACK')
    await rest(TABLE_PAUSE_MS)
  }
}

const IN_USE =
  'The tables in PostgreSQL could not be upgraded for 10 min, since a transaction uses them: ' +
  '`settee postgres check` names old ones.'

/** @param version that the tables have; null if there are none */
async function upgrade(client: pg.Client, version: number | null): Promise<void> {
  const steps = [
    ...(version === null ? [VERSION_TABLE] : []),
    'SET LOCAL search_path = settee',
    ...MIGRATIONS.slice(version ?? 0),
    FUNCTIONS,
  ]
  await run(client, 'BEGIN')
  await run(client, `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = ${TABLE_WAIT_MS}`)
  for (const step of steps) await run(client, step)
  if (version === null) await addStore(client)
  await run(
    client,
    `UPDATE schema_version SET version = ${MIGRATIONS.length}, oldest_compatible = ${OLDEST_COMPATIBLE}`,
  )
  const { command } = await run(client, 'COMMIT')
  if (command !== 'COMMIT') throw new Error(`PostgreSQL has answered ${command} to COMMIT.`)
}

async function addStore(client: pg.Client): Promise<void> {
  const epochs = JSON.stringify([{ id: epochId(randomBytes(9)), firstSeq: 0 }])
  await client.query(
    'INSERT INTO store (folder_uuid, server_uuid, epochs, timeline) VALUES ($1, $1, $2, timeline())',
    [randomBytes(16).toString('hex'), epochs],
  )
}

/** Runs statements without values, which may be several. */
function run(client: pg.Client, text: string): Promise<pg.QueryResult> {
  const query: pg.QueryConfig & { query_timeout: number } = { text, query_timeout: MIGRATION_MS }
  return client.query(query)
}

async function rowsOf(client: pg.Client, text: string): Promise<unknown[][]> {
  return (await client.query({ text, rowMode: 'array' })).rows as unknown[][]
}
