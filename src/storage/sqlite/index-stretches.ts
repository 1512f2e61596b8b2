/**
 * How an index store counts its rows. A stretch is some neighbouring rows, and a block is some neighbouring stretches: so a
 * place among millions of rows is found in hundreds of steps. Both begin at the place of their first row, or earlier; the
 * first ones begin before all rows. `nc` is a number of rows as {@link rowCount} reads it, and `m` one of stretches.
 */
import type { Connection } from './connection.ts'
import { COUNT_FACTOR, refuseDamaged, rowCount } from './index-checksums.ts'
import {
  type Blocks,
  blockOf,
  checkedPlace,
  END,
  FIRST,
  type OpenIndex,
  proveRows,
  proveStretches,
  stretchesIn,
} from './index-proofs.ts'

/** The number of rows in a new stretch; a stretch with more than `most` is split, one with fewer than `least` merged. */
export const STRETCH = { least: 64, usual: 192, most: 256 } as const
/** The number of stretches in a new block; a block with more than `most` is split. */
const BLOCK = { usual: 64, most: 128 } as const

/** The statements that create the tables of an index. */
export function stretchTables(index: number): string {
  return `
    CREATE TABLE sums_${index} (k BLOB PRIMARY KEY, nc INTEGER, red TEXT, c INTEGER) WITHOUT ROWID;
    CREATE TABLE blocks_${index} (k BLOB PRIMARY KEY, nc INTEGER, m INTEGER) WITHOUT ROWID;`
}

/** The statements that fill these tables for rows that are all there. */
export function countStretches(
  index: number,
  sizes: { readonly stretch: number; readonly block: number } = {
    stretch: STRETCH.usual,
    block: BLOCK.usual,
  },
): string {
  const stretch = `(position - 1) / ${sizes.stretch}`
  const block = `(position - 1) / ${sizes.block}`
  return `
    INSERT INTO sums_${index}
    SELECT CASE WHEN ${stretch} = 0 THEN x'' ELSE min(k) END, count(*) * ${COUNT_FACTOR}, NULL, NULL
    FROM (SELECT k, row_number() OVER (ORDER BY k) AS position FROM rows_${index}) GROUP BY ${stretch};
    INSERT INTO sums_${index} SELECT x'', 0, NULL, NULL WHERE NOT EXISTS (SELECT * FROM sums_${index});
    INSERT INTO blocks_${index} SELECT min(k), sum(nc), count(*)
    FROM (SELECT k, nc, row_number() OVER (ORDER BY k) AS position FROM sums_${index}) GROUP BY ${block};`
}

/** The statements that code the numbers of rows of an older settee. */
export function codeCounts(index: number): string {
  const statements = [`sums_${index}`, `blocks_${index}`].map(
    (table) => `ALTER TABLE ${table} RENAME COLUMN n TO nc; UPDATE ${table} SET nc = nc * ${COUNT_FACTOR};`,
  )
  return statements.join('')
}

/** Keeps the counts of an index up to date. All calls are made in an open transaction. */
export class StretchWriter {
  readonly #connection: Connection
  readonly #index: number

  constructor(connection: Connection, index: number) {
    this.#connection = connection
    this.#index = index
  }

  /** Creates the first stretch of a new file, and its block. */
  addFirst(): void {
    this.#addStretch(FIRST, 0)
    this.#connection.prepare(`INSERT INTO blocks_${this.#index} VALUES (?, 0, 1)`).run(FIRST)
  }

