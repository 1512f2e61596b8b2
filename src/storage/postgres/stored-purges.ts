/** The list of purges: the table `purge`. */
import { CouchError } from '../../core/errors.ts'
import type { PurgeInfo } from '../engine.ts'
import type { OpenDatabase } from './open-database.ts'
import { textOf } from './stored-text.ts'

/** A row without a purge: there is none. */
const READ_PURGES = {
  name: 'read_purges',
  text: `SELECT p.seq, p.id, p.revs FROM database AS d
    LEFT JOIN purge AS p ON p.db = $1 AND p.seq > d.purge_seq - d.purged_infos_limit
    WHERE d.db = $1 ORDER BY p.seq`,
}

/** As {@link DatabaseStore.readPurges}. */
export async function readPurges({ connections, db }: OpenDatabase): Promise<PurgeInfo[]> {
  const rows = await connections.read<[seq: number | null, id: string, revs: string]>({
    ...READ_PURGES,
    values: [db],
  })
  if (rows.length === 0) throw new CouchError('no_database')
  return rows.flatMap(([seq, id, revs]) =>
    seq === null ? [] : { seq, id: textOf(id), revs: JSON.parse(revs) as string[] },
  )
}
