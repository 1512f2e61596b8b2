/**
 * The tables of indexes, and the functions that change them. Each function gets the database first and runs on its shard.
 *
 * A row key may have more bytes than a key of PostgreSQL, so it is stored in two parts: `head` has its first
 * {@link HEAD_BYTES}, and `tail` the rest, which is almost always empty. Rows are counted in buckets: a bucket has the
 * rows from its `start` up to the start of the next one, compared with heads. The first one of an index starts with
 * the empty row key. Steps of one store follow each other, since each holds the lock of the store's row while it runs.
 */

import { firstValues } from './write-functions.ts'

/** A head is shorter than the largest key of PostgreSQL's B-trees, 2,704 bytes, with the columns before it. */
export const HEAD_BYTES = 1500

/** Rows in a new bucket; a bucket with more than `most` is split, one with fewer than `least` joined with the next. */
const BUCKET = { least: 64, usual: 192, most: 256 } as const

/** What a row takes beside its contents, about: its header, and its entry in the B-tree. In bytes. */
const ROW_BYTES = 100

const sizeOf = (row: string) =>
  `${ROW_BYTES} + 2 * octet_length(${row}.head) + octet_length(${row}.tail) + octet_length(${row}.key) + octet_length(${row}.value)`

export const INDEX_TABLES = `
-- one row for each index store; store: the number of its rows, another one after it was emptied
CREATE TABLE index_store (
  db bigint,
  signature text COLLATE "C",
  store bigint NOT NULL,
  -- a random number that each step changes
  version bigint NOT NULL,
  -- the position; null: empty
  seq bigint,
  epoch text,
  purge_seq bigint,
  -- the opener whose update goes on, and when it has stored a step of it
  worker text,
  worked_at timestamptz,
  -- the number of rows of each index
  rows bigint[] NOT NULL,
  -- of the contents of all rows
  bytes bigint NOT NULL,
  PRIMARY KEY (db, signature)
) WITH (fillfactor = 50);

-- doc: see docKey of index-steps.ts; keys: packedKeys of index-rows.ts
CREATE TABLE index_doc (db bigint, store bigint, doc bytea, keys bytea NOT NULL, PRIMARY KEY (db, store, doc));

CREATE TABLE index_row (
  db bigint NOT NULL,
  store bigint NOT NULL,
  idx integer NOT NULL,
  head bytea NOT NULL,
  tail bytea NOT NULL,
  key_length integer NOT NULL,
  key text NOT NULL,
  value text NOT NULL
);
CREATE INDEX index_row_place ON index_row (db, store, idx, head);

-- changed: the version that has changed one of its rows last
CREATE TABLE index_stretch (
  db bigint,
  store bigint,
  idx integer,
  start bytea,
  rows bigint NOT NULL,
  reduction text,
  changed bigint NOT NULL,
  PRIMARY KEY (db, store, idx, start)
) WITH (fillfactor = 70);

-- stores that were emptied or removed, whose rows are to be removed
CREATE TABLE index_leaving (db bigint, store bigint, PRIMARY KEY (db, store));
`

/**
 * Checksums (index-rows.ts): of rows, of documents' keys, and of kept reductions. They are null in rows from before, and in those of
 * older nodes. That of a store is the {@link stateSum} of its row. The tables are locked in the order in which the functions lock them.
 */
export const INDEX_CHECKSUMS = `
ALTER TABLE index_store ADD COLUMN checksum integer;
ALTER TABLE index_row ADD COLUMN checksum integer;
ALTER TABLE index_doc ADD COLUMN checksum integer;
ALTER TABLE index_stretch ADD COLUMN checksum integer;
`

/** The checksum of a store's number, its position, and its numbers of rows, which PostgreSQL computes: it adds up the last alone. */
const stateSum = (row: string) =>
  `('x' || left(md5(concat_ws(' ', ${row}.store, coalesce(${row}.seq, -1), coalesce(${row}.epoch, ''),
    coalesce(${row}.purge_seq, -1), ${row}.rows::text)), 8))::bit(32)::integer`

/** Whether the row of a store says what was written, as an expression of SQL. */
export function isSoundState(row: string): string {
  return `(${row}.checksum IS NULL OR ${row}.checksum = ${stateSum(row)})`
}

/** The error of PostgreSQL for data that is damaged: data_corrupted. */
const REFUSE_DAMAGED = `RAISE EXCEPTION 'the state of an index is damaged' USING ERRCODE = 'XX001'`

