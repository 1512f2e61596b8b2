/**
 * The writes of one open database. Each is decided on what was read without a lock, and is stored by one statement that
 * compares this with what is there (write-functions.ts). So no lock is held while anything travels, and a node that is slow,
 * or frozen, delays nobody. A write that was decided on something that has changed is decided again; after some such
 * tries, while the row of the database is locked, which no other write can overtake.
 */
import { CouchError } from '../../core/errors.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { Epoch } from '../sequence.ts'
import type { Query, Run } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import { isConflict, LostAnswer } from './store-fault.ts'
import { refusals } from './write-functions.ts'
import { lockDatabase, type WriteContext, WriteNote } from './write-note.ts'

/** What was decided and is to be stored. */
export interface PlannedWrite {
  /** How many documents, settings and the like it writes, and how many sequence numbers it takes. */
  readonly writes: number
  readonly updates: number
  /** By how much it raises the settingsVersion. */
  readonly settingsChanges: number
  query(context: WriteContext): Query
}

export interface Decided {
  readonly settingsVersion: number
  /** null: nothing is stored. */
  readonly write: PlannedWrite | null
}

export interface Attempt {
  /** The number of earlier tries. */
  readonly tries: number
  /** Reads inside the transaction that has locked the database; absent: reads are on their own. */
  readonly run?: Run
}

/** Reads and decides; may be called again, and only its last call counts. */
export type Decide = (attempt: Attempt) => Promise<Decided>

/** What is told of own commits. */
export interface CommitEvents {
  writeBegins(): void
  writeEnds(): void
  committed(updateSeq: number, epoch: string, updates: number, settingsVersion: number): void
  settingsChanged(from: number, to: number): void
  /** The database is gone, or is not the one that was opened. */
  end(): void
}

interface Options {
  readonly database: OpenDatabase
  readonly events: CommitEvents
  /** Begins the epoch of the numbers that are given out from now on; null: the newest one may be continued. */
  readonly beginEpoch: (() => Promise<void>) | null
  readonly tally?: CommitTally | undefined
}

/** A named content of an attachment is not stored. Whoever decided finds out which, and decides again. */
export class MissingContents extends Error {}

/** After so many stale tries a write is decided under the lock. */
const MAX_TRIES = 5

export class WriteCommits {
  readonly #options: Options
  readonly #underWay = new Set<Promise<unknown>>()
  /** Notes that writes under way do not use, and how many there are. */
  readonly #free: WriteNote[] = []
  #notes = 0
  #isBegun: boolean
  #beginning: Promise<void> | null = null

  constructor(options: Options) {
    this.#options = options
    this.#isBegun = options.beginEpoch === null
  }

  /** Begins an epoch before the first number is given out. @throws as `CatalogWrites.transaction`; the next write tries again */
  async #begin(): Promise<void> {
    this.#beginning ??= this.#options.beginEpoch?.() ?? null
    try {
      await this.#beginning
      this.#isBegun = true
    } finally {
      this.#beginning = null
    }
  }

  /** What was decided before its epoch was begun is decided again. */
  #mustBegin({ updates }: PlannedWrite): boolean {
    return updates > 0 && !this.#isBegun
  }

  /** Resolves when the writes under way are answered. */
  async drained(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
  }

  /**
   * Decides and stores.
   * @param options `isLocked`: it is decided under the lock at once, since it depends on all that it reads
   * @throws no_database; store_unavailable, also if it is unknown whether it is stored; {@link MissingContents}; the error
   * of {@link storeFault} for what `decide` throws
   */
  commit(decide: Decide, { isLocked = false }: { readonly isLocked?: boolean } = {}): Promise<void> {
    this.#options.events.writeBegins()
    const note = this.#free.pop() ?? new WriteNote(this.#options.database, this.#notes++)
    const commit = isLocked ? this.#commitLocked(decide, note) : this.#commit(decide, note)
    this.#underWay.add(commit)
    const ended = () => {
      this.#free.push(note)
      this.#underWay.delete(commit)
      this.#options.events.writeEnds()
    }
    commit.then(ended, ended)
    return commit
  }

  async #commit(decide: Decide, note: WriteNote): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const decided = await decide({ tries })
      if (decided.write === null) return
      if (this.#mustBegin(decided.write)) {
        await this.#begin()
        continue
      }
      const query = decided.write.query(note.begin(decided.settingsVersion))
      const send = () => this.#send(query)
      if (await this.#store(note, send, () => decided)) return
    }
    await this.#commitLocked(decide, note)
  }

  async #commitLocked(decide: Decide, note: WriteNote): Promise<void> {
    const { connections, db } = this.#options.database
    for (let tries = MAX_TRIES; tries < 2 * MAX_TRIES; tries++) {
      let decided: Decided | undefined
      const send = () =>
        connections.transaction(async (run) => {
          const updateSeq = await lockDatabase(run, db)
          if (updateSeq === null) return refusals.gone
          decided = await decide({ tries, run })
          if (decided.write === null) return updateSeq
          if (this.#mustBegin(decided.write)) return refusals.stale
          return statusOf(await run(decided.write.query(note.begin(decided.settingsVersion))))
        })
      if (await this.#store(note, send, () => decided)) return
      if (decided?.write != null && this.#mustBegin(decided.write)) await this.#begin()
    }
    throw new CouchError('store_unavailable')
  }

  async #send(query: Query): Promise<number> {
    try {
      return statusOf(await this.#options.database.connections.write(query))
    } catch (error) {
      if (error instanceof CouchError && isConflict(error.cause)) return refusals.stale
      throw error
    }
  }

  /**
   * @param send returns the status that a function of write-functions.ts has returned
   * @param decided what it has sent
   * @returns whether it is stored, and told; false: it must be decided again
   */
  async #store(
    note: WriteNote,
    send: () => Promise<number>,
    decided: () => Decided | undefined,
  ): Promise<boolean> {
    const started = performance.now()
    let status: number
    try {
      status = await send()
    } catch (error) {
      if (!(error instanceof LostAnswer)) throw error
      if (decided()?.write == null) return false
      status = (await note.inquire()) ?? refusals.stale
    }
    if (status < 0) return this.#refused(status)
    const made = decided()
    if (made?.write != null) this.#tell(made, status, performance.now() - started)
    return true
  }

  #refused(status: number): false {
    if (status === refusals.contents) throw new MissingContents()
    if (status === refusals.gone) {
      this.#options.events.end()
      throw new CouchError('no_database')
    }
    if (status === refusals.timeline) {
      // Its numbers may have gone back. The next opening begins an epoch.
      this.#options.events.end()
      throw new CouchError('store_unavailable')
    }
    return false
  }

  #tell({ settingsVersion, write }: Decided, updateSeq: number, ms: number): void {
    const { database, events, tally } = this.#options
    const { writes, updates, settingsChanges } = write as PlannedWrite
    tally?.add(writes, updates, ms)
    const { id } = database.views.settings.epochs.at(-1) as Epoch
    events.committed(updateSeq, id, updates, settingsVersion + settingsChanges)
    if (settingsChanges > 0) events.settingsChanged(settingsVersion, settingsVersion + settingsChanges)
  }
}

/** The number that a function of write-functions.ts has returned. */
function statusOf(rows: readonly (readonly unknown[])[]): number {
  return rows[0]?.[0] as number
}
