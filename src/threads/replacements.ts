/** Restores databases: prepares copies on temporary threads, and replaces databases by them. */
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { Prepared } from '../storage/storage-engine.ts'
import type { DatabaseProxy } from './database-proxy.ts'
import type { PreparedRestore } from './databases.ts'
import type { Thread } from './thread.ts'
import type { CatalogCall } from './thread-protocol.ts'

/** The functions of server-databases.ts and of the thread pool that a replacement needs. */
interface ReplacementsOptions {
  /** Runs work on a thread that serves no databases. */
  withTemporaryThread<T>(work: (thread: Pick<Thread, 'ask'>) => Promise<T>): Promise<T>
  owner(name: string): Pick<Thread, 'ask'>
  catalog: CatalogCall
  /** Reads the catalog; null if there is no such database. */
  find(name: string): Promise<DatabaseEntry | null>
  /** Runs work while no other call creates, deletes or replaces the database. */
  exclusively(name: string, work: () => Promise<void>): Promise<void>
  /** Removes a database from the list; null if there is none. */
  take(name: string): Promise<DatabaseProxy | null>
  enter(entry: DatabaseEntry): unknown
  /** Notifies listeners that the database's security object may have changed. */
  notifySecurity(name: string): void
}

export class Replacements {
  readonly #options: ReplacementsOptions
  /** Names that are listed while their database is being replaced. */
  readonly #underWay = new Set<string>()
  /** One copy is prepared at a time: each needs a thread, and reads a whole file. */
  readonly #preparing = new Limiter(1, Number.POSITIVE_INFINITY)

  constructor(options: ReplacementsOptions) {
    this.#options = options
  }

  /** Databases that are being replaced: listed, but unavailable. */
  underWay(): ReadonlySet<string> {
    return this.#underWay
  }

  /** @throws bad_request when the copy is damaged; unavailable when its thread dies */
  async prepare(name: string, copy: string): Promise<PreparedRestore> {
    const prepared = await this.#preparing.run(() =>
      this.#options.withTemporaryThread((thread) => thread.ask({ type: 'prepare', database: name, copy })),
    )
    return this.#preparedRestore(name, prepared)
  }

  #preparedRestore(name: string, { draft, updateSeq, docCount }: Prepared): PreparedRestore {
    let isUsed = false
    return {
      name,
      updateSeq,
      docCount,
      finish: () => {
        isUsed = true
        return this.#replace(name, draft)
      },
      discard: async () => {
        if (isUsed) return
        isUsed = true
        await this.#discard(name, draft)
      },
    }
  }

  /** A draft that cannot be removed now is removed at the next start. */
  async #discard(name: string, draft: string): Promise<void> {
    await this.#options.catalog('discard', name, draft).catch(() => undefined)
  }

  /** @throws no_database */
  async treatAsRestored(name: string): Promise<void> {
    await this.#replace(name, null)
  }

  /**
   * As {@link treatAsRestored}, unless somebody else has done it since: only if it still is this incarnation.
   * @returns whether it was
   */
  async treatAsLost(name: string, incarnation: number): Promise<boolean> {
    let isPresent = false
    await this.#options.exclusively(name, async () => {
      isPresent = (await this.#options.find(name))?.incarnation === incarnation
      if (isPresent) await this.#replaceNow(name, null)
    })
    return isPresent
  }

  async #replace(name: string, draft: string | null): Promise<string | null> {
    let kept: string | null = null
    await this.#options.exclusively(name, async () => {
      kept = await this.#replaceNow(name, draft)
    })
    return kept
  }

  /** Nobody else creates, deletes or replaces the database meanwhile. @returns the path of the kept file */
  async #replaceNow(name: string, draft: string | null): Promise<string | null> {
    const before = await this.#options.take(name)
    if (before === null && draft === null) throw new CouchError('no_database')
    if (before !== null) this.#underWay.add(name)
    // Earlier calls are answered. Later calls fail with unavailable until the name has its new database.
    before?.retire()
    try {
      if (before !== null) await this.#closeFile(name)
      const replaced = await this.#options.catalog('replace', name, draft)
      this.#endReplacement(name, replaced)
      return replaced.kept
    } catch (error) {
      await this.#reinstate(name, before)
      if (draft !== null) await this.#discard(name, draft)
      throw error
    } finally {
      before?.emit({ type: 'closed' })
      this.#options.notifySecurity(name)
    }
  }

  /** If the thread dies meanwhile, that closes the file too; the second `drop` goes to the next thread. */
  async #closeFile(name: string): Promise<void> {
    const drop = async () => this.#options.owner(name).ask({ type: 'drop', database: name })
    await drop().catch(drop)
  }

  #endReplacement(name: string, entry: DatabaseEntry | null): void {
    this.#underWay.delete(name)
    if (entry !== null) this.#options.enter(entry)
  }

  /** Enters what the catalog lists, whose thread may have died after the replacement. */
  async #reinstate(name: string, before: DatabaseProxy | null): Promise<void> {
    const entry = await this.#options.find(name).catch(() => before?.entry ?? null)
    this.#endReplacement(name, entry)
  }
}
