/**
 * Whether what a search of an index file has found is what was asked for, and all of it. SQLite searches by keys and pages
 * that have no checksum, so damage leads it past rows, or to others. Rows prove themselves and their order. That none
 * is missing is proven by the counts of the level above (index-buckets.ts), which are in other pages: those of buckets
 * for rows, those of superbuckets for buckets, and the number of all buckets for superbuckets.
 */
import { agrees } from '../checksum.ts'
import { type KeyedRow, rowSum } from '../index-rows.ts'
import type { Connection } from './connection.ts'
import { refuseDamaged, rowCount, type StoredSum } from './index-checksums.ts'

/** The row key of the first bucket, before all rows. */
export const FIRST = new Uint8Array(0)
/** The row keys of the rows of a range are compared with this one where it has no end: no key begins with it. */
export const END = Uint8Array.of(0xff, 0xff)

export type RowTuple = [
  hexKey: string | null,
  keyLength: number,
  keyText: string,
  valueText: string,
  sum: StoredSum,
]

/** The driver takes 750 ns to make a Buffer of a column; a text, and a Buffer of it from the pool of Node, together take 300 ns. */
export const COLUMNS = "iif(typeof(k) = 'blob', hex(k), NULL), l, key, value, c"

/** An index of an open file. */
export interface OpenIndex {
  readonly connection: Connection
  readonly index: number
  /** Whether rows may lack their checksums. */
  readonly mayLack: boolean
}

/** The row keys `from <= k < to`. */
export interface KeyBounds {
  readonly from: Uint8Array
  readonly to: Uint8Array
}

/** A row key that was read. @throws SqliteError, as all that follow, for a damaged file */
export function checkedKey(stored: unknown): Buffer {
  return Buffer.isBuffer(stored) ? stored : refuseDamaged()
}

/** The rows that a statement has found in a range, in its order. */
export function checkedRows(
  tuples: readonly RowTuple[],
  { from, to }: KeyBounds,
  descending: boolean,
  mayLack: boolean,
): KeyedRow[] {
  // The digits of row keys are in the order of their bytes.
  let last: string | null = null
  const rows: KeyedRow[] = []
  for (const tuple of tuples) {
    const row = checkedRow(tuple, mayLack)
    const rowKey = tuple[0] as string
    if (last !== null && (descending ? rowKey >= last : rowKey <= last)) refuseDamaged()
    last = rowKey
    rows.push(row)
  }
  const ends = [rows[0], rows.at(-1)]
  const [low, high] = descending ? ends.reverse() : ends
  if (low === undefined || high === undefined) return rows
  if (Buffer.compare(low.rowKey, from) < 0 || Buffer.compare(high.rowKey, to) >= 0) refuseDamaged()
  return rows
}

function checkedRow([hexKey, keyLength, keyText, valueText, sum]: RowTuple, mayLack: boolean): KeyedRow {
  // One changed bit of a row can make a text of bytes.
  if (hexKey === null) refuseDamaged()
  const row = { rowKey: Buffer.from(hexKey, 'hex'), keyLength, keyText, valueText }
  if (!agrees(sum, rowSum(row), mayLack)) refuseDamaged()
  return row
}

/** The bucket that a row key is in. */
export function bucketOf({ connection, index }: OpenIndex, rowKey: Uint8Array): Buffer {
  const find = `SELECT k FROM sums_${index} WHERE k <= ? ORDER BY k DESC LIMIT 1`
  const start = checkedKey(connection.prepareTuples<[Buffer]>(find).get(rowKey)?.[0])
  return Buffer.compare(start, rowKey) <= 0 ? start : refuseDamaged()
}

/**
 * Refuses a range that has other rows than a search has found there. Of an empty one, this is a proof of where it is.
 * @param found their number
 * @returns the bucket in which the range begins, and the number of its rows before that
 */
export function proveRows(
  open: OpenIndex,
  { from, to }: KeyBounds,
  found: number,
): { readonly bucket: Uint8Array; readonly before: number } {
  const { connection, index } = open
  type Bucket = readonly [start: unknown, rows: number]
  const select = `SELECT k, nc FROM sums_${index} WHERE k >= ?`
  // A range is mostly one bucket.
  const [own, next] = connection.prepareTuples<Bucket>(`${select} ORDER BY k LIMIT 2`).all(from)
  if (own !== undefined && isEqual(checkedKey(own[0]), from) && isEqual(startOrEnd(next), to))
    return rowCount(own[1]) === found ? { bucket: from, before: 0 } : refuseDamaged()
  const bucket = bucketOf(open, from)
  const sum = connection.prepareTuples<[number]>(`SELECT total(nc) FROM sums_${index} WHERE k >= ? AND k < ?`)
  const end = startOrEnd(connection.prepareTuples<Bucket>(`${select} ORDER BY k LIMIT 1`).get(to))
  const before = countIn(open, bucket, from)
  if (rowCount(sum.get(bucket, to)?.[0]) !== before + found + countIn(open, to, end)) refuseDamaged()
  // A row key that is damaged may have left the range, or come into it.
  if (!isEqual(bucket, from)) checkRowAt(open, 'k < ? ORDER BY k DESC', from)
  if (!isEqual(to, end)) checkRowAt(open, 'k >= ? ORDER BY k', to)
  return { bucket, before }
}

