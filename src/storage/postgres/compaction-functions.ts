/**
 * The steps of a compaction, as functions of PostgreSQL. Each locks the database's row for some milliseconds, as a write
 * does. A step that a crash of PostgreSQL forgets is done by the next compaction, so none waits for the disk.
 *
 * Removing or retaining superseded revisions does not raise the version of their document. A write that was decided on
 * such a revision finds out when it looks for its row or for its contents.
 *
 * Rows are changed one by one, by their whole key: a plan that joins is made while the tables are empty, and stays.
 */
import { attachmentNumber } from './stored-text.ts'

const REVISIONS = `
-- Removes some of the superseded revisions, the oldest first: those that are retained or those that are not. Returns how
-- many, and their bytes; null if the database is gone.
CREATE OR REPLACE FUNCTION expire_revisions(_db bigint, _retained boolean, _until bigint, _limit bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _found refcursor;
  _row record;
  _blob bigint;
  _rows bigint := 0;
  _bytes bigint := 0;
  _bodies bigint := 0;
  _last bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF _retained THEN
    OPEN _found FOR SELECT id, rev, superseded_at, attachments, octet_length(body) AS body,
        revision_bytes(id, rev, ancestry, body) AS bytes
      FROM revision WHERE db = _db AND retained AND superseded_at <= _until ORDER BY superseded_at LIMIT _limit;
  ELSE
    OPEN _found FOR SELECT id, rev, superseded_at, attachments, octet_length(body) AS body,
        revision_bytes(id, rev, ancestry, body) AS bytes
      FROM revision WHERE db = _db AND NOT leaf AND NOT retained AND superseded_at <= _until ORDER BY superseded_at LIMIT _limit;
  END IF;
  LOOP
    FETCH _found INTO _row;
    EXIT WHEN NOT FOUND;
    DELETE FROM revision WHERE db = _db AND id = _row.id AND rev = _row.rev;
    IF _row.attachments IS NOT NULL THEN
      FOR _blob IN SELECT ${attachmentNumber('value', 'blob')} FROM json_array_elements(listed_attachments(_row.attachments)) LOOP
        DELETE FROM blob_use WHERE db = _db AND blob = _blob AND id = _row.id AND rev = _row.rev;
      END LOOP;
    END IF;
    _rows := _rows + 1;
    _bytes := _bytes + _row.bytes;
    _bodies := _bodies + _row.body;
    _last := _row.superseded_at;
  END LOOP;
  CLOSE _found;
  IF _rows > 0 THEN
    UPDATE database SET history_since = greatest(history_since, _last),
      superseded_bytes = superseded_bytes - CASE WHEN _retained THEN 0 ELSE _bytes END,
      leaf_bytes = leaf_bytes - CASE WHEN _retained THEN _bytes - _bodies ELSE 0 END,
      retained_bytes = retained_bytes - CASE WHEN _retained THEN _bodies ELSE 0 END
      WHERE db = _db;
  END IF;
  RETURN ARRAY[_rows, _bytes];
END $$;

-- retains some of the revisions that were superseded after a time; returns as expire_revisions
CREATE OR REPLACE FUNCTION retain_revisions(_db bigint, _after bigint, _until bigint, _limit bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _row record;
  _rows bigint := 0;
  _bytes bigint := 0;
  _bodies bigint := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  FOR _row IN SELECT id, rev, octet_length(body) AS body, revision_bytes(id, rev, ancestry, body) AS bytes FROM revision
    WHERE db = _db AND NOT leaf AND NOT retained AND superseded_at > _after AND superseded_at <= _until
    ORDER BY superseded_at LIMIT _limit
  LOOP
    UPDATE revision SET retained = true WHERE db = _db AND id = _row.id AND rev = _row.rev;
    _rows := _rows + 1;
    _bytes := _bytes + _row.bytes;
    _bodies := _bodies + _row.body;
  END LOOP;
  IF _rows > 0 THEN
    UPDATE database SET superseded_bytes = superseded_bytes - _bytes, leaf_bytes = leaf_bytes + _bytes - _bodies,
      retained_bytes = retained_bytes + _bodies WHERE db = _db;
  END IF;
  RETURN ARRAY[_rows, _bytes];
END $$;
`

const CUT_PARAMETERS =
  '_db bigint, _winners boolean, _ids text[], _revs text[], _versions bigint[], _ancestries bytea[]'

