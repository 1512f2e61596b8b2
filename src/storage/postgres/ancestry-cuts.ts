/** Cuts the ancestries of leaves to a limit that was lowered. */
import { Yielder } from '../../core/event-loop.ts'
import { decodeAncestry, encodeAncestry } from '../../revisions/branch.ts'
import { agrees, ancestryChecksum } from '../checksum.ts'
import type { Query, Statement } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import { textOf } from './stored-text.ts'

/** Leaves that one statement reads, each with an ancestry of up to some ten thousand bytes. */
const PAGE = 100
/** How often a page is read whose documents change meanwhile. */
const MAX_TRIES = 10

/** A leaf after another, with its ancestry if that may have more ids than the limit: an id takes at least two bytes. */
const WINNERS = {
  name: 'winner_ancestries',
  text: `SELECT id, rev, version, CASE WHEN octet_length(ancestry) > 2 * $3 THEN ancestry END, deleted, ancestry_checksum
    FROM doc WHERE db = $1 AND id > $2 ORDER BY id LIMIT ${PAGE}`,
}
const OTHERS = {
  name: 'leaf_ancestries',
  text: `SELECT id, rev, (SELECT d.version FROM doc d WHERE d.db = $1 AND d.id = r.id),
      CASE WHEN octet_length(ancestry) > 2 * $3 THEN ancestry END, deleted, ancestry_checksum
    FROM revision r WHERE db = $1 AND leaf AND (id, rev) > ($2, $4) ORDER BY id, rev LIMIT ${PAGE}`,
}
const CUT: Statement = {
  name: 'shorten_ancestries',
  text: 'SELECT shorten_ancestries($1, $2, $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::integer[])',
}

type LeafRow = readonly [
  id: string,
  rev: string,
  version: number,
  ancestry: Buffer | null,
  deleted: boolean,
  checksum: number | null,
]

/**
 * Cuts all ancestries that are longer than a limit.
 * @param step runs one statement that writes
 * @returns false if some documents changed so often that their ancestries were left
 * @throws as {@link Connections.read}, and what `step` throws
 */
export async function cutAncestries(
  database: OpenDatabase,
  revsLimit: number,
  step: (query: Query) => Promise<unknown>,
): Promise<boolean> {
  let isComplete = true
  for (const isWinner of [true, false]) {
    let tries = 0
    for (let last: readonly [string, string] | null = ['', '']; last !== null; ) {
      const rows: LeafRow[] = await database.connections.read(
        pageAfter(database.db, isWinner, last, revsLimit),
      )
      const cut = await cutRows(rows, revsLimit)
      tries += 1
      const isDone = cut.length === 0 || (await step(cutQuery(database.db, isWinner, cut))) === cut.length
      if (!isDone && tries < MAX_TRIES) continue
      isComplete &&= isDone
      tries = 0
      const end = rows.at(-1)
      last = rows.length < PAGE || end === undefined ? null : [end[0], end[1]]
    }
  }
  return isComplete
}

function pageAfter(
  db: number,
  isWinner: boolean,
  [id, rev]: readonly [string, string],
  revsLimit: number,
): Query {
  const values = [db, id, revsLimit]
  return isWinner ? { ...WINNERS, values } : { ...OTHERS, values: [...values, rev] }
}

type CutRow = readonly [id: string, rev: string, version: number, ancestry: Uint8Array, checksum: number]

async function cutRows(rows: readonly LeafRow[], revsLimit: number): Promise<CutRow[]> {
  const cut: CutRow[] = []
  const yielder = new Yielder()
  for (const [id, storedRev, version, ancestry, deleted, checksum] of rows) {
    const rev = textOf(storedRev)
    // A damaged one stays as it is: its document is an error already.
    const isSound = ancestry !== null && agrees(checksum, ancestryChecksum(ancestry, rev, deleted), true)
    const ids = isSound ? decodeAncestry(ancestry) : []
    if (ids.length > revsLimit) {
      const shorter = encodeAncestry(ids.slice(0, revsLimit))
      cut.push([id, storedRev, version, shorter, ancestryChecksum(shorter, rev, deleted)])
    }
    await yielder.yieldIfDue()
  }
  return cut
}

function cutQuery(db: number, isWinner: boolean, rows: readonly CutRow[]): Query {
  const column = (at: number) => rows.map((row) => row[at])
  return { ...CUT, values: [db, isWinner, column(0), column(1), column(2), column(3), column(4)] }
}
