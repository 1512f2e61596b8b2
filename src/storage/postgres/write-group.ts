/**
 * The function that writes a group of documents: see write-functions.ts. Most documents of a group are *plain*: they are new,
 * or get a successor of their only leaf. Everything else (forks, ancestries, purges) is *branched*: the winner is first
 * moved to the table of revisions, where each row is changed by the same rules, and the new winner is moved back.
 */
import { docChecksumOf, wrapped } from './row-checksums.ts'
import { attachmentNumber } from './stored-text.ts'
import {
  deleteFound,
  firstValues,
  forOlderNodes,
  lookUp,
  NOTE_WRITE,
  noteLack,
  refusals,
} from './write-functions.ts'

/** The plain documents. */
const PLAIN = `unnest(
            p_ids, p_versions, p_places, p_revs, p_deleted, p_sizes, p_attachments, p_ancestries, p_bodies,
            p_checksums, p_content_checksums, p_ancestry_checksums
          ) WITH ORDINALITY AS w (
            id, version, place, rev, deleted, size, attachments, ancestry, body,
            checksum, content_checksum, ancestry_checksum, n
          )`

/** Removes the new documents of this group again. */
const UNDO_NEW = deleteFound(
  'doc',
  `SELECT d.tid FROM unnest(p_ids) AS w (id) ${lookUp('doc', 'k.id = w.id AND k.version = v_writes')} AS d`,
)

const GROUP_PARAMETERS = `
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_old_doc_count bigint, p_old_deleted_count bigint,
  p_seqs integer, p_doc_count integer, p_deleted_count integer,
  p_external bigint, p_leaf bigint, p_superseded bigint, p_designs integer,
  p_new integer, p_saved integer,
  p_ids text[], p_versions bigint[], p_places bigint[], p_revs text[], p_deleted boolean[],
  p_sizes bigint[], p_attachments text[], p_ancestries bytea[], p_bodies text[],
  p_left bigint[], p_branched json, p_branch_bodies text[],
  p_named bigint[], p_use_ids text[], p_use_revs text[], p_use_blobs bigint[],
  p_hashes bytea[], p_digests text[], p_lengths bigint[], p_chunk_of bigint[], p_positions bigint[], p_chunks bytea[]
`
/** The number of {@link GROUP_PARAMETERS}, with those of {@link SUM_PARAMETERS}, and of those of commit_group. */
const OLD_GROUP_VALUES = 38
const SUMMED_GROUP_VALUES = 41
export const GROUP_VALUES = 43

const SUM_PARAMETERS = 'p_checksums bigint[], p_content_checksums bigint[], p_ancestry_checksums bigint[]'

/**
 * p_versions: of plain documents, 0 for a new one; p_new, p_saved: how many are new, and how many are not.
 * p_places: how far a document's sequence number lies above the database's.
 * p_left: sequence numbers at which documents stood in the feed.
 * p_branched: null, or JSON for write_branches; p_branch_bodies: the bodies of its revisions, which name them by place.
 * p_uses: which revisions name which blobs; negative for the new contents, -1 for the first.
 * p_checksums: of plain documents; p_blob_checksums, p_chunk_checksums: of new contents; row-checksums.ts.
 */