function startOrEnd(row: readonly [start: unknown, ...unknown[]] | undefined): Uint8Array {
  return row === undefined ? END : checkedKey(row[0])
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0
}

function checkRowAt({ connection, index, mayLack }: OpenIndex, where: string, rowKey: Uint8Array): void {
  const row = connection
    .prepareTuples<RowTuple>(`SELECT ${COLUMNS} FROM rows_${index} WHERE ${where} LIMIT 1`)
    .get(rowKey)
  if (row !== undefined) checkedRow(row, mayLack)
}

/** The number of rows with `from <= k < to`, as a search finds it. */
function countIn({ connection, index }: OpenIndex, from: Uint8Array, to: Uint8Array): number {
  const count = `SELECT count(*) FROM rows_${index} WHERE k >= ? AND k < ?`
  return Buffer.compare(from, to) >= 0
    ? 0
    : (connection.prepareTuples<[number]>(count).get(from, to)?.[0] ?? 0)
}

/** The superbuckets of an index, in their order. */
export interface Superbuckets {
  readonly starts: readonly Buffer[]
  /** The numbers of rows, and of buckets, before each of them, and those of the index at the end. */
  readonly rowsBefore: readonly number[]
  readonly bucketsBefore: readonly number[]
}

/** Takes 0.4 us for a superbucket. */
export function readSuperbuckets({ connection, index }: OpenIndex): Superbuckets {
  const starts: Buffer[] = []
  const [rowsBefore, bucketsBefore] = [[0], [0]]
  let [rows, buckets] = [0, 0]
  const superbuckets = connection
    .prepareTuples<[unknown, number, number]>(`SELECT k, nc, m FROM blocks_${index} ORDER BY k`)
    .all()
  for (const [at, [stored, nc, m]] of superbuckets.entries()) {
    const start = checkedKey(stored)
    if (at === 0 ? start.length > 0 : Buffer.compare(start, starts[at - 1] as Buffer) <= 0) refuseDamaged()
    starts.push(start)
    rows += rowCount(nc)
    buckets += m
    rowsBefore.push(rows)
    bucketsBefore.push(buckets)
  }
  const counted = connection.prepareTuples<[number]>(`SELECT count(*) FROM sums_${index}`).get()
  return counted?.[0] === buckets ? { starts, rowsBefore, bucketsBefore } : refuseDamaged()
}

/** The number of the superbucket that a row key is in. */
export function superbucketOf({ starts }: Superbuckets, rowKey: Uint8Array): number {
  let [low, high] = [0, starts.length]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (Buffer.compare(starts[middle] as Buffer, rowKey) <= 0) low = middle
    else high = middle
  }
  return low
}

/**
 * Refuses a range that has other buckets than a search has found there.
 * @param range from the start of a bucket to that of another one, or to the end
 * @param found their number, and that of their rows
 */
export function proveBuckets(
  open: OpenIndex,
  superbuckets: Superbuckets,
  { from, to }: KeyBounds,
  found: Buckets,
): void {
  if (Buffer.compare(from, to) >= 0) return
  const first = superbucketOf(superbuckets, from)
  const last = superbucketOf(superbuckets, to)
  // The superbucket in which the range ends may begin there.
  const end = isEqual(superbuckets.starts[last] as Buffer, to) ? last : last + 1
  const { starts, rowsBefore, bucketsBefore } = superbuckets
  const others = [bucketsIn(open, starts[first] as Buffer, from), bucketsIn(open, to, starts[end] ?? END)]
  const sum = (what: 'rows' | 'buckets') => others.reduce((total, each) => total + each[what], found[what])
  const between = (before: readonly number[]) => (before[end] as number) - (before[first] as number)
  if (sum('rows') !== between(rowsBefore) || sum('buckets') !== between(bucketsBefore)) refuseDamaged()
}

/** Numbers of buckets, and of their rows. */
export interface Buckets {
  readonly buckets: number
  readonly rows: number
}

/** The buckets with `from <= k < to`, as a search finds them. */
export function bucketsIn({ connection, index }: OpenIndex, from: Uint8Array, to: Uint8Array): Buckets {
  const select = `SELECT total(nc), count(*) FROM sums_${index} WHERE k >= ? AND k < ?`
  const [nc, buckets] = connection.prepareTuples<[number, number]>(select).get(from, to) as [number, number]
  return { buckets, rows: rowCount(nc) }
}
