/**
 * Revisions whose bodies are stored though they are no leaves any more, and since when: what compaction clears away,
 * and what the time machine reads. A table of its own, so that neither reads the bodies to find them.
 */
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

export class Superseded {
  readonly #add: Statement
  readonly #remove: Statement
  readonly #note: Statement
  readonly #stamp: Statement

  constructor(connection: Connection) {
    this.#add = connection.prepare('INSERT OR REPLACE INTO superseded (revision, at, kept) VALUES (?, ?, 0)')
    this.#remove = connection.prepare('DELETE FROM superseded WHERE revision = ?')
    this.#note = connection.prepare(
      "INSERT INTO meta (key, value) SELECT 'history_since', at FROM superseded WHERE revision = ? " +
        'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    )
    this.#stamp = connection.prepare('UPDATE revision SET stored_at = ? WHERE num = ?')
  }

  /** @param revision the number of its row @param at ms since 1970 */
  add(revision: number, at: number): void {
    this.#add.run(revision, at)
  }

  /** Its row is about to go: what documents were before it was superseded is not known whole any more. */
  noteExpiry(revision: number): void {
    this.#note.run(revision)
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

  /** Its row is gone. */
  remove(revision: number): void {
    this.#remove.run(revision)
  }
}