const COMMIT_GROUP = `
CREATE OR REPLACE FUNCTION commit_group(${GROUP_PARAMETERS}, ${SUM_PARAMETERS},
  p_blob_checksums bigint[], p_chunk_checksums bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_last bigint;
  v_base bigint;
  v_writes bigint;
  v_rows integer;
  v_refusal bigint;
  v_blob bigint;
  v_blobs bigint[];
BEGIN
  UPDATE database SET update_seq = update_seq + p_seqs, writes = writes + 1,
    doc_count = doc_count + p_doc_count, deleted_count = deleted_count + p_deleted_count,
    external_bytes = external_bytes + p_external, leaf_bytes = leaf_bytes + p_leaf,
    superseded_bytes = superseded_bytes + p_superseded,
    design_version = design_version + p_designs, settings_version = settings_version + p_designs
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
      AND (p_old_doc_count IS NULL OR (doc_count = p_old_doc_count AND deleted_count = p_old_deleted_count))
    RETURNING update_seq, writes INTO v_last, v_writes;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
  v_base := v_last - p_seqs;

  IF cardinality(p_named) > 0 THEN
    -- In ascending order, as everybody locks them.
    FOREACH v_blob IN ARRAY p_named LOOP
      PERFORM 1 FROM blob WHERE db = p_db AND blob = v_blob AND sha256 IS NOT NULL FOR KEY SHARE;
      IF NOT FOUND THEN
        v_refusal := ${refusals.contents};
      END IF;
    END LOOP;
  END IF;
  IF v_refusal IS NULL AND p_branched IS NOT NULL AND NOT are_branches_current(p_db, p_branched) THEN
    v_refusal := ${refusals.stale};
  END IF;
  IF v_refusal IS NULL AND cardinality(p_hashes) > 0 THEN
    v_blobs := store_new_contents(p_db, p_hashes, p_digests, p_lengths, p_blob_checksums,
      p_chunk_of, p_positions, p_chunks, p_chunk_checksums);
  END IF;
  IF v_refusal IS NULL AND p_new > 0 THEN
    -- Nobody else adds documents while the database's row is locked. ON CONFLICT would not tell how many rows it adds: Citus counts all.
    PERFORM 1 FROM unnest(p_ids, p_versions) AS w (id, version) ${lookUp('doc', 'k.id = w.id')} AS d WHERE w.version = 0;
    IF FOUND THEN
      v_refusal := ${refusals.stale};
    ELSE
      INSERT INTO doc
        (db, id, seq, version, first_seq, rev, deleted, leaves, place, stored_at, size, attachments, ancestry, body,
          checksum, content_checksum, ancestry_checksum)
        SELECT p_db, w.id, v_base + w.place, v_writes, v_base + w.place, w.rev, w.deleted, 1,
            (v_writes << 16) + w.n - 1, p_now, w.size,
            CASE WHEN v_blobs IS NULL THEN w.attachments ELSE named_blobs(w.attachments, v_blobs) END, w.ancestry, w.body,
            ${docChecksumOf('w.checksum + v_base + w.place + 1')}, w.content_checksum::integer, w.ancestry_checksum::integer
          FROM ${PLAIN}
          WHERE w.version = 0;
    END IF;
  END IF;
  IF v_refusal IS NULL AND p_saved > 0 THEN
    INSERT INTO revision
      (db, id, rev, deleted, leaf, place, stored_at, grown_at, superseded_at, size, attachments, body, content_checksum)
      SELECT p_db, d.id, d.rev, d.deleted, false, d.place, d.stored_at, d.grown_at, p_now, d.size, d.attachments, d.body,
          d.content_checksum
        FROM unnest(p_ids, p_versions, p_revs) AS w (id, version, rev)
          ${lookUp('doc', 'k.id = w.id AND k.version = w.version')} AS d
        WHERE w.version > 0
          AND NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.db = p_db AND r.id = w.id AND r.rev = w.rev OFFSET 0);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows < p_saved THEN
      v_refusal := ${refusals.stale};
      ${deleteFound(
        'revision',
        `SELECT r.tid FROM unnest(p_ids) AS w (id) ${lookUp('doc', 'k.id = w.id')} AS d
          ${lookUp('revision', 'k.id = w.id AND k.rev = d.rev')} AS r`,
      )}
      ${UNDO_NEW}
    END IF;
  END IF;
  IF v_refusal IS NOT NULL THEN
    UPDATE database SET update_seq = update_seq - p_seqs, writes = writes - 1,
      doc_count = doc_count - p_doc_count, deleted_count = deleted_count - p_deleted_count,
      external_bytes = external_bytes - p_external, leaf_bytes = leaf_bytes - p_leaf,
      superseded_bytes = superseded_bytes - p_superseded,
      design_version = design_version - p_designs, settings_version = settings_version - p_designs
      WHERE db = p_db;
    IF v_blobs IS NOT NULL THEN
      -- The contents were stored already. This undoes all of it.
      RAISE EXCEPTION 'a document has changed' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN v_refusal;
  END IF;

  IF p_saved > 0 THEN
    UPDATE doc SET seq = v_base + w.place, version = v_writes, rev = w.rev, deleted = w.deleted,
      place = (v_writes << 16) + w.n - 1, stored_at = p_now, grown_at = NULL, size = w.size,
      attachments = CASE WHEN v_blobs IS NULL THEN w.attachments ELSE named_blobs(w.attachments, v_blobs) END,
      ancestry = w.ancestry, body = w.body, checksum = ${docChecksumOf('w.checksum + v_base + w.place + 1')},
      content_checksum = w.content_checksum::integer, ancestry_checksum = w.ancestry_checksum::integer
      FROM (
        SELECT w.*, d.tid
          FROM ${PLAIN}
            ${lookUp('doc', 'k.id = w.id')} AS d
          WHERE w.version > 0
      ) AS w WHERE doc.db = p_db AND doc.ctid = w.tid;
  END IF;
  IF p_branched IS NOT NULL THEN
    PERFORM write_branches(p_db, p_now, v_base, v_writes, cardinality(p_ids), p_branched, p_branch_bodies, v_blobs);
  END IF;
  IF cardinality(p_use_blobs) > 0 THEN
    INSERT INTO blob_use (db, blob, id, rev)
      SELECT p_db, CASE WHEN u.blob < 0 THEN v_blobs[-u.blob] ELSE u.blob END, u.id, u.rev
        FROM unnest(p_use_blobs, p_use_ids, p_use_revs) AS u (blob, id, rev)
      ON CONFLICT DO NOTHING;
    UPDATE blob SET named = true
      FROM (SELECT b.tid FROM unnest(p_named) AS w (blob) ${lookUp('blob', 'k.blob = w.blob AND NOT k.named')} AS b) AS w
      WHERE blob.db = p_db AND blob.ctid = w.tid;
  END IF;
  INSERT INTO feed_count AS f (db, stretch, rows)
    SELECT p_db, c.stretch, sum(c.rows) FROM (
      SELECT seq >> 10, -1 FROM unnest(p_left) AS l (seq)
      UNION ALL
      SELECT s, least(v_last, (s << 10) + 1023) - greatest(v_base + 1, s << 10) + 1
        FROM generate_series((v_base + 1) >> 10, v_last >> 10) AS s
    ) AS c (stretch, rows) GROUP BY c.stretch HAVING sum(c.rows) <> 0
    ON CONFLICT (db, stretch) DO UPDATE SET rows = f.rows + excluded.rows;
${NOTE_WRITE}
  RETURN v_last;
END $$;
`

