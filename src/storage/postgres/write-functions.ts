/**
 * Functions in PostgreSQL that carry out writes. Each is called by one statement, which is a transaction of its own, so that
 * no lock is held while anything travels. It updates the row of the database first, which orders all writes of a
 * database, then compares what the caller decided on with what is there, and writes nothing if that has changed.
 *
 * Each returns the newest sequence number, or one of {@link refusals}.
 *
 * The caller counts what the write adds to the sums of bytes (row-bytes.ts), since it has read what is replaced.
 */

import { docChecksumOf, wrapped } from './row-checksums.ts'

/** Why a write was not carried out. */
export const refusals = {
  /** The database was deleted. */
  gone: -1,
  /** Settings have changed. */
  settings: -2,
  /** The server was restored or failed over. */
  timeline: -3,
  /** The numbers of documents have changed, and a decision depends on them. */
  counts: -4,
  /** A document has changed. */
  stale: -5,
  /** A named content of an attachment is not stored. */
  contents: -6,
} as const

/**
 * For each row w of what stands before it in a FROM, the rows of a table that belong to it, found by an index, with `tid`:
 * their place in the table. OFFSET 0 keeps it from becoming a join. The planner would read all rows of the database for
 * that, since it expects few: its plan is made once for all databases, and may be made while the tables are empty.
 * @param conditions on k, besides the database
 */
export function lookUp(table: string, conditions: string): string {
  return `CROSS JOIN LATERAL (SELECT k.*, k.ctid AS tid FROM ${table} AS k WHERE k.db = p_db AND ${conditions} OFFSET 0)`
}

/**
 * Deletes the rows that {@link lookUp} has found. Citus needs to know the database of each row that is changed. As a condition
 * beside `ctid = ANY (...)`, it would let PostgreSQL read all rows of the database, in a plan that was made while the table was empty.
 * @param found SELECTs their `tid`
 */
export function deleteFound(table: string, found: string): string {
  return `DELETE FROM ${table} AS gone USING (${found}) AS w WHERE gone.db = p_db AND gone.ctid = w.tid;`
}

/** After the INSERT of chunks of a content that is stored: replaces those that are not what was written. */
export const OVER_DAMAGED = `ON CONFLICT (db, blob, position) DO UPDATE SET data = excluded.data, checksum = excluded.checksum
        WHERE chunk.data IS DISTINCT FROM excluded.data OR chunk.checksum IS DISTINCT FROM excluded.checksum`

/** The statement that replaces what a known content is not any more. @param sum its checksum without the blob */
export function mendBlob(
  content: Readonly<Record<'db' | 'blob' | 'digest' | 'length' | 'sum', string>>,
): string {
  const { db, blob, digest, length, sum } = content
  const facts = `${digest}, ${length}, ${wrapped(`${sum} + ${blob}`)}`
  return `UPDATE blob AS b SET (digest, length, checksum) = ROW(${facts})
        WHERE b.db = ${db} AND b.blob = ${blob} AND (b.digest, b.length, b.checksum) IS DISTINCT FROM (${facts});`
}

/** How long it is remembered which write of an opener was the last, in ms; clocks of nodes may differ by hours. */
const FORGET_MS = 24 * 60 * 60_000

/**
 * The statement after each write: whether it is stored can be read when its answer was lost. A write that was found not to be
 * stored has a higher token in its row (write-note.ts), and everything that it has done is rolled back.
 */
export const NOTE_WRITE = `
  UPDATE written SET token = p_token, at = p_now WHERE db = p_db AND opener = p_opener AND token < p_token;
  IF NOT FOUND THEN
    INSERT INTO written (db, opener, token, at) VALUES (p_db, p_opener, p_token, p_now) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'this write was given up' USING ERRCODE = 'serialization_failure';
    END IF;
    -- Openers that have ended, since no answer is awaited for so long.
    DELETE FROM written WHERE db = p_db AND at < p_now - ${FORGET_MS};
  END IF;`

const REFUSAL = `
CREATE OR REPLACE FUNCTION refusal(p_db bigint, p_settings bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_database record;
BEGIN
  SELECT settings_version, timeline INTO v_database FROM database WHERE db = p_db;
  RETURN CASE WHEN NOT FOUND THEN ${refusals.gone}
    WHEN v_database.timeline <> timeline() THEN ${refusals.timeline}
    WHEN v_database.settings_version <> p_settings THEN ${refusals.settings}
    ELSE ${refusals.counts} END;
END $$;
`

/** What a write of an older node lacks: columns of `database` that change with each of them (schema.ts). */
type Lack = 'uncounted' | 'unsummed' | 'unsummed_others'