const ANCESTRIES = `
-- Replaces the ancestries of leaves, winners or others, whose documents still have the version that was read. Returns how many.
CREATE OR REPLACE FUNCTION shorten_ancestries(${CUT_PARAMETERS}, _checksums integer[]) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _version bigint;
  _cut bigint := 0;
  _leaf record;
  _before bigint;
  _saved bigint := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE database SET writes = writes + 1 WHERE db = _db RETURNING writes INTO _version;
  FOR _leaf IN SELECT * FROM unnest(_ids, _revs, _versions, _ancestries, _checksums)
    AS u (id, rev, version, ancestry, checksum)
  LOOP
    SELECT octet_length(ancestry) INTO _before FROM doc
      WHERE db = _db AND id = _leaf.id AND version IN (_leaf.version, _version);
    CONTINUE WHEN NOT FOUND;
    UPDATE doc SET version = _version,
      ancestry = CASE WHEN _winners THEN _leaf.ancestry ELSE ancestry END,
      ancestry_checksum = CASE WHEN _winners THEN _leaf.checksum ELSE ancestry_checksum END
      WHERE db = _db AND id = _leaf.id;
    IF NOT _winners THEN
      SELECT octet_length(ancestry) INTO _before FROM revision
        WHERE db = _db AND id = _leaf.id AND rev = _leaf.rev AND leaf;
      UPDATE revision SET ancestry = _leaf.ancestry, ancestry_checksum = _leaf.checksum
        WHERE db = _db AND id = _leaf.id AND rev = _leaf.rev AND leaf;
    END IF;
    _saved := _saved + coalesce(_before - octet_length(_leaf.ancestry), 0);
    _cut := _cut + 1;
  END LOOP;
  UPDATE database SET leaf_bytes = leaf_bytes - _saved WHERE db = _db;
  RETURN _cut;
END $$;

-- shorten_ancestries for nodes of the version before, which know no checksums
CREATE OR REPLACE FUNCTION cut_ancestries(${CUT_PARAMETERS}) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE database SET unsummed = writes + 1 WHERE db = _db;
  RETURN shorten_ancestries($1, $2, $3, $4, $5, $6, NULL);
END $$;
`

/**
 * A function that stores the checksums of some rows.
 * @param key the columns that name a row, with their types
 * @param note stores `_row.checksum`
 */
function noteFunction(name: string, key: Readonly<Record<string, string>>, note: string): string {
  const columns = { ...key, checksum: 'integer' }
  const names = Object.keys(columns)
  const lists = Object.entries(columns).map(([column, type]) => `_${column}s ${type}[]`)
  return `CREATE OR REPLACE FUNCTION ${name}(
  _db bigint, ${lists.join(', ')}
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _row record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
  FOR _row IN SELECT * FROM unnest(${names.map((column) => `_${column}s`).join(', ')}) AS u (${names.join(', ')}) LOOP${note}
  END LOOP;
END $$;`
}

const CHECKSUMS = `
-- Notes the checksums of winners, with _revs null, or of other revisions, whose documents still have the version that was read.
CREATE OR REPLACE FUNCTION note_checksums(
  _db bigint, _ids text[], _revs text[], _versions bigint[], _attachments text[],
  _rows bigint[], _contents integer[], _ancestries integer[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _row record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
  FOR _row IN SELECT * FROM unnest(_ids, _revs, _versions, _attachments, _rows, _contents, _ancestries)
    AS u (id, rev, version, attachments, checksum, content, ancestry)
  LOOP
    PERFORM FROM doc WHERE db = _db AND id = _row.id AND version = _row.version;
    CONTINUE WHEN NOT FOUND;
    IF _revs IS NULL THEN
      UPDATE doc SET attachments = _row.attachments, checksum = _row.checksum,
        content_checksum = _row.content, ancestry_checksum = _row.ancestry
        WHERE db = _db AND id = _row.id;
    ELSE
      UPDATE revision SET attachments = _row.attachments,
        content_checksum = _row.content, ancestry_checksum = _row.ancestry
        WHERE db = _db AND id = _row.id AND rev = _row.rev;
    END IF;
  END LOOP;
END $$;

-- As note_checksums, of \`_local\` documents.
${noteFunction(
  'note_local_checksums',
  { id: 'text', version: 'bigint' },
  `
    UPDATE local_doc SET checksum = _row.checksum WHERE db = _db AND id = _row.id AND version = _row.version;`,
)}

-- As note_checksums, of remembered purges, which do not change.
${noteFunction(
  'note_purge_checksums',
  { seq: 'bigint' },
  `
    UPDATE purge SET checksum = _row.checksum WHERE db = _db AND seq = _row.seq AND checksum IS NULL;`,
)}

-- Of complete contents, with a position of null, and of chunks. Neither changes.
${noteFunction(
  'note_content_checksums',
  { blob: 'bigint', position: 'bigint' },
  `
    IF _row.position IS NULL THEN
      UPDATE blob SET checksum = _row.checksum
        WHERE db = _db AND blob = _row.blob AND checksum IS NULL AND sha256 IS NOT NULL;
    ELSE
      UPDATE chunk SET checksum = _row.checksum
        WHERE db = _db AND blob = _row.blob AND position = _row.position AND checksum IS NULL;
    END IF;`,
)}
`

const CLAIMS = `
-- Makes an opener the one that compacts. Returns how many compactions have succeeded; null if another compacts and has
-- renewed its claim since _lapsed, or if the database is gone.
CREATE OR REPLACE FUNCTION claim_compaction(_db bigint, _opener text, _at bigint, _lapsed bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _finished bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO compaction AS c (db, opener, renewed_at, done, finished) VALUES (_db, _opener, _at, 0, 0)
    ON CONFLICT (db) DO UPDATE SET opener = excluded.opener, renewed_at = excluded.renewed_at, done = 0
      WHERE c.opener IS NULL OR c.opener = _opener OR c.renewed_at <= _lapsed
    RETURNING finished INTO _finished;
  RETURN _finished;
END $$;
`

export const COMPACTION_FUNCTIONS = REVISIONS + ANCESTRIES + CHECKSUMS + CLAIMS
