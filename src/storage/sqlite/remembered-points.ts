/** The table of remembered tokens: points in the feeds of other servers (token-position.ts). */
import { MAX_REMEMBERED, type RememberedPoint, type TokenPart } from '../token-position.ts'
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

interface PointRow {
  readonly parts: string
  readonly total: number
  readonly seq: number
}

export class RememberedPoints {
  readonly #put: Statement
  readonly #forget: Statement
  readonly #upTo: Statement<PointRow>

  constructor(connection: Connection) {
    this.#put = connection.prepare(
      'INSERT INTO remembered_token (family, parts, total, seq) VALUES (?, ?, ?, ?) ' +
        'ON CONFLICT (family, parts) DO UPDATE SET seq = excluded.seq WHERE excluded.seq < seq',
    )
    this.#forget = connection.prepare(
      'DELETE FROM remembered_token WHERE num <= ' +
        '(SELECT num FROM remembered_token ORDER BY num DESC LIMIT 1 OFFSET ?)',
    )
    this.#upTo = connection.prepare(
      'SELECT parts, total, seq FROM remembered_token WHERE family = ? AND total <= ? ' +
        'ORDER BY total DESC, num DESC LIMIT ? OFFSET ?',
    )
  }

  /** Part of the caller's transaction. */
  remember(points: readonly RememberedPoint[]): void {
    for (const { family, parts, total, seq } of points) {
      this.#put.run(family, JSON.stringify(parts), total, seq)
    }
    this.#forget.run(MAX_REMEMBERED)
  }

  /** Points of a family, the greatest total first. @param skipped how many of them to leave out */
  upTo(family: string, total: number, limit: number, skipped: number): RememberedPoint[] {
    return this.#upTo
      .all(family, total, limit, skipped)
      .map((row) => ({ ...row, family, parts: JSON.parse(row.parts) as TokenPart[] }))
  }
}