/** Uploads do not change `writes`. */
const NEXT: Readonly<Record<Lack, string>> = {
  uncounted: 'writes + 1',
  unsummed: 'writes + 1',
  unsummed_others: 'coalesce(unsummed_others, 0) + 1',
}

/** The statement with which a write of an older node notes what it lacks. @param db the parameter with the database */
export function noteLack(column: Lack, db: string): string {
  return `UPDATE database SET ${column} = ${NEXT[column]} WHERE db = ${db};`
}

/**
 * The function under the name by which nodes of earlier versions call it.
 * @param parameters of the function of then, whose names PostgreSQL keeps
 * @param values of the function of now
 */
export function forOlderNodes(
  name: string,
  parameters: string,
  {
    newer,
    values,
    lacks,
  }: { readonly newer: string; readonly values: string; readonly lacks: readonly Lack[] },
): string {
  const notes = lacks.map((column) => `${column} = ${NEXT[column]}`).join(', ')
  return `
CREATE OR REPLACE FUNCTION ${name}(${parameters}) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  UPDATE database SET ${notes} WHERE db = p_db;
  RETURN ${newer}(${values});
END $$;
`
}

const DOC_PARAMETERS = `
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_doc_count integer, p_deleted_count integer, p_external bigint, p_leaf bigint, p_superseded bigint, p_designs integer,
  p_id text, p_version bigint, p_old_seq bigint,
  p_rev text, p_deleted boolean, p_size bigint, p_ancestry bytea, p_body text
`
/** The number of {@link DOC_PARAMETERS}, and of those of store_doc. */
const OLD_DOC_VALUES = 19
export const DOC_VALUES = 22

/** The values of the first parameters of a function. */
export function firstValues(count: number): string {
  return Array.from({ length: count }, (_, at) => `$${at + 1}`).join(', ')
}

/**
 * Saves one document that has no other leaf: the winner of before becomes a superseded revision.
 *
 * p_version, p_old_seq: of the document as it was decided on, 0 for a new one. p_counts: what the write adds to docCount,
 * deletedCount, external_bytes, leaf_bytes, superseded_bytes and designVersion. p_checksum: row-checksums.ts.
 */
const STORE_DOC = `
CREATE OR REPLACE FUNCTION store_doc(${DOC_PARAMETERS},
  p_checksum bigint, p_content_checksum integer, p_ancestry_checksum integer
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
    INSERT INTO doc (db, id, seq, version, first_seq, rev, deleted, leaves, place, stored_at, size, ancestry, body,
        checksum, content_checksum, ancestry_checksum)
      VALUES (p_db, p_id, v_seq, v_writes, v_seq, p_rev, p_deleted, 1, v_writes << 16, p_now, p_size, p_ancestry, p_body,
        ${docChecksumOf('p_checksum + v_seq + 1')}, p_content_checksum, p_ancestry_checksum)
      ON CONFLICT (db, id) DO NOTHING;
  ELSE
    INSERT INTO revision
      (db, id, rev, deleted, leaf, place, stored_at, grown_at, superseded_at, size, attachments, body, content_checksum)
      SELECT p_db, id, rev, deleted, false, place, stored_at, grown_at, p_now, size, attachments, body, content_checksum
        FROM doc WHERE db = p_db AND id = p_id AND version = p_version
          AND NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.db = p_db AND r.id = p_id AND r.rev = p_rev);
    IF FOUND THEN
      UPDATE doc SET seq = v_seq, version = v_writes, rev = p_rev, deleted = p_deleted, place = v_writes << 16,
        stored_at = p_now, grown_at = NULL, size = p_size, attachments = NULL, ancestry = p_ancestry, body = p_body,
        checksum = ${docChecksumOf('p_checksum + v_seq + 1')}, content_checksum = p_content_checksum, ancestry_checksum = p_ancestry_checksum
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
    RETURN ${refusals.stale};
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
${NOTE_WRITE}
  RETURN v_seq;
END $$;
`

/**
 * Replaces the places of new contents in a list of attachments, -1 for the first, by the numbers of their blobs, and adds these
 * to the checksums. The text
 * that is replaced is in no name or type: in those, JSON escapes the quotes.
 */
