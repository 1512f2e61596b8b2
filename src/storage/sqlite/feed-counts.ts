/**
 * How many rows of the feed lie above a number, without counting them: `pending` must cost the same at a million
 * documents as at ten thousand. Level L holds, for each stretch of 1024^L numbers, how many documents stand in
 * it; a count adds whole stretches of each level and counts rows only in the last, partial stretch of 1024.
 */
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

const FANOUT = 1024
/** 1024^5 is above the largest number that JavaScript counts exactly, less a factor of eight. */
const LEVELS = [1, 2, 3, 4]

export class FeedCounts {
  readonly #add: Statement
  readonly #sum: Statement<{ n: number | null }>
  readonly #rows: Statement<{ n: number }>
  /** By how much stretches of level 1 have changed since the last flush. */
  readonly #changes = new Map<number, number>()

  constructor(connection: Connection) {
    this.#add = connection.prepare(
      'INSERT INTO feed_count (level, bucket, rows) VALUES (?, ?, ?) ' +
        'ON CONFLICT DO UPDATE SET rows = rows + excluded.rows',
    )
    this.#sum = connection.prepare(
      'SELECT sum(rows) AS n FROM feed_count WHERE level = ? AND bucket > ? AND bucket <= ?',
    )
    this.#rows = connection.prepare('SELECT count(*) AS n FROM doc WHERE seq > ? AND seq < ?')
  }

  /** Notes that a document has left one place of the feed (null: it is new) for another (null: it is gone). */
  move(from: number | null, to: number | null): void {
    if (from !== null) this.#change(from, -1)
    if (to !== null) this.#change(to, 1)
  }

  #change(seq: number, rows: number): void {
    const bucket = Math.floor(seq / FANOUT)
    this.#changes.set(bucket, (this.#changes.get(bucket) ?? 0) + rows)
  }

  /** Writes what was noted; part of the transaction that moved the documents. */
  flush(): void {
    let changes: ReadonlyMap<number, number> = this.#changes
    for (const level of LEVELS) {
      if (level > 1) changes = ofNextLevel(changes)
      for (const [bucket, rows] of changes) if (rows !== 0) this.#add.run(level, bucket, rows)
    }
  }

  /** What was noted is durable, or was rolled back. */
  forget(): void {
    this.#changes.clear()
  }

  /** Rows of the feed above `seq`; only what is written counts. */
  above(seq: number): number {
    const nextStretch = (Math.floor(seq / FANOUT) + 1) * FANOUT
    let rows = (this.#rows.get(seq, nextStretch) as { n: number }).n
    for (const level of LEVELS) {
      const bucket = Math.floor(seq / FANOUT ** level)
      const isTop = level === LEVELS.length
      const parentEnd = isTop ? Number.MAX_SAFE_INTEGER : (Math.floor(bucket / FANOUT) + 1) * FANOUT - 1
      rows += this.#sum.get(level, bucket, parentEnd)?.n ?? 0
    }
    return rows
  }
}

function ofNextLevel(changes: ReadonlyMap<number, number>): Map<number, number> {
  const sums = new Map<number, number>()
  for (const [bucket, rows] of changes) {
    const next = Math.floor(bucket / FANOUT)
    sums.set(next, (sums.get(next) ?? 0) + rows)
  }
  return sums
}
