/**
 * Restores damaged documents that a reader has found: from good copies on this machine; what no copy has from a standby, which
 * asks for the list of them once a minute; and what is damaged even then from the devices that have it. A device that has pushed
 * a revision does not ask about it again, so the database is treated as restored: each device and each replication compares all
 * documents once, learns that the damaged revisions are missing here (revs-diff.ts), and sends them.
 */
import type { Logger } from 'pino'
import type { DatabaseRegistry } from '../auth/policy.ts'
import { CouchError } from '../core/errors.ts'
import type { Repairs } from './repairs.ts'

/** Leaves that are found within this time are repaired together, in ms. */
const GATHER_MS = 5000
/** The least time between two looks for copies of one database's leaves, in ms. */
const REPAIR_PAUSE_MS = 60_000
/** The least time between two comparisons of one database, in ms: a disk that fails has new damage all the time. */
const PAUSE_MS = 3_600_000

/** How long a standby has for sending what is damaged, in ms: more than two of its sweeps. */
const STANDBY_MS = 150_000
/** Databases and, of each, documents that a standby is told of at once. */
const MAX_TOLD_DATABASES = 100
const MAX_TOLD = 100

type HealedDatabases = Pick<DatabaseRegistry, 'treatAsRestored'>

interface DeviceHealingOptions {
  readonly logger: Pick<Logger, 'warn' | 'error'>
  /** By default {@link GATHER_MS} and {@link PAUSE_MS}. For tests. */
  readonly gatherMs?: number
  readonly pauseMs?: number
}

export class DeviceHealing {
  readonly #options: DeviceHealingOptions
  readonly #repairs: Paced
  readonly #comparisons: Paced
  /** Databases with damage that was found before {@link start}. */
  readonly #early = new Set<string>()
  /** Databases in which damage was found, the last noted last. */
  readonly #damaged = new Set<string>()
  #healed: Healed | undefined

  constructor(options: DeviceHealingOptions) {
    this.#options = options
    const { pauseMs = PAUSE_MS } = options
    this.#repairs = new Paced(REPAIR_PAUSE_MS, (database) => this.#repair(database))
    this.#comparisons = new Paced(pauseMs, (database) => this.#treatAsRestored(database))
  }

  /**
   * Begins, also with what was noted before.
   * @param repairs null: there are no copies
   * @param hasStandby whether a standby follows this server
   */
  start(
    databases: HealedDatabases,
    repairs: LeafRepairs | null = null,
    hasStandby: () => boolean = () => false,
  ): void {
    this.#healed = { databases, repairs, hasStandby }
    for (const database of this.#early) this.note(database)
    this.#early.clear()
  }

  /** Notes that a damaged leaf was found in a database. */
  note(database: string): void {
    const { gatherMs = GATHER_MS } = this.#options
    this.#damaged.delete(database)
    this.#damaged.add(database)
    const [oldest] = this.#damaged
    if (this.#damaged.size > MAX_TOLD_DATABASES && oldest !== undefined) this.#damaged.delete(oldest)
    if (this.#healed === undefined) this.#early.add(database)
    else if (this.#healed.repairs === null) this.#comparisons.note(database, gatherMs)
    else this.#repairs.note(database, gatherMs)
  }

  async #repair(database: string): Promise<void> {
    const isWhole = (await this.#healed?.repairs?.repairLeaves(database)) ?? false
    if (!isWhole) this.#comparisons.note(database, this.#healed?.hasStandby() ? STANDBY_MS : 0)
  }

  /** The documents with damaged leaves, by their databases: some of them, if there are many. */
  async damaged(): Promise<ReadonlyMap<string, readonly string[]>> {
    const found = new Map<string, readonly string[]>()
    for (const database of [...this.#damaged]) {
      const leaves = (await this.#healed?.repairs?.damagedLeaves(database)) ?? null
      if (leaves === null) continue
      if (leaves.length === 0) this.#damaged.delete(database)
      else found.set(database, [...new Set(leaves.slice(0, MAX_TOLD).map(({ id }) => id))])
    }
    return found
  }

  async #treatAsRestored(database: string): Promise<void> {
    const { logger } = this.#options
    const left = await this.#healed?.repairs?.damagedLeaves(database)
    if (left?.length === 0) return
    try {
      await this.#healed?.databases.treatAsRestored(database)
      logger.warn(
        { database },
        'documents of a database are damaged; its devices, or the primary of a standby, will be compared and send them again',
      )
    } catch (error) {
      if (error instanceof CouchError && error.code === 'no_database') return
      logger.error({ err: error, database }, 'devices could not be asked for damaged documents')
    }
  }

  /** Nothing begins from now on. */
  async close(): Promise<void> {
    this.#repairs.close()
    this.#comparisons.close()
  }
}

type LeafRepairs = Pick<Repairs, 'repairLeaves' | 'damagedLeaves'>

interface Healed {
  readonly databases: HealedDatabases
  readonly repairs: LeafRepairs | null
  hasStandby(): boolean
}

/** Work on databases: soon after one is noted, and again only after a pause. */
class Paced {
  readonly #pauseMs: number
  readonly #work: (database: string) => Promise<void>
  /** The next work of each noted database; after it, the end of the pause, until that is over. */
  readonly #timers = new Map<string, NodeJS.Timeout>()
  /** Databases that were noted in a pause. */
  readonly #waiting = new Set<string>()
  #isClosed = false

  /** @param work never rejects */
  constructor(pauseMs: number, work: (database: string) => Promise<void>) {
    this.#pauseMs = pauseMs
    this.#work = work
  }

  /** @param gatherMs how soon the work begins, unless there is a pause */
  note(database: string, gatherMs: number): void {
    if (this.#isClosed) return
    this.#waiting.add(database)
    if (!this.#timers.has(database)) this.#after(gatherMs, database, () => this.#begin(database))
  }

  #after(ms: number, database: string, work: () => void): void {
    this.#timers.set(database, setTimeout(work, ms).unref())
  }

  #begin(database: string): void {
    this.#waiting.delete(database)
    void this.#work(database).then(() => {
      if (!this.#isClosed) this.#after(this.#pauseMs, database, () => this.#endPause(database))
    })
  }

  #endPause(database: string): void {
    this.#timers.delete(database)
    if (this.#waiting.has(database)) this.#begin(database)
  }

  close(): void {
    this.#isClosed = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
  }
}