/** The rows of each part of `p_branched`. */
const DOCS =
  "json_to_recordset(p_branched->'docs') AS w (id text, version bigint, place bigint, rev text, deleted boolean, checksum bigint)"
const REVISIONS =
  "json_to_recordset(p_branched->'revisions') AS w (id text, rev text, n integer, deleted boolean, leaf boolean, " +
  'size bigint, attachments text, ancestry text, body integer, content_checksum integer, ancestry_checksum integer)'
const REMOVED = "json_to_recordset(p_branched->'removed') AS w (id text, rev text)"
const FORGOTTEN = "json_to_recordset(p_branched->'forgotten') AS w (id text, version bigint)"
const PURGES = "json_to_recordset(p_branched->'purges') AS w (n integer, id text, revs text, checksum bigint)"
/** The revisions that are written or removed, and the winners. */
const TOUCHED = "json_to_recordset(p_branched->'touched') AS w (id text, rev text)"
const THEIR_DOC = `${lookUp('doc', 'k.id = w.id')} AS d`
const THEIR_REVISION = `${lookUp('revision', 'k.id = w.id AND k.rev = w.rev')} AS r`
const ALL_THEIR_REVISIONS = `${lookUp('revision', 'k.id = w.id')} AS r`

/** Whether the documents are as they were decided on, and revisions that bring no content are stored. */
const ARE_BRANCHES_CURRENT = `
CREATE OR REPLACE FUNCTION are_branches_current(p_db bigint, p_branched json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM (SELECT w.id, w.version FROM ${DOCS} UNION ALL SELECT w.id, w.version FROM ${FORGOTTEN}) AS w
    WHERE w.version <> coalesce((SELECT d.version FROM doc AS d WHERE d.db = p_db AND d.id = w.id), 0);
  IF FOUND THEN
    RETURN false;
  END IF;
  PERFORM 1 FROM ${REVISIONS} WHERE w.body IS NULL
    AND (SELECT 1 FROM revision AS r WHERE r.db = p_db AND r.id = w.id AND r.rev = w.rev AND NOT r.retained) IS NULL
    AND (SELECT 1 FROM doc AS d WHERE d.db = p_db AND d.id = w.id AND d.rev = w.rev) IS NULL;
  RETURN NOT FOUND;
END $$;
`

