/**
 * How many rows of the feed lie above a number, without counting them: `pending` must cost the same at a million
 * documents as at ten thousand. Level L holds, for each stretch of 1024^L numbers, how many documents stand in
 * it; a count adds whole stretches of each level and counts rows only in the last, partial stretch of 1024.
 */
import type { Connection, Statement } from './connection.ts'

const FANOUT = 1024
/** 1024^5 is above the largest number that JavaScript counts exactly, less a factor of eight. */
const LEVELS = [1, 2, 3, 4]

export class FeedCounts {
  readonly #add: Statement
  readonly #sum: Statement<{ n: number | null }>
  readonly #rows: Statement<{ n: number }>
  /** Moves not yet written, in their order: a number that was left (-1) or taken (+1). */
  #moves: { seq: number; change: number }[] = []

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
    if (from !== null) this.#moves.push({ seq: from, change: -1 })
    if (to !== null) this.#moves.push({ seq: to, change: 1 })
  }

  /** A point to go {@link back} to. */
  mark(): number {
    return this.#moves.length
  }

  /** Drops what was noted since the mark, when its transaction or savepoint was rolled back. */
  back(mark: number): void {
    this.#moves.length = mark
  }

  /** Writes what was noted; part of the transaction that moved the documents. */
  flush(): void {
    for (const level of LEVELS) {
      const changes = new Map<number, number>()
      for (const { seq, change } of this.#moves) {
        const bucket = Math.floor(seq / FANOUT ** level)
        changes.set(bucket, (changes.get(bucket) ?? 0) + change)
      }
      for (const [bucket, change] of changes) if (change !== 0) this.#add.run(level, bucket, change)
    }
  }

  /** What was flushed is durable. */
  forget(): void {
    this.#moves = []
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
