/**
 * Revisions whose bodies are stored though they are no leaves any more, and since when: what compaction clears away,
 * and what the time machine reads. A table of its own, so that neither reads the bodies to find them.
 */
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'
import type { Wear } from './wear.ts'

interface Counted {
  /** ms since 1970 */
  readonly at: number
  readonly kept: number
  /** Of the body. */
  readonly bytes: number
}

export interface SupersededRow extends Counted {
  /** The number of its row in `revision`. */
  readonly revision: number
}

export class Superseded {
  readonly #wear: Wear
  readonly #add: Statement
  readonly #remove: Statement<Counted>
  readonly #keep: Statement<Counted>
  readonly #page: Statement<SupersededRow>
  readonly #note: Statement
  readonly #noteLoss: Statement
  readonly #stamp: Statement

  constructor(connection: Connection, wear: Wear) {
    this.#wear = wear
    this.#add = connection.prepare('INSERT INTO superseded (revision, at, kept, bytes) VALUES (?, ?, 0, ?)')
    this.#remove = connection.prepare('DELETE FROM superseded WHERE revision = ? RETURNING at, kept, bytes')
    this.#keep = connection.prepare(
      'UPDATE superseded SET kept = 1 WHERE revision = ? AND NOT kept RETURNING at, kept, bytes',
    )
    this.#page = connection.prepare(
      'SELECT revision, at, kept, bytes FROM superseded WHERE revision > ? ORDER BY revision LIMIT ?',
    )
    this.#note = connection.prepare(
      "INSERT INTO meta (key, value) SELECT 'history_since', at FROM superseded WHERE revision = ? " +
        'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    )
    this.#noteLoss = connection.prepare(
      "INSERT INTO meta (key, value) VALUES ('history_since', ?) " +
        'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    )
    this.#stamp = connection.prepare('UPDATE revision SET stored_at = ? WHERE num = ?')
  }

  /** @param revision the number of its row @param at ms since 1970 @param bytes of its body */
  add(revision: number, at: number, bytes: number): void {
    this.#add.run(revision, at, bytes)
    this.#wear.count(false, 1, bytes)
  }

  /** Its row is about to go: what documents were before it was superseded is not known whole any more. */
  noteExpiry(revision: number): void {
    this.#note.run(revision)
  }

  /** Leaves are forgotten beside others: which version ended a document's branch until now is not known any more. */
  noteLoss(at: number): void {
    this.#noteLoss.run(at)
  }

  /**
   * It is a leaf again: it came once more after its ancestry had been cut. A row tells of one time as a leaf, and that
   * is the last.
   */
  revive(revision: number, at: number): void {
    this.noteExpiry(revision)
    this.remove(revision)
    this.#stamp.run(at, revision)
  }

  /**
   * Its row is gone, or new. Of others nothing comes.
   * @returns since when it was superseded, in ms since 1970; undefined: it was not
   */
  remove(revision: number): number | undefined {
    const row = this.#remove.get(revision)
    if (row !== undefined) this.#wear.count(row.kept === 1, -1, -row.bytes)
    return row?.at
  }

  /** From now on only the time machine knows it. @param at when it was superseded, in ms since 1970 */
  keep(revision: number, at: number): void {
    const row = this.#keep.get(revision)
    if (row === undefined) return
    this.#wear.keepsFrom(at)
    this.#wear.count(false, -1, -row.bytes)
    this.#wear.count(true, 1, row.bytes)
  }

  /** The next of them in the order of their rows. */
  page(above: number, limit: number): SupersededRow[] {
    return this.#page.all(above, limit)
  }
}
