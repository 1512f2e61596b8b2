/**
 * How an index store counts its rows. A bucket is some neighbouring rows, and a superbucket is some neighbouring buckets: so a
 * row key among millions of rows is found in hundreds of steps. Both begin at the row key of their first row, or earlier; the
 * first ones begin before all rows. `nc` is a number of rows as {@link rowCount} reads it, and `m` one of buckets.
 */
import type { Connection } from './connection.ts'
import { COUNT_FACTOR, refuseDamaged, rowCount } from './index-checksums.ts'
import {
  bucketsIn,
  checkedKey,
  END,
  FIRST,
  type OpenIndex,
  proveBuckets,
  proveRows,
  type Superbuckets,
  superbucketOf,
} from './index-proofs.ts'

/** The number of rows in a new bucket; a bucket with more than `most` is split, one with fewer than `least` merged. */
export const BUCKET = { least: 64, usual: 192, most: 256 } as const
/** The number of buckets in a new superbucket; a superbucket with more than `most` is split. */
const SUPERBUCKET = { usual: 64, most: 128 } as const

/** The statements that create the tables of an index. */
export function bucketTables(index: number): string {
  return `
    CREATE TABLE sums_${index} (k BLOB PRIMARY KEY, nc INTEGER, red TEXT, c INTEGER) WITHOUT ROWID;
    CREATE TABLE blocks_${index} (k BLOB PRIMARY KEY, nc INTEGER, m INTEGER) WITHOUT ROWID;`
}

/** The statements that fill these tables for rows that are all there. */
export function countBuckets(
  index: number,
  sizes: { readonly bucket: number; readonly superbucket: number } = {
    bucket: BUCKET.usual,
    superbucket: SUPERBUCKET.usual,
  },
): string {
  const bucket = `(position - 1) / ${sizes.bucket}`
  const superbucket = `(position - 1) / ${sizes.superbucket}`
  return `
    INSERT INTO sums_${index}
    SELECT CASE WHEN ${bucket} = 0 THEN x'' ELSE min(k) END, count(*) * ${COUNT_FACTOR}, NULL, NULL
    FROM (SELECT k, row_number() OVER (ORDER BY k) AS position FROM rows_${index}) GROUP BY ${bucket};
    INSERT INTO sums_${index} SELECT x'', 0, NULL, NULL WHERE NOT EXISTS (SELECT * FROM sums_${index});
    INSERT INTO blocks_${index} SELECT min(k), sum(nc), count(*)
    FROM (SELECT k, nc, row_number() OVER (ORDER BY k) AS position FROM sums_${index}) GROUP BY ${superbucket};`
}

/** The statements that code the numbers of rows of an older settee. */
export function codeCounts(index: number): string {
  const statements = [`sums_${index}`, `blocks_${index}`].map(
    (table) => `ALTER TABLE ${table} RENAME COLUMN n TO nc; UPDATE ${table} SET nc = nc * ${COUNT_FACTOR};`,
  )
  return statements.join('')
}

/** Keeps the counts of an index up to date. All calls are made in an open transaction. */
export class BucketWriter {
  readonly #connection: Connection
  readonly #index: number

  constructor(connection: Connection, index: number) {
    this.#connection = connection
    this.#index = index
  }

  /** Creates the first bucket of a new file, and its superbucket. */
  addFirst(): void {
    this.#addBucket(FIRST, 0)
    this.#connection.prepare(`INSERT INTO blocks_${this.#index} VALUES (?, 0, 1)`).run(FIRST)
  }

