/** The counts and sizes of the documents of a range of ids, from a scan in short turns. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { IdRange, RangeSizes } from '../engine.ts'
import type { Connection } from './connection.ts'
import type { DatabaseAccess } from './database-access.ts'
import { idRange } from './id-pages.ts'

/** How long a scan works before it yields, in ms. */
const TURN_MS = 3
/** Documents that one query reads. */
const DOCS = 50

type Measured = readonly [id: string, deleted: number, external: number, active: number]

/** @param range ascending @throws unavailable when the store is closed */
export async function measureRange(
  connection: Connection,
  access: DatabaseAccess,
  range: IdRange,
): Promise<RangeSizes> {
  const sizes = { docCount: 0, deletedCount: 0, active: 0, external: 0 }
  for (let rest: IdRange | null = range; rest !== null; ) {
    const from: IdRange = rest
    rest = access.read(() => measureTurn(connection, from, sizes))
    if (rest !== null) await nextTurn()
  }
  return sizes
}

/** Adds as many documents as a turn has time for. @returns the rest of the range; null at its end */
function measureTurn(
  connection: Connection,
  range: IdRange,
  sizes: { -readonly [Name in keyof RangeSizes]: RangeSizes[Name] },
): IdRange | null {
  const until = performance.now() + TURN_MS
  for (let rest = range; ; ) {
    const rows = readDocs(connection, rest)
    for (const [, deleted, external, active] of rows) {
      if (deleted) sizes.deletedCount += 1
      else sizes.docCount += 1
      sizes.external += external
      sizes.active += active
    }
    const last = rows.at(-1)
    if (last === undefined || rows.length < DOCS) return null
    rest = { ...rest, start: { id: last[0], inclusive: false } }
    if (performance.now() > until) return rest
  }
}

function readDocs(connection: Connection, range: IdRange): Measured[] {
  const { where, values } = idRange(range, 'id')
  const docs = `SELECT num, id, deleted FROM doc WHERE ${where} ORDER BY id LIMIT ?`
  const attachments =
    'SELECT sum(b.length) FROM attachment AS a CROSS JOIN blob AS b ON b.num = a.blob WHERE a.revision = r.num'
  const active = `octet_length(r.body) + iif(r.attachments > 0, (${attachments}), 0)`
  return connection
    .prepareTuples<Measured>(
      `SELECT d.id, d.deleted, sum(r.size), sum(${active}) FROM (${docs}) AS d ` +
        'CROSS JOIN revision AS r ON r.doc = d.num AND r.leaf GROUP BY d.id ORDER BY d.id',
    )
    .all(...values, DOCS)
}
