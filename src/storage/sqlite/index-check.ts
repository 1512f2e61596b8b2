/** Checks the files of indexes, which may be in use: their pages, each row with its checksum, and the counts of rows. */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Throttle } from '../../core/event-loop.ts'
import { agrees } from '../checksum.ts'
import { keysSum, reductionSum, rowSum } from '../index-rows.ts'
import { openForReading, pageFaults, readable } from './database-check.ts'
import { COUNT_FACTOR, type StoredSum } from './index-checksums.ts'
import { isUnreadable, isUnsummed, type Layout, readLayout, readPosition } from './index-file.ts'
import type { Statement } from './statement.ts'

const SUFFIX = '.sqlite'
/** The pages and counts of a larger file are not checked, since nothing ends a single statement. */
const MAX_PAGES_BYTES = 256 * 1024 * 1024
/** Rows that are read in one transaction; the log of writes cannot be emptied meanwhile. */
const ROWS = 1000

/** The signatures of a folder's index files, in their order. */
export function signaturesIn(folder: string): string[] {
  try {
    const files = readdirSync(folder).filter((file) => file.endsWith(SUFFIX))
    return files.map((file) => file.slice(0, -SUFFIX.length)).sort()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

/**
 * Whether an index file is damaged. One that is replaced while it is read is not.
 * @throws the error of the file system
 */
export function isIndexDamaged(folder: string, signature: string): boolean {
  const path = join(folder, signature + SUFFIX)
  const inode = inodeOf(path)
  return inode !== null && isFaulty(path) && inodeOf(path) === inode && isFaulty(path)
}

function inodeOf(path: string): bigint | null {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino ?? null
}

function isFaulty(path: string): boolean {
  let db: Sqlite.Database | undefined
  try {
    db = openForReading(path)
    return hasFault(db)
  } catch (error) {
    if (isUnreadable(error)) return true
    // It was removed, or is in use.
    if (error instanceof Sqlite.SqliteError) return false
    throw error
  } finally {
    db?.close()
  }
}

type Row = readonly [rowKey: Buffer, keyLength: number, key: string, value: string, sum: number | null]

function hasFault(db: Sqlite.Database): boolean {
  const file = readable(db)
  const bytes = (file.pragma('page_count') as number) * (file.pragma('page_size') as number)
  if (bytes === 0) return false
  const isSmall = bytes <= MAX_PAGES_BYTES
  if (isSmall && pageFaults(file) !== null) return true
  const tuples = <R extends readonly unknown[]>(sql: string) =>
    db.prepare(sql).raw() as unknown as Statement<R>
  const layout = readLayout({ prepareTuples: tuples })
  if (layout === null) return false
  const indexes = Array.from({ length: layout.indexes }, (_, index) => index)
  const isMiscounted = (index: number) => isSmall && hasWrongCounts(db, index, layout)
  // An older settee made no checksums, and this one adds them at the next opening.
  if (layout.version === 'plain') return indexes.some(isMiscounted)
  const mayLack = isUnsummed(file)
  readPosition({ prepareTuples: tuples })
  const isSound = (stored: StoredSum, sum: number) => agrees(stored, sum, mayLack)
  return (
    hasWrongRow<readonly [string, Buffer, number | null]>(db, 'docs', 'id, ks, c', '', ([id, keys, sum]) =>
      isSound(sum, keysSum(id, keys)),
    ) ||
    indexes.some(
      (index) =>
        hasWrongRow<Row>(
          db,
          `rows_${index}`,
          'k, l, key, value, c',
          FIRST,
          ([rowKey, keyLength, keyText, valueText, sum]) =>
            isSound(sum, rowSum({ rowKey, keyLength, keyText, valueText })),
        ) ||
        hasWrongRow<readonly [Buffer, string | null, number | null]>(
          db,
          `sums_${index}`,
          'k, red, c',
          FIRST,
          ([rowKey, red, sum]) => red === null || isSound(sum, reductionSum(rowKey, red)),
        ) ||
        isMiscounted(index),
    )
  )
}

const FIRST = Buffer.alloc(0)

/** @param columns the key first @param first at or before all keys */
function hasWrongRow<R extends readonly [string | Buffer, ...unknown[]]>(
  db: Sqlite.Database,
  table: string,
  columns: string,
  first: string | Buffer,
  isSound: (row: R) => boolean,
): boolean {
  const [key] = columns.split(',')
  const select = (comparison: string) =>
    db
      .prepare(`SELECT ${columns} FROM ${table} WHERE ${key} ${comparison} ? ORDER BY ${key} LIMIT ${ROWS}`)
      .raw()
  const throttle = new Throttle()
  let page = select('>=').all(first) as R[]
  const next = select('>')
  while (page.length > 0) {
    if (!page.every(isSound)) return true
    throttle.pause()
    page = page.length < ROWS ? [] : (next.all((page.at(-1) as R)[0]) as R[])
  }
  return false
}

/** Whether the buckets or superbuckets count other rows than there are. */
function hasWrongCounts(db: Sqlite.Database, index: number, { version }: Layout): boolean {
  const [n, factor] = version === 'coded' ? ['nc', COUNT_FACTOR] : ['n', 1]
  const number = (sql: string) => db.prepare(sql).pluck().get() as number
  db.exec('BEGIN')
  try {
    const rows = number(`SELECT count(*) FROM rows_${index}`)
    const wrong = number(`
      SELECT count(*) FROM (
        SELECT ${n}, k, lead(k) OVER (ORDER BY k) AS next FROM sums_${index}
      ) AS s WHERE ${n} <> ${factor} * (
        SELECT count(*) FROM rows_${index} AS r WHERE r.k >= s.k AND (s.next IS NULL OR r.k < s.next))`)
    const wrongSuperbuckets = number(`
      SELECT count(*) FROM (
        SELECT ${n}, m, k, lead(k) OVER (ORDER BY k) AS next FROM blocks_${index}
      ) AS b WHERE (${n}, m) IS NOT (
        SELECT coalesce(sum(s.${n}), 0), count(*) FROM sums_${index} AS s WHERE s.k >= b.k AND (b.next IS NULL OR s.k < b.next))`)
    const counted = number(`SELECT total(${n}) FROM blocks_${index}`)
    return wrong > 0 || wrongSuperbuckets > 0 || counted !== rows * factor
  } finally {
    if (db.inTransaction) db.exec('ROLLBACK')
  }
}
