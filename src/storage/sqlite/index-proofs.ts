/**
 * Whether what a search of an index file has found is what was asked for, and all of it. SQLite searches by keys and pages
 * that have no checksum, so damage leads it past rows, or to others. Rows prove themselves and their order. That none
 * is missing is proven by the counts of the level above (index-stretches.ts), which are in other pages: those of stretches
 * for rows, those of blocks for stretches, and the number of all stretches for blocks.
 */
import { agrees } from '../checksum.ts'
import { type PlacedRow, rowSum } from '../index-rows.ts'
import type { Connection } from './connection.ts'
import { refuseDamaged, rowCount, type StoredSum } from './index-checksums.ts'

/** The place of the first stretch, before all rows. */
export const FIRST = new Uint8Array(0)
/** The places of the rows of a range are compared with this one where it has no end: no key begins with it. */
export const END = Uint8Array.of(0xff, 0xff)

export type RowTuple = [
  hexPlace: string | null,
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

/** The places `from <= k < to`. */
export interface Places {
  readonly from: Uint8Array
  readonly to: Uint8Array
}

/** A place that was read. @throws SqliteError, as all that follow, for a damaged file */
export function checkedPlace(stored: unknown): Buffer {
  return Buffer.isBuffer(stored) ? stored : refuseDamaged()
}

/** The rows that a statement has found in a range, in its order. */
export function checkedRows(
  tuples: readonly RowTuple[],
  { from, to }: Places,
  descending: boolean,
  mayLack: boolean,
): PlacedRow[] {
  // The digits of places are in the order of their bytes.
  let last: string | null = null
  const rows: PlacedRow[] = []
  for (const tuple of tuples) {
    const row = checkedRow(tuple, mayLack)
    const place = tuple[0] as string
    if (last !== null && (descending ? place >= last : place <= last)) refuseDamaged()
    last = place
    rows.push(row)
  }
  const ends = [rows[0], rows.at(-1)]
  const [low, high] = descending ? ends.reverse() : ends
  if (low === undefined || high === undefined) return rows
  if (Buffer.compare(low.place, from) < 0 || Buffer.compare(high.place, to) >= 0) refuseDamaged()
  return rows
}

function checkedRow([hexPlace, keyLength, keyText, valueText, sum]: RowTuple, mayLack: boolean): PlacedRow {
  // One changed bit of a row can make a text of bytes.
  if (hexPlace === null) refuseDamaged()
  const row = { place: Buffer.from(hexPlace, 'hex'), keyLength, keyText, valueText }
  if (!agrees(sum, rowSum(row), mayLack)) refuseDamaged()
  return row
}

/** The stretch that a place is in. */
export function stretchOf({ connection, index }: OpenIndex, place: Uint8Array): Buffer {
  const find = `SELECT k FROM sums_${index} WHERE k <= ? ORDER BY k DESC LIMIT 1`
  const start = checkedPlace(connection.prepareTuples<[Buffer]>(find).get(place)?.[0])
  return Buffer.compare(start, place) <= 0 ? start : refuseDamaged()
}

/**
 * Refuses a range that has other rows than a search has found there. Of an empty one, this is a proof of where it is.
 * @param found their number
 * @returns the stretch in which the range begins, and the number of its rows before that
 */
export function proveRows(
  open: OpenIndex,
  { from, to }: Places,
  found: number,
): { readonly stretch: Uint8Array; readonly before: number } {
  const { connection, index } = open
  type Stretch = readonly [start: unknown, rows: number]
  const select = `SELECT k, nc FROM sums_${index} WHERE k >= ?`
  // A range is mostly one stretch.
  const [own, next] = connection.prepareTuples<Stretch>(`${select} ORDER BY k LIMIT 2`).all(from)
  if (own !== undefined && isEqual(checkedPlace(own[0]), from) && isEqual(startOrEnd(next), to))
    return rowCount(own[1]) === found ? { stretch: from, before: 0 } : refuseDamaged()
  const stretch = stretchOf(open, from)
  const sum = connection.prepareTuples<[number]>(`SELECT total(nc) FROM sums_${index} WHERE k >= ? AND k < ?`)
  const end = startOrEnd(connection.prepareTuples<Stretch>(`${select} ORDER BY k LIMIT 1`).get(to))
  const before = countIn(open, stretch, from)
  if (rowCount(sum.get(stretch, to)?.[0]) !== before + found + countIn(open, to, end)) refuseDamaged()
  // A place that is damaged may have left the range, or come into it.
  if (!isEqual(stretch, from)) checkRowAt(open, 'k < ? ORDER BY k DESC', from)
  if (!isEqual(to, end)) checkRowAt(open, 'k >= ? ORDER BY k', to)
  return { stretch, before }
}

function startOrEnd(row: readonly [start: unknown, ...unknown[]] | undefined): Uint8Array {
  return row === undefined ? END : checkedPlace(row[0])
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0
}

function checkRowAt({ connection, index, mayLack }: OpenIndex, where: string, place: Uint8Array): void {
  const row = connection
    .prepareTuples<RowTuple>(`SELECT ${COLUMNS} FROM rows_${index} WHERE ${where} LIMIT 1`)
    .get(place)
  if (row !== undefined) checkedRow(row, mayLack)
}

/** The number of rows with `from <= k < to`, as a search finds it. */
function countIn({ connection, index }: OpenIndex, from: Uint8Array, to: Uint8Array): number {
  const count = `SELECT count(*) FROM rows_${index} WHERE k >= ? AND k < ?`
  return Buffer.compare(from, to) >= 0
    ? 0
    : (connection.prepareTuples<[number]>(count).get(from, to)?.[0] ?? 0)
}

/** The blocks of an index, in their order. */
export interface Blocks {
  readonly starts: readonly Buffer[]
  /** The numbers of rows, and of stretches, before each of them, and those of the index at the end. */
  readonly rowsBefore: readonly number[]
  readonly stretchesBefore: readonly number[]
}

/** Takes 0.4 us for a block. */
export function readBlocks({ connection, index }: OpenIndex): Blocks {
  const starts: Buffer[] = []
  const [rowsBefore, stretchesBefore] = [[0], [0]]
  let [rows, stretches] = [0, 0]
  const blocks = connection
    .prepareTuples<[unknown, number, number]>(`SELECT k, nc, m FROM blocks_${index} ORDER BY k`)
    .all()
  for (const [at, [stored, nc, m]] of blocks.entries()) {
    const start = checkedPlace(stored)
    if (at === 0 ? start.length > 0 : Buffer.compare(start, starts[at - 1] as Buffer) <= 0) refuseDamaged()
    starts.push(start)
    rows += rowCount(nc)
    stretches += m
    rowsBefore.push(rows)
    stretchesBefore.push(stretches)
  }
  const counted = connection.prepareTuples<[number]>(`SELECT count(*) FROM sums_${index}`).get()
  return counted?.[0] === stretches ? { starts, rowsBefore, stretchesBefore } : refuseDamaged()
}

/** The number of the block that a place is in. */
export function blockOf({ starts }: Blocks, place: Uint8Array): number {
  let [low, high] = [0, starts.length]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (Buffer.compare(starts[middle] as Buffer, place) <= 0) low = middle
    else high = middle
  }
  return low
}

