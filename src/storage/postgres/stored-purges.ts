/** The list of purges: the table `purge`. */
import { CouchError } from '../../core/errors.ts'
import { agrees } from '../checksum.ts'
import type { PurgeInfo } from '../engine.ts'
import type { OpenDatabase } from './open-database.ts'
import { purgeRowSum } from './row-checksums.ts'
import { textOf } from './stored-text.ts'

/** A row without a purge: there is none. */
const READ_PURGES = {
  name: 'read_purges',
  text: `SELECT p.seq, p.id, p.revs, p.checksum FROM database AS d
    LEFT JOIN purge AS p ON p.db = $1 AND p.seq > d.purge_seq - d.purged_infos_limit
    WHERE d.db = $1 ORDER BY p.seq`,
}

type PurgeRow = readonly [seq: number | null, id: string, revs: string, checksum: number | null]

/** As {@link DatabaseStore.readPurges}. A damaged one is as if it had been forgotten. */
export async function readPurges({ connections, db }: OpenDatabase): Promise<PurgeInfo[]> {
  const rows = await connections.read<[...PurgeRow]>({ ...READ_PURGES, values: [db] })
  if (rows.length === 0) throw new CouchError('no_database')
  return rows.flatMap(([seq, storedId, revs, checksum]) => {
    if (seq === null) return []
    const id = textOf(storedId)
    const isSound = agrees(checksum, purgeRowSum({ seq, id, revs }), true)
    return isSound ? { seq, id, revs: JSON.parse(revs) as string[] } : []
  })
}
