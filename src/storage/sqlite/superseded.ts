/**
 * Revisions whose bodies are stored though they are no leaves any more, and since when: what compaction clears away,
 * and what the time machine reads. A table of its own, so that neither reads the bodies to find them.
 */
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'
import type { Wear } from './wear.ts'

interface Counted {
  readonly kept: number
  readonly bytes: number
}

export interface SupersededRow {
  /** The number of its row in `revision`. */
  readonly revision: number
  /** ms since 1970 */
  readonly at: number
  readonly kept: number
  /** Of the body. */
  readonly bytes: number
}

export class Superseded {
  readonly #wear: Wear
  readonly #add: Statement
  readonly #remove: Statement<Counted>
  readonly #keep: Statement<Counted>
  readonly #page: Statement<SupersededRow>

  constructor(connection: Connection, wear: Wear) {
    this.#wear = wear
    this.#add = connection.prepare('INSERT INTO superseded (revision, at, kept, bytes) VALUES (?, ?, 0, ?)')
    this.#remove = connection.prepare('DELETE FROM superseded WHERE revision = ? RETURNING kept, bytes')
    this.#keep = connection.prepare(
      'UPDATE superseded SET kept = 1 WHERE revision = ? AND NOT kept RETURNING kept, bytes',
    )
    this.#page = connection.prepare(
      'SELECT revision, at, kept, bytes FROM superseded WHERE revision > ? ORDER BY revision LIMIT ?',
    )
  }

  /** @param revision the number of its row @param at ms since 1970 @param bytes of its body */
  add(revision: number, at: number, bytes: number): void {
    this.#add.run(revision, at, bytes)
    this.#wear.count(false, 1, bytes)
  }

  /** It is a leaf again, or its row is gone, or new. Of others nothing comes. */
  remove(revision: number): void {
    const row = this.#remove.get(revision)
    if (row !== undefined) this.#wear.count(row.kept === 1, -1, -row.bytes)
  }

  /** From now on only the time machine knows it. */
  keep(revision: number): void {
    const row = this.#keep.get(revision)
    if (row === undefined) return
    this.#wear.count(false, -1, -row.bytes)
    this.#wear.count(true, 1, row.bytes)
  }

  /** The next of them in the order of their rows. */
  page(above: number, limit: number): SupersededRow[] {
    return this.#page.all(above, limit)
  }
}
