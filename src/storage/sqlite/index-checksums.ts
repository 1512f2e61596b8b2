/**
 * What an index file has against bytes that a disk changes, beside the checksums of its rows (storage/index-rows.ts): that of its
 * position, and numbers of rows that show whether they are what was written.
 */
import Sqlite from 'better-sqlite3'
import { valueChecksum } from '../checksum.ts'
import type { IndexPosition } from '../index-store.ts'

/** A checksum as it is stored; null in a row of an older settee. */
export type StoredSum = number | null

/** @throws SqliteError: the store empties the file then, as one that SQLite cannot read */
export function refuseDamaged(): never {
  throw new Sqlite.SqliteError('a row of an index is damaged', 'SQLITE_CORRUPT')
}

/** The checksum of a position. */
export function positionSum({ seq, seen, epoch, purgeSeq }: IndexPosition): number {
  return valueChecksum('position', [seq, seen, epoch, purgeSeq].join(' '))
}

/**
 * A number of rows is stored as its multiple of this prime, an AN code: a changed bit leaves a remainder, and the sum of
 * some numbers is checked as easily as one of them.
 */
export const COUNT_FACTOR = 65_521

/**
 * @param stored a number of rows, or a sum of some, times {@link COUNT_FACTOR}
 * @returns the number
 * @throws SqliteError as {@link refuseDamaged}
 */
export function rowCount(stored: unknown): number {
  const rows = typeof stored === 'number' ? stored / COUNT_FACTOR : -1
  return Number.isInteger(rows) && rows >= 0 ? rows : refuseDamaged()
}