/**
 * Rows are looked up one by one. A join with a list would be planned once for each connection, while the tables are empty,
 * and would then read a whole index.
 */
const UPDATE_PARAMETERS = `
  p_db bigint, p_signature text, p_indexes integer, p_from bigint, p_version bigint, p_store bigint,
  p_seq bigint, p_epoch text, p_purge_seq bigint, p_worker text,
  docs bytea[], doc_keys bytea[],
  gone_idx integer[], gone_head bytea[], gone_tail bytea[],
  old_idx integer[], old_head bytea[], old_tail bytea[], old_key text[], old_value text[],
  new_idx integer[], new_head bytea[], new_tail bytea[], new_length integer[], new_key text[], new_value text[]`
/** The number of {@link UPDATE_PARAMETERS}, and of those of index_advance. */
const UPDATE_VALUES = 26
export const ADVANCE_VALUES = 29

const KEEP_PARAMETERS =
  'p_db bigint, p_store bigint, p_idx integer, starts bytea[], versions bigint[], reductions text[]'
const KEEP_VALUES = 6

const CHANGES = `
-- divides the rows of a stretch into stretches of the usual length
CREATE OR REPLACE FUNCTION index_split(p_db bigint, p_store bigint, p_idx integer, p_start bytea, p_version bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  following bytea;
BEGIN
  SELECT start INTO following FROM index_stretch
  WHERE db = p_db AND store = p_store AND idx = p_idx AND start > p_start ORDER BY start LIMIT 1;
  DELETE FROM index_stretch WHERE db = p_db AND store = p_store AND idx = p_idx AND start = p_start;
  INSERT INTO index_stretch
  SELECT p_db, p_store, p_idx, CASE WHEN piece = 0 THEN p_start ELSE (array_agg(head ORDER BY head))[1] END,
    sum(rows), NULL, p_version
  FROM (
    -- rows with equal heads stay together
    SELECT head, count(*) AS rows, div(sum(count(*)) OVER (ORDER BY head) - count(*), ${BUCKET.usual}) AS piece
    FROM index_row
    WHERE db = p_db AND store = p_store AND idx = p_idx AND head >= p_start
      -- no key begins with 255
      AND head < coalesce(following, '\\xffff'::bytea)
    GROUP BY head
  ) heads
  GROUP BY piece;
END $$;

-- joins a stretch with the next one, if both together are not too long
CREATE OR REPLACE FUNCTION index_join(p_db bigint, p_store bigint, p_idx integer, p_start bytea, p_rows bigint, p_version bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  following record;
BEGIN
  SELECT start, rows INTO following FROM index_stretch
  WHERE db = p_db AND store = p_store AND idx = p_idx AND start > p_start ORDER BY start LIMIT 1;
  IF FOUND AND p_rows + following.rows <= ${BUCKET.usual} THEN
    DELETE FROM index_stretch WHERE db = p_db AND store = p_store AND idx = p_idx AND start = following.start;
    UPDATE index_stretch SET rows = p_rows + following.rows, reduction = NULL, changed = p_version
    WHERE db = p_db AND store = p_store AND idx = p_idx AND start = p_start;
  ELSIF p_rows = 0 AND p_start <> '' THEN
    DELETE FROM index_stretch WHERE db = p_db AND store = p_store AND idx = p_idx AND start = p_start;
  END IF;
END $$;

-- Stores one step. Creates the store, with the number p_store, if p_from is 0. Returns the number of its rows; 0 if it has
-- another version, -1 if the database is gone. The last lists are checksums.
CREATE OR REPLACE FUNCTION index_advance(${UPDATE_PARAMETERS},
  doc_sums integer[], old_sums integer[], new_sums integer[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  s bigint;
  growth bigint := 0;
  changed_idx integer[] := '{}';
  changed_head bytea[] := '{}';
  touched record;
  w record;
  after record;
  uneven_idx integer[] := '{}';
  uneven_start bytea[] := '{}';
  n bigint;
BEGIN
  PERFORM FROM database WHERE db = p_db;
  IF NOT FOUND THEN RETURN -1; END IF;
  IF p_from = 0 THEN
    INSERT INTO index_store (db, signature, store, version, rows, bytes)
    VALUES (p_db, p_signature, p_store, p_version, array_fill(0::bigint, ARRAY[p_indexes]), 0)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN 0; END IF;
    s := p_store;
    INSERT INTO index_stretch SELECT p_db, s, i, ''::bytea, 0, NULL, p_version FROM generate_series(0, p_indexes - 1) i;
  ELSE
    SELECT store INTO s FROM index_store x
    WHERE db = p_db AND signature = p_signature AND version = p_from AND store = p_store AND ${isSoundState('x')} FOR UPDATE;
    IF NOT FOUND THEN RETURN 0; END IF;
  END IF;

  FOR w IN SELECT * FROM unnest(gone_idx, gone_head, gone_tail) AS u(idx, head, tail) LOOP
    DELETE FROM index_row r WHERE db = p_db AND store = s AND idx = w.idx AND head = w.head AND tail = w.tail
    RETURNING ${sizeOf('r')} INTO n;
    growth := growth - coalesce(n, 0);
  END LOOP;

  FOR w IN SELECT * FROM unnest(old_idx, old_head, old_tail, old_key, old_value, old_sums)
    AS u(idx, head, tail, key, value, checksum)
  LOOP
    SELECT octet_length(w.key) + octet_length(w.value) - octet_length(r.key) - octet_length(r.value) INTO n
    FROM index_row r WHERE db = p_db AND store = s AND r.idx = w.idx AND r.head = w.head AND r.tail = w.tail
      AND (r.key <> w.key OR r.value <> w.value);
    IF FOUND THEN
      UPDATE index_row SET key = w.key, value = w.value, checksum = w.checksum
      WHERE db = p_db AND store = s AND idx = w.idx AND head = w.head AND tail = w.tail;
      changed_idx := changed_idx || w.idx;
      changed_head := changed_head || w.head;
      growth := growth + n;
    END IF;
  END LOOP;

  IF cardinality(new_idx) > 0 THEN
    INSERT INTO index_row
    SELECT p_db, s, * FROM unnest(new_idx, new_head, new_tail, new_length, new_key, new_value, new_sums);
    SELECT growth + sum(${sizeOf('u')}) INTO growth FROM unnest(new_head, new_tail, new_key, new_value) AS u(head, tail, key, value);
  END IF;

  INSERT INTO index_doc SELECT p_db, s, u.doc, u.keys, u.checksum
  FROM unnest(docs, doc_keys, doc_sums) AS u(doc, keys, checksum) WHERE u.keys IS NOT NULL
  ON CONFLICT (db, store, doc) DO UPDATE SET keys = excluded.keys, checksum = excluded.checksum;
  FOR w IN SELECT * FROM unnest(docs, doc_keys) AS u(doc, keys) WHERE u.keys IS NULL LOOP
    DELETE FROM index_doc WHERE db = p_db AND store = s AND doc = w.doc;
  END LOOP;

  -- All numbers are right before any stretch is split or joined.
  FOR touched IN
    SELECT located.idx, located.start, sum(located.delta) AS delta FROM (
      SELECT p.idx, p.delta, (
        SELECT x.start FROM index_stretch x
        WHERE x.db = p_db AND x.store = s AND x.idx = p.idx AND x.start <= p.head ORDER BY x.start DESC LIMIT 1
      ) AS start
      FROM (
        SELECT idx, head, -1 AS delta FROM unnest(gone_idx, gone_head) AS u(idx, head)
        UNION ALL SELECT idx, head, 0 FROM unnest(changed_idx, changed_head) AS u(idx, head)
        UNION ALL SELECT idx, head, 1 FROM unnest(new_idx, new_head) AS u(idx, head)
      ) p
    ) located GROUP BY located.idx, located.start
  LOOP
    UPDATE index_stretch SET rows = rows + touched.delta, reduction = NULL, changed = p_version
    WHERE db = p_db AND store = s AND idx = touched.idx AND start = touched.start RETURNING rows INTO n;
    IF n > ${BUCKET.most} OR (touched.delta < 0 AND n < ${BUCKET.least}) THEN
      uneven_idx := uneven_idx || touched.idx;
      uneven_start := uneven_start || touched.start;
    END IF;
  END LOOP;
  FOR w IN SELECT * FROM unnest(uneven_idx, uneven_start) AS u(idx, start) LOOP
    -- It may have been joined with one before it.
    SELECT rows INTO n FROM index_stretch WHERE db = p_db AND store = s AND idx = w.idx AND start = w.start;
    IF n > ${BUCKET.most} THEN PERFORM index_split(p_db, s, w.idx, w.start, p_version);
    ELSIF n < ${BUCKET.least} THEN PERFORM index_join(p_db, s, w.idx, w.start, n, p_version);
    END IF;
  END LOOP;

  SELECT x.store, coalesce(p_seq, x.seq) AS seq, coalesce(p_epoch, x.epoch) AS epoch,
    coalesce(p_purge_seq, x.purge_seq) AS purge_seq, (
      SELECT array_agg(x.rows[i + 1]
        + (SELECT count(*) FROM unnest(new_idx) u(idx) WHERE idx = i)
        - (SELECT count(*) FROM unnest(gone_idx) u(idx) WHERE idx = i) ORDER BY i)
      FROM generate_series(0, p_indexes - 1) i
    ) AS rows INTO after
  FROM index_store x WHERE x.db = p_db AND x.signature = p_signature;
  UPDATE index_store x SET
    version = p_version, seq = after.seq, epoch = after.epoch, purge_seq = after.purge_seq, rows = after.rows,
    worker = p_worker, worked_at = CASE WHEN p_worker IS NOT NULL THEN statement_timestamp() END,
    bytes = x.bytes + growth, checksum = ${stateSum('after')}
  WHERE x.db = p_db AND x.signature = p_signature;
  RETURN s;
END $$;

-- as nodes of earlier versions call it
CREATE OR REPLACE FUNCTION index_update(${UPDATE_PARAMETERS}) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN index_advance(${firstValues(UPDATE_VALUES)}, NULL, NULL, NULL);
END $$;

-- Empties a store. Its rows get a new number, and the old ones are removed later. Returns false for another version.
CREATE OR REPLACE FUNCTION index_clear(p_db bigint, p_signature text, p_from bigint, p_version bigint, p_new bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  s index_store;
BEGIN
  SELECT * INTO s FROM index_store WHERE db = p_db AND signature = p_signature AND version = p_from FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO index_leaving VALUES (p_db, s.store);
  INSERT INTO index_stretch
  SELECT p_db, p_new, i, ''::bytea, 0, NULL, p_version FROM generate_series(0, cardinality(s.rows) - 1) i;
  UPDATE index_store SET store = p_new, version = p_version, seq = NULL, epoch = NULL, purge_seq = NULL,
    worker = NULL, worked_at = NULL, bytes = 0, rows = array_fill(0::bigint, ARRAY[cardinality(s.rows)]), checksum = NULL
  WHERE db = p_db AND signature = p_signature;
  RETURN true;
END $$;

-- Removes a store; its rows are removed later.
CREATE OR REPLACE FUNCTION index_remove(p_db bigint, p_signature text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  s bigint;
BEGIN
  DELETE FROM index_store WHERE db = p_db AND signature = p_signature RETURNING store INTO s;
  IF FOUND THEN INSERT INTO index_leaving VALUES (p_db, s); END IF;
END $$;

-- Removes some rows of a store that is leaving. Returns whether there may be more of them, or of another one.
CREATE OR REPLACE FUNCTION index_sweep(p_db bigint, p_limit integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  s bigint;
  last record;
BEGIN
  SELECT store INTO s FROM index_leaving WHERE db = p_db ORDER BY store LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  SELECT idx, head INTO last FROM index_row WHERE db = p_db AND store = s ORDER BY idx, head LIMIT 1 OFFSET p_limit;
  IF FOUND THEN
    DELETE FROM index_row WHERE db = p_db AND store = s AND (idx, head) <= (last.idx, last.head);
    RETURN true;
  END IF;
  DELETE FROM index_row WHERE db = p_db AND store = s;
  SELECT doc INTO last FROM index_doc WHERE db = p_db AND store = s ORDER BY doc LIMIT 1 OFFSET p_limit;
  IF FOUND THEN
    DELETE FROM index_doc WHERE db = p_db AND store = s AND doc <= last.doc;
    RETURN true;
  END IF;
  DELETE FROM index_doc WHERE db = p_db AND store = s;
  DELETE FROM index_stretch WHERE db = p_db AND store = s;
  DELETE FROM index_leaving WHERE db = p_db AND store = s;
  RETURN true;
END $$;

-- Keeps reductions of stretches that have not changed since they were read, with their checksums.
CREATE OR REPLACE FUNCTION index_retain(${KEEP_PARAMETERS}, sums integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  w record;
BEGIN
  FOR w IN SELECT * FROM unnest(starts, versions, reductions, sums) AS u(start, version, reduction, checksum) LOOP
    UPDATE index_stretch SET reduction = w.reduction, checksum = w.checksum
    WHERE db = p_db AND store = p_store AND idx = p_idx AND start = w.start AND changed = w.version;
  END LOOP;
END $$;

-- as nodes of earlier versions call it
CREATE OR REPLACE FUNCTION index_keep(${KEEP_PARAMETERS}) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM index_retain(${firstValues(KEEP_VALUES)}, NULL);
END $$;
`

