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
  readonly #put: Statement
  readonly #count: Statement<{ n: number }>
  readonly #all: Statement<{ num: number; family: string; seq: number }>
  readonly #forget: Statement
  readonly #upTo: Statement<PointRow>

  constructor(connection: Connection) {
    this.#put = connection.prepare(
      'INSERT INTO remembered_token (family, parts, total, seq) VALUES (?, ?, ?, ?) ' +
        'ON CONFLICT (family, parts) DO UPDATE SET seq = excluded.seq WHERE excluded.seq < seq',
    )
    this.#count = connection.prepare('SELECT count(*) AS n FROM remembered_token')
    this.#all = connection.prepare('SELECT num, family, seq FROM remembered_token ORDER BY num')
    this.#forget = connection.prepare('DELETE FROM remembered_token WHERE num = ?')
    this.#upTo = connection.prepare(
      'SELECT parts, total, seq FROM remembered_token WHERE family = ? AND total <= ? ' +
        'ORDER BY total DESC, num DESC LIMIT ? OFFSET ?',
    )
  }

  /** Part of the caller's transaction. @param updateSeq the newest sequence number */
  remember(points: readonly RememberedPoint[], updateSeq: number): void {
    for (const { family, parts, total, seq } of points) {
      this.#put.run(family, JSON.stringify(parts), total, seq)
    }
    if ((this.#count.get()?.n ?? 0) <= MAX_REMEMBERED) return
    for (const { num } of forgotten(this.#all.all(), updateSeq)) this.#forget.run(num)
  }

  /** Points of a family, the greatest total first. @param skipped how many of them to leave out */
  upTo(family: string, total: number, limit: number, skipped: number): RememberedPoint[] {
    return this.#upTo
      .all(family, total, limit, skipped)
      .map((row) => ({ ...row, family, parts: JSON.parse(row.parts) as TokenPart[] }))
  }
}