/**
 * Refuses a range that has other stretches than a search has found there.
 * @param range from the start of a stretch to that of another one, or to the end
 * @param found their number, and that of their rows
 */
export function proveStretches(
  open: OpenIndex,
  blocks: Blocks,
  { from, to }: Places,
  found: Stretches,
): void {
  if (Buffer.compare(from, to) >= 0) return
  const first = blockOf(blocks, from)
  const last = blockOf(blocks, to)
  // The block in which the range ends may begin there.
  const end = isEqual(blocks.starts[last] as Buffer, to) ? last : last + 1
  const { starts, rowsBefore, stretchesBefore } = blocks
  const others = [stretchesIn(open, starts[first] as Buffer, from), stretchesIn(open, to, starts[end] ?? END)]
  const sum = (what: 'rows' | 'stretches') => others.reduce((total, each) => total + each[what], found[what])
  const between = (before: readonly number[]) => (before[end] as number) - (before[first] as number)
  if (sum('rows') !== between(rowsBefore) || sum('stretches') !== between(stretchesBefore)) refuseDamaged()
}

/** Numbers of stretches, and of their rows. */
export interface Stretches {
  readonly stretches: number
  readonly rows: number
}

/** The stretches with `from <= k < to`, as a search finds them. */
export function stretchesIn({ connection, index }: OpenIndex, from: Uint8Array, to: Uint8Array): Stretches {
  const select = `SELECT total(nc), count(*) FROM sums_${index} WHERE k >= ? AND k < ?`
  const [nc, stretches] = connection.prepareTuples<[number, number]>(select).get(from, to) as [number, number]
  return { stretches, rows: rowCount(nc) }
}
