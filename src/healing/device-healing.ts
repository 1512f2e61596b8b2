/**
 * Restores damaged documents from the devices that have them. A device that has pushed a revision does not ask about it again, so
 * the database is treated as restored: each device and each replication compares all documents once, learns that the
 * damaged revisions are missing here (revs-diff.ts), and sends them.
 */
import type { Logger } from 'pino'
import type { DatabaseRegistry } from '../auth/policy.ts'
import { CouchError } from '../core/errors.ts'

/** Leaves that are found within this time are asked for together, in ms. */
const GATHER_MS = 5000
/** The least time between two comparisons of one database, in ms: a disk that fails has new damage all the time. */
const PAUSE_MS = 3_600_000

type HealedDatabases = Pick<DatabaseRegistry, 'treatAsRestored'>

interface DeviceHealingOptions {
  readonly logger: Pick<Logger, 'warn' | 'error'>
  /** By default {@link GATHER_MS} and {@link PAUSE_MS}. For tests. */
  readonly gatherMs?: number
  readonly pauseMs?: number
}

export class DeviceHealing {
  readonly #options: DeviceHealingOptions
  /** The next comparison of each database with new damage; after it, the end of the pause, until that is over. */
  readonly #timers = new Map<string, NodeJS.Timeout>()
  /** Databases with damage that was found in a pause, or before {@link start}. */
  readonly #waiting = new Set<string>()
  #databases: HealedDatabases | undefined
  #closed = false

  constructor(options: DeviceHealingOptions) {
    this.#options = options
  }

  /** Begins, also with what was noted before. */
  start(databases: HealedDatabases): void {
    this.#databases = databases
    for (const database of [...this.#waiting]) this.note(database)
  }

  /** Notes that a damaged leaf was found in a database. */
  note(database: string): void {
    if (this.#closed) return
    this.#waiting.add(database)
    if (this.#databases === undefined || this.#timers.has(database)) return
    this.#after(this.#options.gatherMs ?? GATHER_MS, database, () => this.#compare(database))
  }

  #after(ms: number, database: string, work: () => void): void {
    this.#timers.set(database, setTimeout(work, ms).unref())
  }

  #compare(database: string): void {
    this.#waiting.delete(database)
    this.#after(this.#options.pauseMs ?? PAUSE_MS, database, () => this.#endPause(database))
    void this.#treatAsRestored(database)
  }

  #endPause(database: string): void {
    this.#timers.delete(database)
    if (this.#waiting.has(database)) this.#compare(database)
  }

  async #treatAsRestored(database: string): Promise<void> {
    const { logger } = this.#options
    try {
      await this.#databases?.treatAsRestored(database)
      logger.warn(
        { database },
        'documents of a database are damaged; its devices will compare their documents and send what is damaged again',
      )
    } catch (error) {
      if (error instanceof CouchError && error.code === 'no_database') return
      logger.error({ err: error, database }, 'devices could not be asked for damaged documents')
    }
  }

  /** No comparison begins from now on. */
  async close(): Promise<void> {
    this.#closed = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
  }
}