const BYTES = 'revision_bytes(r.id, r.rev, r.ancestry, r.body)'
/** What rows of revisions count, as a list of sums. */
const SUMS = `coalesce(sum(r.size) FILTER (WHERE r.leaf), 0),
    coalesce(sum(${BYTES} - CASE WHEN r.retained THEN octet_length(r.body) ELSE 0 END)
      FILTER (WHERE r.leaf OR r.retained), 0),
    coalesce(sum(${BYTES}) FILTER (WHERE NOT r.leaf AND NOT r.retained), 0),
    coalesce(sum(octet_length(r.body)) FILTER (WHERE r.retained), 0)`

/** Removes what names the blobs of revisions r. */
const forgetUses = (revisions: string) =>
  deleteFound(
    'blob_use',
    `SELECT u.tid FROM ${revisions}
      CROSS JOIN LATERAL json_array_elements(listed_attachments(r.attachments)) AS a (value)
      ${lookUp('blob_use', `k.blob = ${attachmentNumber('a.value', 'blob')} AND k.id = r.id AND k.rev = r.rev`)} AS u
      WHERE r.attachments IS NOT NULL`,
  )

const WRITE_BRANCHES = `
CREATE OR REPLACE FUNCTION write_branches(
  p_db bigint, p_now bigint, p_base bigint, p_writes bigint, p_first integer, p_branched json,
  p_bodies text[], p_blobs bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_before bigint[];
  v_gone bigint[];
  v_after bigint[];
  v_growth record;
  v_loose bigint := 0;
  v_has_attachments boolean;
  v_lost bigint;
  v_named jsonb := p_branched->'named';
  v_purges integer := json_array_length(p_branched->'purges');
  v_purge_seq bigint;
  v_limit integer;
  v_purge_bytes bigint;
BEGIN
  INSERT INTO revision
    (db, id, rev, deleted, leaf, place, stored_at, grown_at, size, attachments, ancestry, body, content_checksum, ancestry_checksum)
    SELECT p_db, d.id, d.rev, d.deleted, true, d.place, d.stored_at, d.grown_at, d.size, d.attachments, d.ancestry, d.body,
        d.content_checksum, d.ancestry_checksum
      FROM (SELECT w.id FROM ${DOCS} UNION ALL SELECT w.id FROM ${FORGOTTEN}) AS w ${THEIR_DOC};

  SELECT ARRAY[${SUMS}], coalesce(bool_or(r.attachments IS NOT NULL), false) INTO v_before, v_has_attachments
    FROM ${TOUCHED} ${THEIR_REVISION};
  v_gone := ARRAY[0, 0, 0, 0];
  IF v_purges > 0 THEN
    SELECT ARRAY[${SUMS}], coalesce(sum(r.size - octet_length(r.body)), 0) INTO v_gone, v_loose
      FROM ${FORGOTTEN} ${ALL_THEIR_REVISIONS};
  END IF;
  IF v_has_attachments THEN
    -- Attachments of content that is removed or replaced, and those that a successor does not name.
    v_loose := v_loose
      + coalesce((SELECT sum(r.size - octet_length(r.body)) FROM ${REMOVED} ${THEIR_REVISION}), 0)
      + coalesce((SELECT sum(r.size - octet_length(r.body)) FROM ${REVISIONS} ${THEIR_REVISION}
          WHERE w.body IS NOT NULL), 0)
      + coalesce((SELECT sum(${attachmentNumber('a.value', 'storedLength')})
          FROM ${REVISIONS} ${THEIR_REVISION} CROSS JOIN LATERAL json_array_elements(listed_attachments(r.attachments)) AS a (value)
          WHERE w.body IS NULL AND NOT w.leaf AND r.leaf AND r.attachments IS NOT NULL
            AND NOT coalesce(v_named->w.id @> to_jsonb(${attachmentNumber('a.value', 'blob')}), false)), 0);
  END IF;
  -- The history before a removed leaf, or before a superseded revision became a leaf again, is not known any more.
  SELECT max(r.superseded_at) INTO v_lost FROM ${REVISIONS} ${THEIR_REVISION} WHERE w.leaf AND NOT r.leaf;

  IF v_purges > 0 THEN
    IF json_array_length(p_branched->'removed') > 0 THEN
      v_lost := p_now;
    END IF;
    ${forgetUses(`${REMOVED} ${THEIR_REVISION}`)}
    ${forgetUses(`${FORGOTTEN} ${ALL_THEIR_REVISIONS}`)}
    ${deleteFound('revision', `SELECT r.tid FROM ${REMOVED} ${THEIR_REVISION}`)}
    ${deleteFound('revision', `SELECT r.tid FROM ${FORGOTTEN} ${ALL_THEIR_REVISIONS}`)}
    ${deleteFound('doc', `SELECT d.tid FROM ${FORGOTTEN} ${THEIR_DOC}`)}
  END IF;

  IF v_has_attachments THEN
    ${forgetUses(`(SELECT r.* FROM ${REVISIONS} ${THEIR_REVISION} WHERE w.body IS NOT NULL) AS r`)}
  END IF;
  INSERT INTO revision AS r
    (db, id, rev, deleted, leaf, place, stored_at, superseded_at, size, attachments, ancestry, body,
      content_checksum, ancestry_checksum)
    SELECT p_db, w.id, w.rev, w.deleted, w.leaf, (p_writes << 16) + p_first + w.n, p_now,
        CASE WHEN NOT w.leaf THEN p_now END, w.size,
        CASE WHEN p_blobs IS NULL THEN w.attachments ELSE named_blobs(w.attachments, p_blobs) END,
        decode(w.ancestry, 'base64'), p_bodies[w.body], w.content_checksum, w.ancestry_checksum
      FROM ${REVISIONS} WHERE w.body IS NOT NULL
    ON CONFLICT (db, id, rev) DO UPDATE SET deleted = excluded.deleted, leaf = excluded.leaf, retained = false,
      -- excluded.stored_at is p_now, which Citus does not know here.
      stored_at = CASE WHEN excluded.leaf AND NOT r.leaf THEN excluded.stored_at ELSE r.stored_at END,
      -- A leaf is written again as a leaf only when its ancestry changes.
      grown_at = CASE WHEN excluded.leaf AND r.leaf THEN excluded.stored_at ELSE r.grown_at END,
      superseded_at = CASE WHEN excluded.leaf THEN NULL WHEN r.leaf THEN excluded.stored_at ELSE r.superseded_at END,
      size = excluded.size, attachments = excluded.attachments, ancestry = excluded.ancestry, body = excluded.body,
      content_checksum = excluded.content_checksum, ancestry_checksum = excluded.ancestry_checksum;
  UPDATE revision AS r SET deleted = w.deleted, leaf = w.leaf, retained = false,
    stored_at = CASE WHEN w.leaf AND NOT r.leaf THEN p_now ELSE r.stored_at END,
    grown_at = CASE WHEN w.leaf AND r.leaf THEN p_now ELSE r.grown_at END,
    superseded_at = CASE WHEN w.leaf THEN NULL WHEN r.leaf THEN p_now ELSE r.superseded_at END,
    ancestry = decode(w.ancestry, 'base64'), ancestry_checksum = w.ancestry_checksum
    FROM (SELECT w.*, r.tid FROM ${REVISIONS} ${THEIR_REVISION} WHERE w.body IS NULL) AS w
    WHERE r.db = p_db AND r.ctid = w.tid;
  SELECT ARRAY[${SUMS}] INTO v_after FROM ${TOUCHED} ${THEIR_REVISION};

  UPDATE doc AS d SET seq = CASE WHEN w.place > 0 THEN p_base + w.place ELSE d.seq END, version = p_writes,
    rev = w.rev, deleted = w.deleted, leaves = w.leaves, place = w.its_place, stored_at = w.stored_at,
    grown_at = w.grown_at, size = w.size, attachments = w.attachments, ancestry = w.ancestry, body = w.body,
    checksum = ${docChecksumOf('w.checksum + CASE WHEN w.place > 0 THEN p_base + w.place ELSE d.seq END + w.leaves')},
    content_checksum = w.content_checksum, ancestry_checksum = w.ancestry_checksum
    FROM (
      SELECT w.*, d.tid, r.place AS its_place, r.stored_at, r.grown_at, r.size, r.attachments, r.ancestry, r.body,
          r.content_checksum, r.ancestry_checksum,
          (SELECT count(*) FROM revision AS l WHERE l.db = p_db AND l.id = w.id AND l.leaf) AS leaves
        FROM ${DOCS} ${THEIR_DOC} ${THEIR_REVISION} WHERE w.version > 0
    ) AS w WHERE d.db = p_db AND d.ctid = w.tid;
  INSERT INTO doc
    (db, id, seq, version, first_seq, rev, deleted, leaves, place, stored_at, grown_at, size, attachments, ancestry, body,
      checksum, content_checksum, ancestry_checksum)
    SELECT p_db, w.id, p_base + w.place, p_writes, p_base + w.place, w.rev, w.deleted, w.leaves,
        r.place, r.stored_at, r.grown_at, r.size, r.attachments, r.ancestry, r.body,
        ${docChecksumOf('w.checksum + p_base + w.place + w.leaves')}, r.content_checksum, r.ancestry_checksum
      FROM (
        SELECT w.*, (SELECT count(*) FROM revision AS l WHERE l.db = p_db AND l.id = w.id AND l.leaf) AS leaves
          FROM ${DOCS} WHERE w.version = 0
      ) AS w ${THEIR_REVISION};
  ${deleteFound('revision', `SELECT r.tid FROM ${DOCS} ${THEIR_REVISION}`)}
  PERFORM 1 FROM ${DOCS}
    WHERE (SELECT 1 FROM doc AS d WHERE d.db = p_db AND d.id = w.id AND d.version = p_writes) IS NULL;
  IF FOUND THEN
    RAISE EXCEPTION 'the winner of a document is not stored';
  END IF;

  SELECT v_after[1] - v_before[1] - v_gone[1] AS external, v_after[2] - v_before[2] - v_gone[2] AS leaf,
    v_after[3] - v_before[3] - v_gone[3] AS superseded, v_after[4] - v_before[4] - v_gone[4] AS retained INTO v_growth;
  UPDATE database SET
    external_bytes = external_bytes + v_growth.external, leaf_bytes = leaf_bytes + v_growth.leaf,
    superseded_bytes = superseded_bytes + v_growth.superseded, retained_bytes = retained_bytes + v_growth.retained,
    loose_bytes = loose_bytes + v_loose, history_since = greatest(history_since, v_lost),
    purge_seq = purge_seq + v_purges
    WHERE db = p_db RETURNING purge_seq, purged_infos_limit INTO v_purge_seq, v_limit;
  IF v_purges > 0 THEN
    SELECT coalesce(sum(purge_bytes(w.id, w.revs)), 0) INTO v_purge_bytes FROM ${PURGES};
    INSERT INTO purge (db, seq, id, revs, checksum)
      SELECT p_db, v_purge_seq - v_purges + w.n, w.id, w.revs, ${wrapped('w.checksum + v_purge_seq - v_purges + w.n')} FROM ${PURGES};
    PERFORM 1 FROM ${PURGES} WHERE w.checksum IS NULL;
    IF FOUND THEN
      ${noteLack('unsummed_others', 'p_db')}
    END IF;
    SELECT v_purge_bytes - coalesce(sum(purge_bytes(id, revs)), 0) INTO v_purge_bytes
      FROM purge WHERE db = p_db AND seq <= v_purge_seq - v_limit;
    DELETE FROM purge WHERE db = p_db AND seq <= v_purge_seq - v_limit;
    UPDATE database SET leaf_bytes = leaf_bytes + v_purge_bytes WHERE db = p_db;
  END IF;
END $$;
`

const SUMMED_GROUP = {
  newer: 'commit_group',
  values: `${firstValues(SUMMED_GROUP_VALUES)}, NULL, NULL`,
  lacks: ['unsummed_others'],
} as const
const OLD_GROUP = {
  newer: 'commit_group',
  values: `${firstValues(OLD_GROUP_VALUES)}, NULL, NULL, NULL, NULL, NULL`,
}

export const WRITE_GROUP_FUNCTIONS =
  ARE_BRANCHES_CURRENT +
  WRITE_BRANCHES +
  COMMIT_GROUP +
  forOlderNodes('write_group', GROUP_PARAMETERS, {
    ...OLD_GROUP,
    lacks: ['uncounted', 'unsummed', 'unsummed_others'],
  }) +
  forOlderNodes('save_group', GROUP_PARAMETERS, { ...OLD_GROUP, lacks: ['unsummed', 'unsummed_others'] }) +
  forOlderNodes('store_group', `${GROUP_PARAMETERS}, ${SUM_PARAMETERS}`, SUMMED_GROUP)
