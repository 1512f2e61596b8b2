/**
 * Functions of PostgreSQL that change the catalog. Each is one statement of the node, so that no node holds a lock over a round
 * trip, and a frozen one stops nobody. Each call has a token, and stores it with the changes of which other nodes are told.
 */
import { firstValues } from './write-functions.ts'

/**
 * The server and the history of which its data is: another one after a failover or a restore, and the table's own number after
 * it was put back from a dump. It is found out once for each session, which does not outlive its timeline: a standby that is
 * promoted has rejected this call before. The generation of the store (store-memory.ts) is a part of it, read anew each time.
 *
 * With Citus it is always the same: parts of one statement run on several servers, and a database may move between them. There,
 * what a failover has lost is found by the last known sequence alone.
 */
const TIMELINE = `
CREATE OR REPLACE FUNCTION timeline() RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_timeline text := current_setting('settee.timeline', true);
  v_generation text;
BEGIN
  IF v_timeline IS NULL OR v_timeline = '' THEN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
      SELECT concat_ws('-', system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
          to_regclass('settee.store')::oid)
        INTO v_timeline FROM pg_control_system();
    ELSE
      v_timeline := 'citus';
    END IF;
    PERFORM set_config('settee.timeline', v_timeline, false);
  END IF;
  IF v_timeline = 'citus' THEN
    RETURN v_timeline;
  END IF;
  SELECT s.generation INTO v_generation FROM store s WHERE s.generation <> '';
  RETURN concat_ws('-', v_timeline, v_generation);
END $$;
`

const RECORD_PARAMETERS = `
  p_kinds text[], p_keys text[], p_values text[], p_compares boolean[], p_expected text[],
  p_token text, p_node text, p_changes text`

