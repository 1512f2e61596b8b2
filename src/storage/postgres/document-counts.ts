/** Counts of changes and of attachments. */
import { CouchError } from '../../core/errors.ts'
import type { OpenDatabase } from './open-database.ts'

/** Numbers of the feed that are counted together: the table `feed_count`. */
const STRETCH = 1024

/**
 * The rows of the feed above $2, which lies in the stretch $3: in the newer half of the feed those that follow, and in the
 * older half all but those before. So a device that begins, and one that has almost everything, read few rows of feed_count.
 */
const COUNT_CHANGES = {
  name: 'count_changes',
  text: `SELECT CASE WHEN $3::bigint > d.update_seq / ${2 * STRETCH} THEN
      (SELECT count(*) FROM doc x WHERE x.db = $1 AND x.seq > $2 AND x.seq < ($3 + 1) * ${STRETCH})
      + (SELECT coalesce(sum(c.rows), 0)::bigint FROM feed_count c WHERE c.db = $1 AND c.stretch > $3)
    ELSE d.doc_count + d.deleted_count
      - (SELECT count(*) FROM doc x WHERE x.db = $1 AND x.seq >= $3 * ${STRETCH} AND x.seq <= $2)
      - (SELECT coalesce(sum(c.rows), 0)::bigint FROM feed_count c WHERE c.db = $1 AND c.stretch < $3)
    END FROM database d WHERE d.db = $1`,
}

/**
 * A content of a revision may stand for several attachments of it. Their revisions are found by it, and their attachments
 * counted.
 */
const COUNT_ATTACHMENTS = {
  name: 'count_attachments',
  text:
    'SELECT coalesce(sum((SELECT json_array_length(coalesce(' +
    '(SELECT x.attachments FROM doc x WHERE x.db = $1 AND x.id = u.id AND x.rev = u.rev), ' +
    "(SELECT r.attachments FROM revision r WHERE r.db = $1 AND r.id = u.id AND r.rev = u.rev), '[]')::json))), 0)::bigint " +
    'FROM (SELECT DISTINCT b.id, b.rev FROM (SELECT b.id, b.rev FROM blob_use b WHERE b.db = $1 LIMIT $2) b) u',
}

/** As {@link DatabaseStore.countChanges}. */
export async function countChanges({ connections, db }: OpenDatabase, seq: number): Promise<number> {
  const values = [db, seq, Math.floor(seq / STRETCH)]
  const [row] = await connections.read<[number]>({ ...COUNT_CHANGES, values })
  if (row === undefined) throw new CouchError('no_database')
  return row[0]
}

/** As {@link DatabaseStore.countAttachments}. */
export async function countAttachments({ connections, db }: OpenDatabase, most: number): Promise<number> {
  const [row] = await connections.read<[number]>({ ...COUNT_ATTACHMENTS, values: [db, most] })
  return Math.min(most, row?.[0] ?? 0)
}
