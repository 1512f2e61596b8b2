/**
 * How many bytes the sums of the table `database` count for a row. They include what is stored beside the body, since an id of
 * 2,600 bytes or an ancestry of thousands of revisions is larger than most bodies. Numbers, and what PostgreSQL needs for
 * a row and its places in indexes, are an approximate constant.
 */

/** The constant part of a row with a body. */
export const ROW_BYTES = 200
/** The same for a row without a body: a purge, or the id of a checked checkpoint. */
const SHORT_ROW_BYTES = 100
/** A key is in the row and in its primary key. */
const KEY_TIMES = 2

/** @param lengths of what is stored, in bytes; the key: the id and the revision together @returns as revision_bytes */
export function rowBytes(lengths: {
  readonly key: number
  readonly ancestry: number
  readonly body: number
}): number {
  return lengths.body + lengths.ancestry + KEY_TIMES * lengths.key + ROW_BYTES
}

/** @param id as it is stored @returns as met_bytes */
export function checkedIdBytes(id: string): number {
  return KEY_TIMES * Buffer.byteLength(id) + SHORT_ROW_BYTES
}

export const ROW_FUNCTIONS = `
-- the bytes of a row of doc or revision; of local_doc, without a revision and an ancestry
CREATE OR REPLACE FUNCTION revision_bytes(id text, rev text, ancestry bytea, body text) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN octet_length(body)::bigint + coalesce(octet_length(ancestry), 0)
    + ${KEY_TIMES} * (octet_length(id) + octet_length(rev)) + ${ROW_BYTES};

CREATE OR REPLACE FUNCTION purge_bytes(id text, revs text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN octet_length(id)::bigint + octet_length(revs) + ${SHORT_ROW_BYTES};

-- a list of attachments as doc and revision store it; one that a disk has changed has none
CREATE OR REPLACE FUNCTION listed_attachments(list text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN json_typeof(list::json) = 'array' THEN list::json ELSE '[]' END;
EXCEPTION WHEN invalid_text_representation THEN
  RETURN '[]';
END $$;

CREATE OR REPLACE FUNCTION met_bytes(id text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN ${KEY_TIMES} * octet_length(id)::bigint + ${SHORT_ROW_BYTES};
`