  /** Changes the number of rows at a row key by 1, 0 or -1; the reduction of its bucket is no longer true. */
  adjust(rowKey: Uint8Array, by: -1 | 0 | 1): void {
    const adjust = this.#connection.prepareTuples<Counted>(
      `UPDATE sums_${this.#index} SET nc = nc + ?, red = NULL
       WHERE k = (SELECT k FROM sums_${this.#index} WHERE k <= ? ORDER BY k DESC LIMIT 1) RETURNING k, nc`,
    )
    const [start, count] = adjust.get(by * COUNT_FACTOR, rowKey) as Counted
    const rows = rowCount(count)
    if (by === 0) return
    this.#adjustSuperbucket(start, by, 0)
    if (rows > BUCKET.most) this.#split(start, rows)
    if (by < 0 && rows < BUCKET.least) this.#merge(start, rows)
  }

  #split(start: Buffer, rows: number): void {
    const half = rows >> 1
    const middle = keyIn(this.#connection, this.#index, start, half)
    this.#setRows(start, half)
    this.#addBucket(middle, rows - half)
    this.#adjustSuperbucket(start, 0, 1)
  }

  #setRows(bucket: Buffer, rows: number): void {
    this.#connection
      .prepare(`UPDATE sums_${this.#index} SET nc = ? WHERE k = ?`)
      .run(rows * COUNT_FACTOR, bucket)
  }

  #addBucket(start: Uint8Array, rows: number): void {
    this.#connection
      .prepare(`INSERT INTO sums_${this.#index} VALUES (?, ?, NULL, NULL)`)
      .run(start, rows * COUNT_FACTOR)
  }

  /** Joins a bucket with the next, if both together are not too long. */
  #merge(start: Buffer, rows: number): void {
    const next = this.#after(start)
    if (next !== undefined && rows + next[1] <= BUCKET.usual) {
      this.#remove(...next)
      this.#setRows(start, rows + next[1])
      this.#adjustSuperbucket(start, next[1], 0)
    } else if (rows === 0 && start.length > 0) this.#remove(start, 0)
  }

  /** The next bucket and its rows. */
  #after(start: Uint8Array): readonly [start: Buffer, rows: number] | undefined {
    const next = this.#connection
      .prepareTuples<Counted>(`SELECT k, nc FROM sums_${this.#index} WHERE k > ? ORDER BY k LIMIT 1`)
      .get(start)
    return next && [next[0], rowCount(next[1])]
  }

  #remove(start: Buffer, rows: number): void {
    const [superbucket, buckets] = this.#adjustSuperbucket(start, -rows, -1)
    if (buckets === 0) {
      this.#connection.prepare(`DELETE FROM blocks_${this.#index} WHERE k = ?`).run(superbucket)
    } else if (superbucket.equals(start)) {
      // A superbucket begins with its first bucket.
      const [first] = this.#after(start) as [Buffer, number]
      this.#connection.prepare(`UPDATE blocks_${this.#index} SET k = ? WHERE k = ?`).run(first, superbucket)
    }
    this.#connection.prepare(`DELETE FROM sums_${this.#index} WHERE k = ?`).run(start)
  }

  /** Changes the numbers of the superbucket of a bucket. @returns the superbucket, and its buckets */
  #adjustSuperbucket(
    bucket: Uint8Array,
    rows: number,
    buckets: -1 | 0 | 1,
  ): [start: Buffer, buckets: number] {
    const [start, m] = this.#connection
      .prepareTuples<Counted>(
        `UPDATE blocks_${this.#index} SET nc = nc + ?, m = m + ?
         WHERE k = (SELECT k FROM blocks_${this.#index} WHERE k <= ? ORDER BY k DESC LIMIT 1) RETURNING k, m`,
      )
      .get(rows * COUNT_FACTOR, buckets, bucket) as Counted
    if (m > SUPERBUCKET.most) this.#splitSuperbucket(start, m)
    return [start, m]
  }

  #splitSuperbucket(start: Buffer, buckets: number): void {
    const half = buckets >> 1
    const [middle] = this.#connection
      .prepareTuples<[Buffer]>(`SELECT k FROM sums_${this.#index} WHERE k >= ? ORDER BY k LIMIT 1 OFFSET ?`)
      .get(start, half) as [Buffer]
    const counted = sum(
      this.#connection,
      `SELECT total(nc) FROM sums_${this.#index} WHERE k >= ? AND k < ?`,
      start,
      middle,
    )
    this.#connection
      .prepare(
        `INSERT INTO blocks_${this.#index} SELECT ?, nc - ?, m - ? FROM blocks_${this.#index} WHERE k = ?`,
      )
      .run(middle, counted, half, start)
    this.#connection
      .prepare(`UPDATE blocks_${this.#index} SET nc = ?, m = ? WHERE k = ?`)
      .run(counted, half, start)
  }
}

/** A bucket or superbucket as it is stored. */
type Counted = readonly [start: Buffer, count: number]

/** The number of rows before a row key. @throws SqliteError, as {@link keyOfRow}, for a damaged file */
export function countRowsBefore(open: OpenIndex, superbuckets: Superbuckets, rowKey: Uint8Array): number {
  const { bucket, before } = proveRows(open, { from: rowKey, to: rowKey }, 0)
  const superbucket = superbucketOf(superbuckets, bucket)
  const from = superbuckets.starts[superbucket] as Buffer
  const whole = bucketsIn(open, from, bucket)
  proveBuckets(open, superbuckets, { from, to: bucket }, whole)
  return (superbuckets.rowsBefore[superbucket] as number) + whole.rows + before
}

/** The row key of the row behind `count` others; null if there are no more rows. */
export function keyOfRow(open: OpenIndex, superbuckets: Superbuckets, count: number): Uint8Array | null {
  const { connection, index } = open
  const { starts, rowsBefore } = superbuckets
  if (count >= (rowsBefore.at(-1) as number)) return null
  const superbucket = rowsBefore.findLastIndex((before) => before <= count)
  let left = count - (rowsBefore[superbucket] as number)
  const buckets = connection
    .prepareTuples<Counted>(`SELECT k, nc FROM sums_${index} WHERE k >= ? AND k < ? ORDER BY k`)
    .iterate(starts[superbucket] as Buffer, starts[superbucket + 1] ?? END)
  for (const [bucket, nc] of buckets) {
    const rows = rowCount(nc)
    if (left < rows) {
      const rowKey = keyIn(connection, index, bucket, left)
      return countRowsBefore(open, superbuckets, rowKey) === count ? rowKey : refuseDamaged()
    }
    left -= rows
  }
  return refuseDamaged()
}

function keyIn(connection: Connection, index: number, bucket: Buffer, offset: number): Buffer {
  const find = `SELECT k FROM rows_${index} WHERE k >= ? ORDER BY k LIMIT 1 OFFSET ?`
  return checkedKey(connection.prepareTuples<[Buffer]>(find).get(bucket, offset)?.[0])
}

function sum(connection: Connection, sql: string, ...values: Uint8Array[]): number {
  return Number((connection.prepareTuples<[number]>(sql).get(...values) as [number])[0])
}
