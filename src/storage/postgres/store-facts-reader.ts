/** What a PostgreSQL says about itself as a store of databases: read on a connection of its own, which changes nothing. */
import pg from 'pg'
import type { StoreAddress } from '../store-address.ts'
import type { StoreFacts } from '../store-facts.ts'
import { APPLICATION, clientOptions } from './client-options.ts'

const CONNECT_MS = 5000
const STATEMENT_MS = 10_000
/** Statements whose times are compared. */
const TRIPS = 20
/** A transaction or snapshot of this age, in seconds, counts as old. */
const OLD_S = 120
/** Old ones that are named. */
const MAX_NAMED = 5

const SETTINGS = [
  'autovacuum',
  'data_checksums',
  'default_transaction_isolation',
  'default_transaction_read_only',
  'fsync',
  'full_page_writes',
  'idle_in_transaction_session_timeout',
  'max_connections',
  'reserved_connections',
  'server_version',
  'server_version_num',
  'superuser_reserved_connections',
  'synchronous_commit',
]

/**
 * @param oldSeconds the age from which a transaction or snapshot counts as old; for tests
 * @throws the error of pg or of the network if the store cannot be reached
 */
export async function readStoreFacts(address: StoreAddress, oldSeconds: number = OLD_S): Promise<StoreFacts> {
  const client = new pg.Client({
    ...clientOptions(address),
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: STATEMENT_MS,
    query_timeout: STATEMENT_MS + CONNECT_MS,
  })
  // Statements reject as well; without a listener the process would end.
  client.on('error', () => undefined)
  try {
    await client.connect()
    return await factsOf(client, oldSeconds)
  } finally {
    await client.end().catch(() => undefined)
  }
}

async function factsOf(client: pg.Client, oldSeconds: number): Promise<StoreFacts> {
  const ask = async <R extends object>(text: string, values: unknown[] = []) =>
    (await client.query<R>(text, values)).rows
  const settings = await ask<{ name: string; setting: string }>(
    'SELECT name, setting FROM pg_settings WHERE name = ANY($1)',
    [SETTINGS],
  )
  const setting = (name: string) => settings.find((each) => each.name === name)?.setting ?? ''
  const [database] = await ask<DatabaseRow>(DATABASE)
  const [use] = await ask<UseRow>(USE, [`${APPLICATION} %`])
  const trips = await roundTrips(client)
  return {
    version: Number(setting('server_version_num')),
    versionText: setting('server_version'),
    ...(database as DatabaseRow),
    durability: {
      fsync: setting('fsync'),
      fullPageWrites: setting('full_page_writes'),
      synchronousCommit: setting('synchronous_commit'),
    },
    hasChecksums: setting('data_checksums') === 'on',
    transactions: {
      isolation: setting('default_transaction_isolation'),
      isReadOnly: setting('default_transaction_read_only') === 'on',
    },
    idleTimeoutMs: Number(setting('idle_in_transaction_session_timeout')),
    autovacuum: setting('autovacuum') === 'on',
    connections: {
      max: Number(setting('max_connections')),
      reserved:
        Number(setting('superuser_reserved_connections')) + Number(setting('reserved_connections') || 0),
      used: Number((use as UseRow).used),
      settee: Number((use as UseRow).settee),
    },
    hasTimeline: await ask(TIMELINE).then(
      () => true,
      () => false,
    ),
    clockAheadMs: await clockAhead(client),
    roundTripMs: trips.toSorted((a, b) => a - b)[Math.floor(trips.length / 2)] ?? 0,
    old: await ask<StoreFacts['old'][number]>(OLD, [oldSeconds, MAX_NAMED]),
  }
}

interface DatabaseRow {
  readonly encoding: string
  readonly hasCollationC: boolean
  readonly isStandby: boolean
  readonly mayCreate: boolean
  readonly seesOthers: boolean
  readonly citus: string | null
  readonly limit: number | null
}

const DATABASE = `SELECT pg_encoding_to_char(d.encoding) AS encoding,
  EXISTS (SELECT FROM pg_collation WHERE collname = 'C') AS "hasCollationC",
  pg_is_in_recovery() AS "isStandby",
  has_database_privilege(d.oid, 'CREATE') OR to_regnamespace('settee') IS NOT NULL AS "mayCreate",
  pg_has_role('pg_read_all_stats', 'USAGE') AS "seesOthers",
  (SELECT extversion FROM pg_extension WHERE extname = 'citus') AS citus,
  (SELECT min(each) FROM unnest(ARRAY[d.datconnlimit, r.rolconnlimit]) AS each WHERE each >= 0) AS "limit"
  FROM pg_database d, pg_roles r WHERE d.datname = current_database() AND r.rolname = current_user`

interface UseRow {
  readonly used: string
  readonly settee: string
}

/** Connections of replication do not count towards max_connections, and have no database. */
const USE = `SELECT count(*) AS used, count(*) FILTER (WHERE application_name LIKE $1) AS settee
  FROM pg_stat_activity WHERE usesysid IS NOT NULL AND datid IS NOT NULL AND pid <> pg_backend_pid()`

/** How settee recognises a restore and a failover. */
const TIMELINE = `SELECT system_identifier, pg_walfile_name(pg_current_wal_insert_lsn()) FROM pg_control_system()`

/**
 * What keeps PostgreSQL from removing rows that were overwritten. A connection without a transaction keeps nothing, however
 * old it is. The replication slots of standbys that are gone say nothing of time.
 */
const OLD = `SELECT what, seconds::float8 AS seconds FROM (
    SELECT format('connection %s of %s (%s, %s)', pid, usename, nullif(application_name, ''), state) AS what,
      extract(epoch FROM now() - xact_start) AS seconds
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL
  UNION ALL
    SELECT format('prepared transaction %s of %s', gid, owner), extract(epoch FROM now() - prepared)
    FROM pg_prepared_xacts
  UNION ALL
    SELECT format('replication slot %s, which nobody reads', slot_name), NULL
    FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
  ) AS held WHERE seconds IS NULL OR seconds > $1 ORDER BY seconds DESC NULLS LAST LIMIT $2`

async function roundTrips(client: pg.Client): Promise<number[]> {
  const trips: number[] = []
  for (let at = 0; at < TRIPS; at++) {
    const before = performance.now()
    await client.query('SELECT 1')
    trips.push(performance.now() - before)
  }
  return trips
}

/** @returns ms by which the clock of the server is ahead of this machine's; 0 if a round trip may be the whole difference */
async function clockAhead(client: pg.Client): Promise<number> {
  const before = Date.now()
  const { rows } = await client.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  )
  const after = Date.now()
  const ms = rows[0]?.ms ?? before
  if (ms < before) return Math.round(ms - before)
  return ms > after ? Math.round(ms - after) : 0
}
