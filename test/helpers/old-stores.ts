/** Stores in PostgreSQL as older versions of settee have them: the rows of today, as far as the older schema can store them. */
import { FUNCTIONS, MIGRATIONS } from '../../src/storage/postgres/schema.ts'
import type { PostgresServer } from './postgres-server.ts'

/** As settees of schema 4 and 5 made it, for all columns that they knew. */
const SAVE_DOC = `
CREATE OR REPLACE FUNCTION save_doc(
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_doc_count integer, p_deleted_count integer, p_external bigint, p_leaf bigint, p_superseded bigint, p_designs integer,
  p_id text, p_version bigint, p_old_seq bigint,
  p_rev text, p_deleted boolean, p_size bigint, p_ancestry bytea, p_body text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
  v_writes bigint;
BEGIN
  UPDATE database SET update_seq = update_seq + 1, writes = writes + 1,
    doc_count = doc_count + p_doc_count, deleted_count = deleted_count + p_deleted_count,
    external_bytes = external_bytes + p_external, leaf_bytes = leaf_bytes + p_leaf,
    superseded_bytes = superseded_bytes + p_superseded,
    design_version = design_version + p_designs, settings_version = settings_version + p_designs
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
    RETURNING update_seq, writes INTO v_seq, v_writes;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
  IF p_version = 0 THEN
    INSERT INTO doc (db, id, seq, version, first_seq, rev, deleted, leaves, place, stored_at, size, ancestry, body)
      VALUES (p_db, p_id, v_seq, v_writes, v_seq, p_rev, p_deleted, 1, v_writes << 16, p_now, p_size, p_ancestry, p_body)
      ON CONFLICT (db, id) DO NOTHING;
  ELSE
    INSERT INTO revision (db, id, rev, deleted, leaf, place, stored_at, grown_at, superseded_at, size, attachments, body)
      SELECT p_db, id, rev, deleted, false, place, stored_at, grown_at, p_now, size, attachments, body
        FROM doc WHERE db = p_db AND id = p_id AND version = p_version
          AND NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.db = p_db AND r.id = p_id AND r.rev = p_rev);
    IF FOUND THEN
      UPDATE doc SET seq = v_seq, version = v_writes, rev = p_rev, deleted = p_deleted, place = v_writes << 16,
        stored_at = p_now, grown_at = NULL, size = p_size, attachments = NULL, ancestry = p_ancestry, body = p_body
        WHERE db = p_db AND id = p_id;
    END IF;
  END IF;
  IF NOT FOUND THEN
    UPDATE database SET update_seq = update_seq - 1, writes = writes - 1,
      doc_count = doc_count - p_doc_count, deleted_count = deleted_count - p_deleted_count,
      external_bytes = external_bytes - p_external, leaf_bytes = leaf_bytes - p_leaf,
      superseded_bytes = superseded_bytes - p_superseded,
      design_version = design_version - p_designs, settings_version = settings_version - p_designs
      WHERE db = p_db;
    RETURN -5;
  END IF;
  IF p_version = 0 OR p_old_seq >> 10 <> v_seq >> 10 THEN
    UPDATE feed_count SET rows = rows + 1 WHERE db = p_db AND stretch = v_seq >> 10;
    IF NOT FOUND THEN
      INSERT INTO feed_count (db, stretch, rows) VALUES (p_db, v_seq >> 10, 1);
    END IF;
    IF p_version > 0 THEN
      UPDATE feed_count SET rows = rows - 1 WHERE db = p_db AND stretch = p_old_seq >> 10;
    END IF;
  END IF;

  UPDATE written SET token = p_token, at = p_now WHERE db = p_db AND opener = p_opener AND token < p_token;
  IF NOT FOUND THEN
    INSERT INTO written (db, opener, token, at) VALUES (p_db, p_opener, p_token, p_now) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'this write was given up' USING ERRCODE = 'serialization_failure';
    END IF;
    -- Openers that have ended, since no answer is awaited for so long.
    DELETE FROM written WHERE db = p_db AND at < p_now - 86400000;
  END IF;
  RETURN v_seq;
END $$;
`

/** The first schema with checksums, which functions of today write. */
const WITH_CHECKSUMS = 6
/** The first schema in which a store has generations. */
const WITH_GENERATIONS = 7
const GENERATION = /SELECT s\.generation INTO v_generation[^;]*;/

/** The functions of today, as far as a schema has what they read. */
function functionsOf(schema: number): string {
  return schema < WITH_GENERATIONS ? FUNCTIONS.replace(GENERATION, '') : FUNCTIONS
}

/**
 * Turns a store that nobody writes to into one of an older schema. Its functions are those of today, except for save_doc where
 * that of today would name columns that are not there.
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
  const steps = [
    ...MIGRATIONS.slice(0, schema),
    functionsOf(schema),
    ...(schema < WITH_CHECKSUMS ? [SAVE_DOC] : []),
  ].join('')
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
    await sql(`SET search_path = settee; UPDATE ${table} SET timeline = timeline()`)
  await sql(`ALTER DATABASE ${name} CONNECTION LIMIT -1`)
}

export async function schemaOfStore(server: PostgresServer, address: string): Promise<number> {
  const name = new URL(address).pathname.slice(1)
  const [row] = await server.query('SELECT version FROM settee.schema_version', [], name)
  return row?.version as number
}