const NAMED_BLOBS = `
CREATE OR REPLACE FUNCTION named_blobs(p_attachments text, p_blobs bigint[]) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_text text := p_attachments;
  v_found text[];
  v_blob bigint;
BEGIN
  LOOP
    -- With the checksum before it, which nodes of earlier versions leave out.
    v_found := regexp_match(v_text, '((?:"checksum":(-?[0-9]+),)?"storedLength":([0-9]+),"blob":)-([0-9]+)\\}');
    EXIT WHEN v_found IS NULL;
    v_blob := p_blobs[v_found[4]::integer];
    v_text := replace(v_text, v_found[1] || '-' || v_found[4] || '}',
      CASE WHEN v_found[2] IS NULL THEN '' ELSE '"checksum":' || v_found[2]::bigint + v_blob || ',' END
        || '"storedLength":' || v_found[3] || ',"blob":' || v_blob || '}');
  END LOOP;
  RETURN v_text;
END $$;
`

/**
 * Stores new contents, each once, and replaces the damaged chunks of those that are stored. Returns their blobs, in order.
 * p_chunk_of: the place of a chunk's content, from 1; p_checksums, p_chunk_checksums: without the blob.
 */
const STORE_CONTENTS = `
CREATE OR REPLACE FUNCTION store_new_contents(
  p_db bigint, p_hashes bytea[], p_digests text[], p_lengths bigint[], p_checksums bigint[],
  p_chunk_of bigint[], p_positions bigint[], p_chunks bytea[], p_chunk_checksums bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_blob bigint;
  v_blobs bigint[] := '{}';
  w record;
BEGIN
  FOR w IN SELECT * FROM unnest(p_hashes, p_digests, p_lengths, p_checksums)
    WITH ORDINALITY AS u (hash, digest, length, checksum, n)
  LOOP
    SELECT blob INTO v_blob FROM blob WHERE db = p_db AND sha256 = w.hash FOR KEY SHARE;
    IF NOT FOUND THEN
      UPDATE database SET last_blob = last_blob + 1, blob_bytes = blob_bytes + w.length
        WHERE db = p_db RETURNING last_blob INTO v_blob;
      INSERT INTO blob (db, blob, sha256, digest, length, named, checksum)
        VALUES (p_db, v_blob, w.hash, w.digest, w.length, true, ${wrapped('w.checksum + v_blob')});
    ELSE
      ${mendBlob({ db: 'p_db', blob: 'v_blob', digest: 'w.digest', length: 'w.length', sum: 'w.checksum' })}
    END IF;
    INSERT INTO chunk (db, blob, position, data, checksum)
      SELECT p_db, v_blob, c.position, c.data, ${wrapped('c.checksum + v_blob')}
        FROM unnest(p_chunk_of, p_positions, p_chunks, p_chunk_checksums) AS c (content, position, data, checksum)
        WHERE c.content = w.n
      ${OVER_DAMAGED};
    v_blobs := v_blobs || v_blob;
  END LOOP;
  RETURN v_blobs;
END $$;
`

const LOCAL_PARAMETERS = `
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_ids text[], p_versions bigint[], p_revs bigint[], p_bodies text[], p_met text[]`

/**
 * `_local` documents: p_versions as they were decided on, 0 for none; p_revs: -1 leaves one as it is, and -2 removes it. p_grown:
 * what the write adds to leaf_bytes.
 */
const STORE_LOCALS = `
CREATE OR REPLACE FUNCTION store_locals(${LOCAL_PARAMETERS}, p_grown bigint, p_checksums bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
  v_writes bigint;
  v_is_stale boolean;
BEGIN
  UPDATE database SET writes = writes + 1, leaf_bytes = leaf_bytes + p_grown
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
    RETURNING update_seq, writes INTO v_seq, v_writes;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
  PERFORM 1 FROM unnest(p_ids, p_versions) AS w (id, version)
    WHERE w.version <> coalesce((SELECT l.version FROM local_doc AS l WHERE l.db = p_db AND l.id = w.id), 0);
  v_is_stale := FOUND;
  IF NOT v_is_stale AND cardinality(p_met) > 0 THEN
    -- Another node has met it, and counted it.
    PERFORM 1 FROM unnest(p_met) AS w (id) ${lookUp('met', 'k.id = w.id')} AS m;
    v_is_stale := FOUND;
  END IF;
  IF v_is_stale THEN
    UPDATE database SET writes = writes - 1, leaf_bytes = leaf_bytes - p_grown WHERE db = p_db;
    RETURN ${refusals.stale};
  END IF;
  ${deleteFound(
    'local_doc',
    `SELECT l.tid FROM unnest(p_ids, p_revs) AS w (id, rev) ${lookUp('local_doc', 'k.id = w.id')} AS l WHERE w.rev = -2`,
  )}
  INSERT INTO local_doc (db, id, version, rev, body, checksum)
    SELECT p_db, w.id, v_writes, w.rev, w.body, w.checksum::integer
      FROM unnest(p_ids, p_revs, p_bodies, p_checksums) AS w (id, rev, body, checksum) WHERE w.rev >= 0
    ON CONFLICT (db, id) DO UPDATE SET
      version = excluded.version, rev = excluded.rev, body = excluded.body, checksum = excluded.checksum;
  INSERT INTO met (db, id) SELECT p_db, w.id FROM unnest(p_met) AS w (id) ON CONFLICT DO NOTHING;
${NOTE_WRITE}
  RETURN v_seq;
END $$;
`

