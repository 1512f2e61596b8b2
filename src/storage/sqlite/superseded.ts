/**
 * Revisions whose bodies are stored though they are no leaves any more, and since when: what compaction clears away,
 * and what the time machine reads. A table of its own, so that neither reads the bodies to find them.
 */
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

export class Superseded {
  readonly #add: Statement
  readonly #remove: Statement

  constructor(connection: Connection) {
    this.#add = connection.prepare('INSERT OR REPLACE INTO superseded (revision, at, kept) VALUES (?, ?, 0)')
    this.#remove = connection.prepare('DELETE FROM superseded WHERE revision = ?')
  }

  /** @param revision the number of its row @param at ms since 1970 */
  add(revision: number, at: number): void {
    this.#add.run(revision, at)
  }

  /** It is a leaf again, or its row is gone. */
  remove(revision: number): void {
    this.#remove.run(revision)
  }
}
