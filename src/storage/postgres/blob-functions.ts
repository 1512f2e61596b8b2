/**
 * What changes blobs and leases, as functions of PostgreSQL: each is one statement for the node, and runs whole on one shard.
 *
 * Locks: the database's row comes first, then blobs in ascending order. Whoever takes a lease or names a blob locks its row
 * with KEY SHARE, and whoever removes it with UPDATE, before it looks for leases and names: so neither misses the other.
 * Whatever adds rows finds the database's row first, since the rows of a deleted database are removed only once.
 *
 * A lease that a crash of PostgreSQL forgets ends early, and a removal that it forgets is repeated, so neither waits for
 * the disk.
 */
import { wrapped } from './row-checksums.ts'
import { firstValues, mendBlob, noteLack, OVER_DAMAGED } from './write-functions.ts'

const CHUNK_PARAMETERS =
  '_db bigint, _blob bigint, _holder text, _position bigint, _first bytea, _second bytea, _third bytea, _fourth bytea'
const WHOLE_PARAMETERS =
  '_db bigint, _blob bigint, _holder text, _at bigint, _sha256 bytea, _digest text, _length bigint, _position bigint, _rest bytea'

const UPLOADS = `
-- makes an empty blob for an upload, with a lease; null if the database is gone
CREATE OR REPLACE FUNCTION begin_upload(_db bigint, _holder text, _at bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _blob bigint;
BEGIN
  UPDATE database SET last_blob = last_blob + 1 WHERE db = _db RETURNING last_blob INTO _blob;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO blob (db, blob, length, named) VALUES (_db, _blob, 0, false);
  INSERT INTO lease (db, holder, blob, renewed_at) VALUES (_db, _holder, _blob, _at);
  RETURN _blob;
END $$;

-- adds up to four chunks from a position on; false if the upload has lost its lease, null if the database is gone;
-- _checksums: with the blob
CREATE OR REPLACE FUNCTION store_chunks(${CHUNK_PARAMETERS}, _checksums bigint[]) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM database WHERE db = _db;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM FROM blob WHERE db = _db AND blob = _blob FOR KEY SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM FROM lease WHERE db = _db AND holder = _holder AND blob = _blob;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO chunk (db, blob, position, data, checksum)
    SELECT _db, _blob, _position + place - 1, data, _checksums[place]
    FROM unnest(ARRAY[_first, _second, _third, _fourth]) WITH ORDINALITY AS piece (data, place)
    WHERE data IS NOT NULL;
  RETURN true;
END $$;

-- completes an upload, or takes a lease on equal content, whose last chunk is replaced if it is damaged; returns the blob, null if
-- the upload has lost its lease; _sum, _rest_sum: the checksums of the blob and of its last chunk, without the blob
CREATE OR REPLACE FUNCTION complete_upload(${WHOLE_PARAMETERS}, _sum bigint, _rest_sum bigint) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _known bigint;
BEGIN
  LOOP
    SELECT blob INTO _known FROM blob WHERE db = _db AND sha256 = _sha256 FOR KEY SHARE;
    IF FOUND THEN
      INSERT INTO lease (db, holder, blob, renewed_at) VALUES (_db, _holder, _known, _at) ON CONFLICT DO NOTHING;
      IF octet_length(_rest) > 0 THEN
        INSERT INTO chunk (db, blob, position, data, checksum)
          VALUES (_db, _known, _position, _rest, ${wrapped('_rest_sum + _known')})
          ${OVER_DAMAGED};
      END IF;
      ${mendBlob({ db: '_db', blob: '_known', digest: '_digest', length: '_length', sum: '_sum' })}
      RETURN _known;
    END IF;
    BEGIN
      PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
      IF NOT FOUND THEN RETURN NULL; END IF;
      PERFORM FROM blob WHERE db = _db AND blob = _blob FOR UPDATE;
      IF NOT FOUND THEN RETURN NULL; END IF;
      PERFORM FROM lease WHERE db = _db AND holder = _holder AND blob = _blob;
      IF NOT FOUND THEN RETURN NULL; END IF;
      UPDATE blob SET sha256 = _sha256, digest = _digest, length = _length, checksum = ${wrapped('_sum + _blob')}
        WHERE db = _db AND blob = _blob;
      IF octet_length(_rest) > 0 THEN
        INSERT INTO chunk (db, blob, position, data, checksum)
          VALUES (_db, _blob, _position, _rest, ${wrapped('_rest_sum + _blob')});
      END IF;
      UPDATE database SET blob_bytes = blob_bytes + _length WHERE db = _db;
      RETURN _blob;
    EXCEPTION WHEN unique_violation THEN
      -- Another upload of equal content was completed in this moment.
    END;
  END LOOP;
END $$;

-- replaces those of some chunks of a content that are not what an upload has, which has the same content and both leases
CREATE OR REPLACE FUNCTION mend_chunks(_db bigint, _upload bigint, _blob bigint, _holder text, _position bigint, _chunks bigint)
RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM database WHERE db = _db;
  PERFORM FROM lease WHERE db = _db AND holder = _holder AND blob = _blob;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO chunk (db, blob, position, data, checksum)
    SELECT _db, _blob, u.position, u.data, ${wrapped('u.checksum::bigint - _upload + _blob')}
      FROM chunk AS u WHERE u.db = _db AND u.blob = _upload AND u.position >= _position AND u.position < _position + _chunks
    ${OVER_DAMAGED};
END $$;

-- for nodes of earlier versions, which know no checksums of contents
CREATE OR REPLACE FUNCTION add_chunks(${CHUNK_PARAMETERS}) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  ${noteLack('unsummed_others', '_db')}
  RETURN store_chunks(${firstValues(8)}, NULL);
END $$;

CREATE OR REPLACE FUNCTION finish_upload(${WHOLE_PARAMETERS}) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  ${noteLack('unsummed_others', '_db')}
  RETURN complete_upload(${firstValues(9)}, NULL, NULL);
END $$;
`