/** Each answers `timeline` and does nothing if the newest epoch of _db_updates was begun in another timeline. */
const CHANGES = `
CREATE OR REPLACE FUNCTION told(p_token text, p_node text, p_changes text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO catalog_change (token, node, changes) VALUES (p_token, p_node, p_changes)
$$;

CREATE OR REPLACE FUNCTION update_noted(p_name text, p_type text, p_seq bigint) RETURNS void LANGUAGE sql AS $$
  INSERT INTO catalog_update (name, type, seq) VALUES (p_name, p_type, p_seq)
  ON CONFLICT (name, type) DO UPDATE SET seq = excluded.seq
$$;

CREATE OR REPLACE FUNCTION create_database(
  p_name text, p_partitioned boolean, p_created_at bigint, p_epochs text, p_token text, p_node text, p_changes text,
  OUT status text, OUT incarnation bigint
) LANGUAGE plpgsql AS $$
DECLARE
  v_timeline text := timeline();
  v_seq bigint;
  v_boot text;
BEGIN
  PERFORM FROM store FOR UPDATE;
  IF EXISTS (SELECT FROM entry e WHERE e.name = p_name) THEN
    status := 'exists';
    RETURN;
  END IF;
  UPDATE store s SET last_db = s.last_db + 1, databases = s.databases + 1, update_seq = s.update_seq + 1
    WHERE s.timeline = v_timeline RETURNING s.last_db, s.update_seq, s.boot INTO incarnation, v_seq, v_boot;
  IF NOT FOUND THEN
    status := 'timeline';
    RETURN;
  END IF;
  INSERT INTO entry (name, db, incarnation) VALUES (p_name, create_database.incarnation, create_database.incarnation);
  INSERT INTO database (db, incarnation, created_at, partitioned, timeline, epochs, boot) VALUES (
    create_database.incarnation, create_database.incarnation, p_created_at, p_partitioned, v_timeline, p_epochs, v_boot);
  PERFORM update_noted(p_name, 'created', v_seq);
  PERFORM told(p_token, p_node, p_changes);
  status := 'done';
END $$;

-- create_database for older nodes has no shards
CREATE OR REPLACE FUNCTION create_sharded_database(
  p_shards integer, p_name text, p_partitioned boolean, p_created_at bigint, p_epochs text, p_token text, p_node text,
  p_changes text, OUT status text, OUT incarnation bigint
) LANGUAGE plpgsql AS $$
BEGIN
  SELECT c.status, c.incarnation INTO create_sharded_database.status, create_sharded_database.incarnation
    FROM create_database(p_name, p_partitioned, p_created_at, p_epochs, p_token, p_node, p_changes) c;
  IF status = 'done' THEN
    UPDATE database d SET shards = p_shards WHERE d.db = create_sharded_database.incarnation;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION delete_database(
  p_name text, p_incarnation bigint, p_token text, p_node text, p_changes text, OUT status text, OUT db bigint
) LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
BEGIN
  SELECT e.db INTO delete_database.db FROM entry e WHERE e.name = p_name AND e.incarnation = p_incarnation;
  IF (SELECT s.timeline FROM store s) <> timeline() THEN
    status := 'timeline';
    RETURN;
  END IF;
  DELETE FROM database d WHERE d.db = delete_database.db AND d.incarnation = p_incarnation;
  IF NOT FOUND THEN
    status := 'absent';
    RETURN;
  END IF;
  UPDATE store s SET databases = s.databases - 1, update_seq = s.update_seq + 1 RETURNING s.update_seq INTO v_seq;
  DELETE FROM entry e WHERE e.name = p_name;
  INSERT INTO leaving (db) VALUES (delete_database.db);
  PERFORM update_noted(p_name, 'deleted', v_seq);
  PERFORM told(p_token, p_node, p_changes);
  status := 'done';
END $$;

-- the last known sequences of p_marks are in the order of p_epochs and p_seqs; both ignore names that are not listed
CREATE OR REPLACE FUNCTION note_updated(
  p_names text[], p_marks text[], p_epochs text[], p_seqs bigint[], p_token text, p_node text, p_changes text,
  OUT status text
) LANGUAGE plpgsql AS $$
DECLARE
  v_names text[];
  v_seq bigint;
BEGIN
  IF (SELECT s.timeline FROM store s) <> timeline() THEN
    status := 'timeline';
    RETURN;
  END IF;
  PERFORM FROM store FOR UPDATE;
  SELECT array_agg(e.name ORDER BY n.place) INTO v_names
    FROM unnest(p_names) WITH ORDINALITY n (name, place) JOIN entry e ON e.name = n.name;
  IF v_names IS NOT NULL THEN
    UPDATE store s SET update_seq = s.update_seq + cardinality(v_names)
      RETURNING s.update_seq - cardinality(v_names) INTO v_seq;
    INSERT INTO catalog_update (name, type, seq)
      SELECT n.name, 'updated', v_seq + n.place FROM unnest(v_names) WITH ORDINALITY n (name, place)
      ON CONFLICT (name, type) DO UPDATE SET seq = excluded.seq;
    PERFORM told(p_token, p_node, p_changes);
  END IF;
  UPDATE entry e SET last_epoch = m.epoch, last_seq = m.seq
    FROM unnest(p_marks, p_epochs, p_seqs) m (name, epoch, seq) WHERE e.name = m.name;
  status := 'done';
END $$;

-- each key once; p_compares: whether a value is expected. Rows are locked in the order in which all nodes name them.
CREATE OR REPLACE FUNCTION store_records(${RECORD_PARAMETERS}, p_checksums integer[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_present text;
BEGIN
  FOR i IN 1 .. cardinality(p_keys) LOOP
    SELECT r.value INTO v_present FROM record r WHERE r.kind = p_kinds[i] AND r.key = p_keys[i] FOR UPDATE;
    IF p_compares[i] AND v_present IS DISTINCT FROM p_expected[i] THEN
      RETURN false;
    END IF;
  END LOOP;
  FOR i IN 1 .. cardinality(p_keys) LOOP
    IF p_compares[i] AND p_expected[i] IS NULL THEN
      -- One that has been made since was not expected. The same comparison is made again, and then finds it.
      INSERT INTO record (kind, key, value, checksum)
        VALUES (p_kinds[i], p_keys[i], coalesce(p_values[i], ''), p_checksums[i])
        ON CONFLICT (kind, key) DO NOTHING;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'a record was made meanwhile' USING ERRCODE = 'serialization_failure';
      END IF;
    ELSIF p_values[i] IS NOT NULL THEN
      INSERT INTO record (kind, key, value, checksum) VALUES (p_kinds[i], p_keys[i], p_values[i], p_checksums[i])
        ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum;
    END IF;
    IF p_values[i] IS NULL THEN
      DELETE FROM record r WHERE r.kind = p_kinds[i] AND r.key = p_keys[i];
    END IF;
  END LOOP;
  PERFORM told(p_token, p_node, p_changes);
  RETURN true;
END $$;

-- for nodes of earlier versions
CREATE OR REPLACE FUNCTION write_records(${RECORD_PARAMETERS}) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE store SET unsummed_records = coalesce(unsummed_records, 0) + 1;
  RETURN store_records(${firstValues(8)}, NULL);
END $$;

-- One that is being written gets its checksum from its writer.
CREATE OR REPLACE FUNCTION note_record_checksums(p_kinds text[], p_keys text[], p_values text[], p_checksums integer[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(p_keys) LOOP
    PERFORM FROM record r WHERE r.kind = p_kinds[i] AND r.key = p_keys[i] FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      UPDATE record r SET checksum = p_checksums[i]
        WHERE r.kind = p_kinds[i] AND r.key = p_keys[i] AND r.value = p_values[i] AND r.checksum IS NULL;
    END IF;
  END LOOP;
END $$;
`

export const CATALOG_FUNCTIONS = TIMELINE + CHANGES