const READS = `
-- As nodes of earlier versions call it: the keys of documents that have rows, in the order of the list. They are null behind the first p_bytes bytes of keys.
CREATE OR REPLACE FUNCTION index_keys(p_db bigint, p_store bigint, docs bytea[], p_bytes bigint)
RETURNS TABLE (doc bytea, keys bytea) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  wanted bytea;
  bytes bigint := 0;
BEGIN
  FOREACH wanted IN ARRAY docs LOOP
    RETURN QUERY SELECT d.doc, CASE WHEN bytes < p_bytes THEN d.keys END FROM index_doc d
    WHERE d.db = p_db AND d.store = p_store AND d.doc = wanted;
    IF FOUND THEN
      SELECT bytes + octet_length(d.keys) INTO bytes FROM index_doc d
      WHERE d.db = p_db AND d.store = p_store AND d.doc = wanted;
    END IF;
  END LOOP;
END $$;

-- The number of rows before a place.
CREATE OR REPLACE FUNCTION index_rows_before(p_db bigint, p_store bigint, p_idx integer, p_head bytea, p_tail bytea) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
  here bytea;
BEGIN
  SELECT start INTO here FROM index_stretch
  WHERE db = p_db AND store = p_store AND idx = p_idx AND start <= p_head ORDER BY start DESC LIMIT 1;
  RETURN coalesce((
    SELECT sum(rows) FROM index_stretch WHERE db = p_db AND store = p_store AND idx = p_idx AND start < here
  ), 0) + (
    SELECT count(*) FROM index_row
    WHERE db = p_db AND store = p_store AND idx = p_idx AND head >= here AND (head, tail) < (p_head, p_tail)
  );
END $$;

-- Counts rows before places, in one moment. No row: the store does not exist.
CREATE OR REPLACE FUNCTION index_counts(p_db bigint, p_signature text, p_idx integer, heads bytea[], tails bytea[])
RETURNS TABLE (version bigint, seq bigint, epoch text, purge_seq bigint, total bigint, before bigint[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  s record;
  numbers bigint[] := '{}';
BEGIN
  SELECT x.* INTO s FROM index_store x WHERE x.db = p_db AND x.signature = p_signature;
  IF NOT FOUND THEN RETURN; END IF;
  IF NOT ${isSoundState('s')} THEN ${REFUSE_DAMAGED}; END IF;
  -- Not within a query of a table: Citus does not allow that.
  FOR i IN 1 .. cardinality(heads) LOOP
    numbers := numbers || index_rows_before(p_db, s.store, p_idx, heads[i], tails[i]);
  END LOOP;
  RETURN QUERY SELECT s.version, s.seq, s.epoch, s.purge_seq, s.rows[p_idx + 1], numbers;
END $$;

-- The place of the row that has so many rows before it, in one moment. No row: the store does not exist.
CREATE OR REPLACE FUNCTION index_place_at(p_db bigint, p_signature text, p_idx integer, p_count bigint)
RETURNS TABLE (version bigint, head bytea, tail bytea) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  s record;
  stretch record;
BEGIN
  SELECT x.version, x.store INTO s FROM index_store x WHERE x.db = p_db AND x.signature = p_signature;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT c.start, c.following, c.ahead INTO stretch FROM (
    SELECT x.start, x.rows, lead(x.start) OVER (ORDER BY x.start) AS following,
      sum(x.rows) OVER (ORDER BY x.start) - x.rows AS ahead
    FROM index_stretch x WHERE x.db = p_db AND x.store = s.store AND x.idx = p_idx
  ) c WHERE c.ahead <= p_count AND c.ahead + c.rows > p_count LIMIT 1;
  IF NOT FOUND THEN
    RETURN QUERY SELECT s.version, NULL::bytea, NULL::bytea;
    RETURN;
  END IF;
  RETURN QUERY SELECT s.version, r.head, r.tail FROM index_row r
  WHERE r.db = p_db AND r.store = s.store AND r.idx = p_idx AND r.head >= stretch.start
    AND r.head < coalesce(stretch.following, '\\xffff'::bytea)
  ORDER BY r.head, r.tail LIMIT 1 OFFSET p_count - stretch.ahead;
END $$;
`

/** The statements that create the tables and functions. */
export const INDEX_FUNCTIONS = CHANGES + READS
