/** Counts of changes and of attachments. */
import type { OpenDatabase } from './open-database.ts'

/** Numbers of the feed that are counted together: the table `feed_count`. */
const STRETCH = 1024

/** The rows of the feed above $2: those up to the end of its stretch, $3, and those of all later stretches. */
const COUNT_CHANGES = {
  name: 'count_changes',
  text:
    'SELECT (SELECT count(*) FROM doc x WHERE x.db = $1 AND x.seq > $2 AND x.seq < $3), ' +
    '(SELECT coalesce(sum(c.rows), 0)::bigint FROM feed_count c WHERE c.db = $1 AND c.stretch >= $4)',
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
  const next = Math.floor(seq / STRETCH) + 1
  const values = [db, seq, next * STRETCH, next]
  const [row] = await connections.read<[number, number]>({ ...COUNT_CHANGES, values })
  const [first, later] = row as [number, number]
  return first + later
}

/** As {@link DatabaseStore.countAttachments}. */
export async function countAttachments({ connections, db }: OpenDatabase, most: number): Promise<number> {
  const [row] = await connections.read<[number]>({ ...COUNT_ATTACHMENTS, values: [db, most] })
  return Math.min(most, row?.[0] ?? 0)
}