const SETTINGS_PARAMETERS = `
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_security text, p_revs_limit integer, p_purged_infos_limit integer, p_restored_at bigint`

/** Settings; null leaves one as it is. */
const STORE_SETTINGS = `
CREATE OR REPLACE FUNCTION store_settings(${SETTINGS_PARAMETERS}, p_security_checksum integer
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
BEGIN
  UPDATE database SET writes = writes + 1, settings_version = settings_version + 1,
    leaf_bytes = leaf_bytes + coalesce(octet_length(p_security) - coalesce(octet_length(security), 0), 0),
    security = coalesce(p_security, security),
    security_checksum = CASE WHEN p_security IS NULL THEN security_checksum ELSE p_security_checksum END, revs_limit = coalesce(p_revs_limit, revs_limit),
    longest_ancestry = greatest(longest_ancestry, p_revs_limit),
    purged_infos_limit = coalesce(p_purged_infos_limit, purged_infos_limit),
    restored_at = coalesce(restored_at, p_restored_at)
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
    RETURNING update_seq INTO v_seq;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
${NOTE_WRITE}
  RETURN v_seq;
END $$;
`

/** Points in the feeds of other servers: those that are added, with their numbers, and those that are forgotten. */
const WRITE_POINTS = `
CREATE OR REPLACE FUNCTION write_points(
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_families text[], p_totals bigint[], p_parts text[], p_seqs bigint[],
  p_old_families text[], p_old_totals bigint[], p_old_parts text[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
BEGIN
  UPDATE database SET writes = writes + 1
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
    RETURNING update_seq INTO v_seq;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
  INSERT INTO point AS k (db, family, total, parts, seq, at)
    SELECT p_db, w.family, w.total, w.parts, min(w.seq), p_now
      FROM unnest(p_families, p_totals, p_parts, p_seqs) AS w (family, total, parts, seq)
      GROUP BY w.family, w.total, w.parts
    ON CONFLICT (db, family, total, parts) DO UPDATE SET seq = excluded.seq WHERE excluded.seq < k.seq;
  ${deleteFound(
    'point',
    `SELECT p.tid FROM unnest(p_old_families, p_old_totals, p_old_parts) AS w (family, total, parts)
      ${lookUp('point', 'k.family = w.family AND k.total = w.total AND k.parts = w.parts')} AS p`,
  )}
${NOTE_WRITE}
  RETURN v_seq;
END $$;
`

const OLD_DOC = { newer: 'store_doc', values: `${firstValues(OLD_DOC_VALUES)}, NULL, NULL, NULL` }
const FOR_OLDER_NODES = [
  forOlderNodes('write_doc', DOC_PARAMETERS, { ...OLD_DOC, lacks: ['uncounted', 'unsummed'] }),
  forOlderNodes('save_doc', DOC_PARAMETERS, { ...OLD_DOC, lacks: ['unsummed'] }),
  forOlderNodes('write_locals', LOCAL_PARAMETERS, {
    newer: 'store_locals',
    values: `${firstValues(10)}, 0, NULL`,
    lacks: ['uncounted', 'unsummed_others'],
  }),
  forOlderNodes('save_locals', `${LOCAL_PARAMETERS}, p_grown bigint`, {
    newer: 'store_locals',
    values: `${firstValues(11)}, NULL`,
    lacks: ['unsummed_others'],
  }),
  forOlderNodes('write_settings', SETTINGS_PARAMETERS, {
    newer: 'store_settings',
    values: `${firstValues(9)}, NULL`,
    lacks: ['unsummed_others'],
  }),
].join('')

/** All but those of groups, in the order of their making. */
export const WRITE_FUNCTIONS = [
  REFUSAL,
  STORE_DOC,
  NAMED_BLOBS,
  STORE_CONTENTS,
  STORE_LOCALS,
  STORE_SETTINGS,
  WRITE_POINTS,
  FOR_OLDER_NODES,
].join('')