  /** Changes the number of rows at a place by 1, 0 or -1; the reduction of its stretch is no longer true. */
  adjust(place: Uint8Array, by: -1 | 0 | 1): void {
    const adjust = this.#connection.prepareTuples<Counted>(
      `UPDATE sums_${this.#index} SET nc = nc + ?, red = NULL
       WHERE k = (SELECT k FROM sums_${this.#index} WHERE k <= ? ORDER BY k DESC LIMIT 1) RETURNING k, nc`,
    )
    const [start, count] = adjust.get(by * COUNT_FACTOR, place) as Counted
    const rows = rowCount(count)
    if (by === 0) return
    this.#adjustBlock(start, by, 0)
    if (rows > STRETCH.most) this.#split(start, rows)
    if (by < 0 && rows < STRETCH.least) this.#merge(start, rows)
  }

  #split(start: Buffer, rows: number): void {
    const half = rows >> 1
    const middle = placeIn(this.#connection, this.#index, start, half)
    this.#setRows(start, half)
    this.#addStretch(middle, rows - half)
    this.#adjustBlock(start, 0, 1)
  }

  #setRows(stretch: Buffer, rows: number): void {
    this.#connection
      .prepare(`UPDATE sums_${this.#index} SET nc = ? WHERE k = ?`)
      .run(rows * COUNT_FACTOR, stretch)
  }

  #addStretch(start: Uint8Array, rows: number): void {
    this.#connection
      .prepare(`INSERT INTO sums_${this.#index} VALUES (?, ?, NULL, NULL)`)
      .run(start, rows * COUNT_FACTOR)
  }

  /** Joins a stretch with the next, if both together are not too long. */
  #merge(start: Buffer, rows: number): void {
    const next = this.#after(start)
    if (next !== undefined && rows + next[1] <= STRETCH.usual) {
      this.#remove(...next)
      this.#setRows(start, rows + next[1])
      this.#adjustBlock(start, next[1], 0)
    } else if (rows === 0 && start.length > 0) this.#remove(start, 0)
  }

  /** The next stretch and its rows. */
  #after(start: Uint8Array): readonly [start: Buffer, rows: number] | undefined {
    const next = this.#connection
      .prepareTuples<Counted>(`SELECT k, nc FROM sums_${this.#index} WHERE k > ? ORDER BY k LIMIT 1`)
      .get(start)
    return next && [next[0], rowCount(next[1])]
  }

  #remove(start: Buffer, rows: number): void {
    const [block, stretches] = this.#adjustBlock(start, -rows, -1)
    if (stretches === 0) {
      this.#connection.prepare(`DELETE FROM blocks_${this.#index} WHERE k = ?`).run(block)
    } else if (block.equals(start)) {
      // A block begins with its first stretch.
      const [first] = this.#after(start) as [Buffer, number]
      this.#connection.prepare(`UPDATE blocks_${this.#index} SET k = ? WHERE k = ?`).run(first, block)
    }
    this.#connection.prepare(`DELETE FROM sums_${this.#index} WHERE k = ?`).run(start)
  }

  /** Changes the numbers of the block of a stretch. @returns the block, and its stretches */
  #adjustBlock(stretch: Uint8Array, rows: number, stretches: -1 | 0 | 1): [start: Buffer, stretches: number] {
    const [start, m] = this.#connection
      .prepareTuples<Counted>(
        `UPDATE blocks_${this.#index} SET nc = nc + ?, m = m + ?
         WHERE k = (SELECT k FROM blocks_${this.#index} WHERE k <= ? ORDER BY k DESC LIMIT 1) RETURNING k, m`,
      )
      .get(rows * COUNT_FACTOR, stretches, stretch) as Counted
    if (m > BLOCK.most) this.#splitBlock(start, m)
    return [start, m]
  }

  #splitBlock(start: Buffer, stretches: number): void {
    const half = stretches >> 1
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

/** A stretch or block as it is stored. */
type Counted = readonly [start: Buffer, count: number]

/** The number of rows before a place. @throws SqliteError, as {@link placeOfRow}, for a damaged file */
export function countRowsBefore(open: OpenIndex, blocks: Blocks, place: Uint8Array): number {
  const { stretch, before } = proveRows(open, { from: place, to: place }, 0)
  const block = blockOf(blocks, stretch)
  const from = blocks.starts[block] as Buffer
  const whole = stretchesIn(open, from, stretch)
  proveStretches(open, blocks, { from, to: stretch }, whole)
  return (blocks.rowsBefore[block] as number) + whole.rows + before
}

/** The place of the row behind `count` others; null if there are no more rows. */
export function placeOfRow(open: OpenIndex, blocks: Blocks, count: number): Uint8Array | null {
  const { connection, index } = open
  const { starts, rowsBefore } = blocks
  if (count >= (rowsBefore.at(-1) as number)) return null
  const block = rowsBefore.findLastIndex((before) => before <= count)
  let left = count - (rowsBefore[block] as number)
  const stretches = connection
    .prepareTuples<Counted>(`SELECT k, nc FROM sums_${index} WHERE k >= ? AND k < ? ORDER BY k`)
    .iterate(starts[block] as Buffer, starts[block + 1] ?? END)
  for (const [stretch, nc] of stretches) {
    const rows = rowCount(nc)
    if (left < rows) {
      const place = placeIn(connection, index, stretch, left)
      return countRowsBefore(open, blocks, place) === count ? place : refuseDamaged()
    }
    left -= rows
  }
  return refuseDamaged()
}

function placeIn(connection: Connection, index: number, stretch: Buffer, offset: number): Buffer {
  const find = `SELECT k FROM rows_${index} WHERE k >= ? ORDER BY k LIMIT 1 OFFSET ?`
  return checkedPlace(connection.prepareTuples<[Buffer]>(find).get(stretch, offset)?.[0])
}

function sum(connection: Connection, sql: string, ...values: Uint8Array[]): number {
  return Number((connection.prepareTuples<[number]>(sql).get(...values) as [number])[0])
}
