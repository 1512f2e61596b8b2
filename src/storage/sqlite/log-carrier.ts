/**
 * Brings a database's log into its file now and then. SQLite would do that within a commit, and all who share the
 * commit would wait for it, and for a sync of the file, too; here it is done when their answers are on their way.
 */
import type { Access } from './access.ts'
import type { Connection } from './connection.ts'

/** Pages in the log from which on it is worth it: 8 MB. Fewer of them are written again and again, more take longer. */
const ENOUGH_PAGES = 1000

export class LogCarrier {
  readonly #connection: Pick<Connection, 'logPages' | 'carryLog'>
  readonly #access: Pick<Access, 'read'>
  #isScheduled = false

  constructor(connection: Pick<Connection, 'logPages' | 'carryLog'>, access: Pick<Access, 'read'>) {
    this.#connection = connection
    this.#access = access
  }

  /** A group is durable, and is answered in this turn. */
  committed(): void {
    if (this.#isScheduled) return
    this.#try(() => {
      if (this.#connection.logPages() < ENOUGH_PAGES) return
      this.#isScheduled = true
      // Answers leave their thread at the end of the turn after the one that gave them.
      setImmediate(() => setImmediate(() => this.#carry()))
    })
  }

  #carry(): void {
    this.#isScheduled = false
    this.#try(() => this.#connection.carryLog())
  }

  /** What fails here is no write's fault: who looks after the disk is told, and SQLite tries it within a commit in the end. */
  #try(work: () => void): void {
    try {
      this.#access.read(work)
    } catch {}
  }
}