const LEASES = `
-- takes a lease on a complete blob; null if there is none
CREATE OR REPLACE FUNCTION hold_blob(_db bigint, _blob bigint, _holder text, _at bigint) RETURNS json
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _row record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT digest, length, encode(sha256, 'hex') AS sha256, checksum INTO _row FROM blob
    WHERE db = _db AND blob = _blob AND sha256 IS NOT NULL AND EXISTS (SELECT FROM database d WHERE d.db = _db)
    FOR KEY SHARE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO lease (db, holder, blob, renewed_at) VALUES (_db, _holder, _blob, _at);
  RETURN row_to_json(_row);
END $$;

-- ends the leases of a holder; returns the blobs that no revision has named
CREATE OR REPLACE FUNCTION end_leases(_db bigint, _holder text) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _number bigint;
  _unnamed bigint[] := '{}';
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR _number IN DELETE FROM lease WHERE db = _db AND holder = _holder RETURNING blob LOOP
    PERFORM FROM blob WHERE db = _db AND blob = _number AND NOT named;
    IF FOUND THEN _unnamed := _unnamed || _number; END IF;
  END LOOP;
  RETURN _unnamed;
END $$;

-- renews the leases of some holders
CREATE OR REPLACE FUNCTION renew_leases(_db bigint, _holders text[], _at bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _one text;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOREACH _one IN ARRAY _holders LOOP
    UPDATE lease SET renewed_at = _at WHERE db = _db AND holder = _one;
  END LOOP;
END $$;
`

const REMOVAL = `
-- Marks those of some blobs that nobody holds for removal: only those that no revision has ever named, or with _named all
-- that none names now. Leases that were not renewed since _lapsed have ended. Returns the marked blobs.
CREATE OR REPLACE FUNCTION abandon_blobs(_db bigint, _blobs bigint[], _lapsed bigint, _named boolean) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _number bigint;
  _row record;
  _freed bigint := 0;
  _marked bigint[] := '{}';
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM database WHERE db = _db FOR NO KEY UPDATE;
  FOR _number IN SELECT number FROM unnest(_blobs) number ORDER BY number LOOP
    SELECT sha256, length, named INTO _row FROM blob WHERE db = _db AND blob = _number FOR UPDATE;
    CONTINUE WHEN NOT FOUND OR _row.named AND NOT _named;
    DELETE FROM lease WHERE db = _db AND blob = _number AND renewed_at <= _lapsed;
    CONTINUE WHEN EXISTS (SELECT FROM lease WHERE db = _db AND blob = _number)
      OR EXISTS (SELECT FROM blob_use WHERE db = _db AND blob = _number);
    IF _row.sha256 IS NOT NULL THEN
      UPDATE blob SET sha256 = NULL, digest = NULL, checksum = NULL, named = false WHERE db = _db AND blob = _number;
      _freed := _freed + _row.length;
    END IF;
    _marked := _marked || _number;
  END LOOP;
  IF _freed > 0 THEN
    UPDATE database SET blob_bytes = blob_bytes - _freed WHERE db = _db;
  END IF;
  RETURN _marked;
END $$;

-- removes marked blobs, and of each at most so many chunks, from a position on; returns the blobs that have more
CREATE OR REPLACE FUNCTION remove_blobs(_db bigint, _blobs bigint[], _position bigint, _chunks bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  _number bigint;
  _left bigint[] := '{}';
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR _number IN SELECT number FROM unnest(_blobs) number ORDER BY number LOOP
    PERFORM FROM blob WHERE db = _db AND blob = _number AND sha256 IS NULL FOR UPDATE;
    CONTINUE WHEN NOT FOUND OR EXISTS (SELECT FROM lease WHERE db = _db AND blob = _number);
    DELETE FROM chunk WHERE db = _db AND blob = _number AND position >= _position AND position < _position + _chunks;
    IF EXISTS (SELECT FROM chunk WHERE db = _db AND blob = _number AND position >= _position + _chunks) THEN
      _left := _left || _number;
    ELSE
      DELETE FROM blob WHERE db = _db AND blob = _number;
    END IF;
  END LOOP;
  RETURN _left;
END $$;
`

export const BLOB_FUNCTIONS = UPLOADS + LEASES + REMOVAL
