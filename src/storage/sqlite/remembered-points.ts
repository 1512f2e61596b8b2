/** The table of remembered tokens: points in the feeds of other servers (token-position.ts). */
import { forgotten, MAX_REMEMBERED, type RememberedPoint, type TokenPart } from '../token-position.ts'
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

interface PointRow {
  readonly parts: string
  readonly total: number
  readonly seq: number
}

export class RememberedPoints {
  readonly #now: () => number
  readonly #put: Statement
  readonly #count: Statement<{ n: number }>
  readonly #all: Statement<PointRow & { readonly family: string }>
  readonly #forget: Statement
  readonly #upTo: Statement<PointRow>

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, now: () => number) {
    this.#now = now
    this.#put = connection.prepare(
      'INSERT INTO remembered_token (family, total, parts, seq, at) VALUES (?, ?, ?, ?, ?) ' +
        'ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq < seq',
    )
    this.#count = connection.prepare('SELECT count(*) AS n FROM remembered_token')
    this.#all = connection.prepare(
      'SELECT family, total, parts, seq FROM remembered_token ORDER BY at, family, total, parts',
    )
    this.#forget = connection.prepare(
      'DELETE FROM remembered_token WHERE family = ? AND total = ? AND parts = ?',
    )
    this.#upTo = connection.prepare(
      'SELECT parts, total, seq FROM remembered_token WHERE family = ? AND total <= ? ' +
        'ORDER BY total DESC, parts DESC LIMIT ? OFFSET ?',
    )
  }

  /** Part of the caller's transaction. @param updateSeq the newest sequence number */
  remember(points: readonly RememberedPoint[], updateSeq: number): void {
    const at = this.#now()
    for (const { family, total, parts, seq } of points) {
      this.#put.run(family, total, JSON.stringify(parts), seq, at)
    }
    if ((this.#count.get()?.n ?? 0) <= MAX_REMEMBERED) return
    for (const { family, total, parts } of forgotten(this.#all.all(), updateSeq)) {
      this.#forget.run(family, total, parts)
    }
  }

  /** Points of a family, the greatest total first. @param skipped how many of them to leave out */
  upTo(family: string, total: number, limit: number, skipped: number): RememberedPoint[] {
    return this.#upTo
      .all(family, total, limit, skipped)
      .map((row) => ({ ...row, family, parts: JSON.parse(row.parts) as TokenPart[] }))
  }
}
