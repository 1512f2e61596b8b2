/** The statements that read and change an index store, and the columns that they answer with; see index-tables.ts. */
import type { Statement } from './connections.ts'
import { ADVANCE_VALUES, isSoundState } from './index-tables.ts'
import { firstValues } from './write-functions.ts'

/** An update whose opener has stored no step of it for this long is left to others, in seconds. */
const CLAIM_S = 10
/** Bytes of rows, values and reductions that are read at once. A single one may be longer. */
const MOST_READ_BYTES = 1024 * 1024

export const STATUS: Statement = {
  name: 'index_status',
  text: `SELECT store, version, seq, epoch, purge_seq,
      worker IS NOT NULL AND worker <> $3 AND worked_at > clock_timestamp() - interval '${CLAIM_S} seconds', bytes,
      ${isSoundState('x')}
    FROM index_store x WHERE db = $1 AND signature = $2`,
}

/** The keys of documents that have rows. They are null behind the first $4 bytes of keys. */
export const KEYS: Statement = {
  name: 'index_keys',
  text: `SELECT d.doc, CASE WHEN sum(octet_length(d.keys)) OVER (ORDER BY w.n ROWS UNBOUNDED PRECEDING) - octet_length(d.keys) < $4
      THEN d.keys END, d.checksum
    FROM unnest($3::bytea[]) WITH ORDINALITY AS w (doc, n)
      CROSS JOIN LATERAL (SELECT * FROM index_doc k WHERE k.db = $1 AND k.store = $2 AND k.doc = w.doc OFFSET 0) AS d`,
}

export const UPDATE: Statement = {
  name: 'index_advance',
  text: `SELECT index_advance(${firstValues(ADVANCE_VALUES)})`,
}

export const CLEAR: Statement = { name: 'index_clear', text: 'SELECT index_clear($1, $2, $3, $4, $5)' }

export const COUNTS: Statement = {
  name: 'index_counts',
  text: 'SELECT version, seq, epoch, purge_seq, total, before FROM index_counts($1, $2, $3, $4, $5)',
}

export const ROW_KEY_AT: Statement = {
  name: 'index_place_at',
  text: 'SELECT version, head, tail FROM index_place_at($1, $2, $3, $4)',
}

export const KEEP: Statement = {
  name: 'index_retain',
  text: 'SELECT index_retain($1, $2, $3, $4, $5, $6, $7)',
}

/**
 * Rows of a range with the state of their store; `n` rows were found, and as many are returned as fit. They come out of
 * the B-tree in the order of their heads, and only those at hand are sorted by their tails: to sort the whole range would be
 * the plan that is made while the table is empty.
 */
function rowsStatement(name: string, direction: 'ASC' | 'DESC'): Statement {
  const size = 'octet_length(key) + octet_length(value)'
  const order = `ORDER BY head ${direction}, tail ${direction}`
  return {
    name,
    text: `SELECT s.store, s.version, r.n, r.head, r.tail, r.key_length, r.key, r.value, r.checksum FROM index_store s LEFT JOIN (
        SELECT * FROM (
          SELECT *, sum(${size}) OVER (${order} ROWS UNBOUNDED PRECEDING) - (${size}) AS before, count(*) OVER () AS n
          FROM (
            SELECT * FROM (
              SELECT head, tail, key_length, key, value, checksum FROM index_row
              WHERE db = $1 AND store = $3 AND idx = $4 AND (head, tail) >= ($5, $6) AND (head, tail) < ($7, $8)
              ORDER BY head ${direction} FETCH FIRST ($9) ROWS WITH TIES
            ) near ${order} LIMIT $9
          ) found
        ) sized WHERE before < ${MOST_READ_BYTES}
      ) r ON s.store = $3
      WHERE s.db = $1 AND s.signature = $2 ${order.replaceAll('head', 'r.head').replaceAll('tail', 'r.tail')}`,
  }
}

export const ROWS_UP = rowsStatement('index_rows_up', 'ASC')
export const ROWS_DOWN = rowsStatement('index_rows_down', 'DESC')

/** The buckets of a range, and one more, from the one that has the range's first row key. */
export const REDUCED_RANGES: Statement = {
  name: 'index_parts',
  text: `SELECT s.store, s.version, x.n, x.start, x.rows, x.reduction, x.changed, x.checksum FROM index_store s LEFT JOIN (
      SELECT * FROM (
        SELECT *, sum(coalesce(octet_length(reduction), 0)) OVER (ORDER BY start ROWS UNBOUNDED PRECEDING)
          - coalesce(octet_length(reduction), 0) AS before, count(*) OVER () AS n
        FROM (
          SELECT start, rows, reduction, changed, checksum FROM index_stretch
          WHERE db = $1 AND store = $3 AND idx = $4 AND start < $6 AND start >= (
            SELECT start FROM index_stretch
            WHERE db = $1 AND store = $3 AND idx = $4 AND start <= $5 ORDER BY start DESC LIMIT 1
          )
          ORDER BY start LIMIT $7
        ) found
      ) sized WHERE before < ${MOST_READ_BYTES}
    ) x ON s.store = $3
    WHERE s.db = $1 AND s.signature = $2 ORDER BY x.start`,
}

export type StatusRow = [
  store: number,
  version: number,
  seq: number | null,
  epoch: string | null,
  purgeSeq: number | null,
  isUpdatedElsewhere: boolean,
  bytes: number,
  isSound: boolean,
]

/** The columns of a read before its own: none of them is null if there is a row. */
export type ReadRow<Rest extends readonly unknown[]> = [
  store: number,
  version: number,
  found: number | null,
  ...Rest,
]

export type RowTuple = ReadRow<
  [head: Buffer | null, tail: Buffer, keyLength: number, key: string, value: string, checksum: number | null]
>
export type ReducedRangeTuple = ReadRow<
  [start: Buffer | null, rows: number, reduction: string | null, changed: number, checksum: number | null]
>
