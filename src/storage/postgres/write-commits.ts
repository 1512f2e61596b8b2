/**
 * The writes of one open database. Each is decided on what was read without a lock, and is stored by one statement that
 * compares this with what is there (write-functions.ts). So no lock is held while anything travels, and a node that is slow,
 * or frozen, delays nobody. A write that was decided on something that has changed is decided again; after some such
 * tries, while the row of the database is locked, which no other write can overtake.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { Epoch } from '../sequence.ts'
import type { Query, Run } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import { isConflict, LostAnswer } from './store-fault.ts'
import { refusals } from './write-functions.ts'

/** The first parameters of each write. */
export interface WriteContext {
  readonly db: number
  /** The settingsVersion that it was decided on. */
  readonly settingsVersion: number
  readonly opener: string
  /** Identifies this try among all of the opener. */
  readonly token: number
  /** The time, in ms since 1970. */
  readonly now: number
}

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
  readonly tally?: CommitTally | undefined
}

/** A named content of an attachment is not stored. Whoever decided finds out which, and decides again. */
export class MissingContents extends Error {}

/** After so many stale tries a write is decided under the lock. */
const MAX_TRIES = 5
/** How long it is tried to learn whether a write is stored, in ms, and how long to wait after a try that failed. */
const RECOVERY_MS = 10_000
const RECOVERY_PAUSE_MS = 100

const LOCK = {
  name: 'lock_database',
  text: 'SELECT update_seq, settings_version FROM database WHERE db = $1 FOR UPDATE',
}
const READ_WRITTEN = {
  name: 'read_written',
  text: 'SELECT 1 FROM written WHERE db = $1 AND opener = $2 AND token = $3',
}

/** Of all databases of this process, so that a database that is opened again uses none twice. */
let lastToken = 0

export class WriteCommits {
  readonly #options: Options
  readonly #underWay = new Set<Promise<unknown>>()
  /** Numbers of the rows of `written` that writes under way do not use. */
  readonly #free: number[] = []
  #rows = 0

  constructor(options: Options) {
    this.#options = options
  }

  /** Resolves when the writes under way are answered. */
  async drained(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
  }

  /**
   * Decides and stores.
   * @param decide reads and decides; may be called again, and only its last call counts
   * @param options `isLocked`: it is decided under the lock at once, since it depends on all that it reads
   * @throws no_database; store_unavailable, also if it is unknown whether it is stored; {@link MissingContents}; the error
   * of {@link storeFault} for what `decide` throws
   */
  commit(
    decide: (attempt: Attempt) => Promise<Decided>,
    { isLocked = false }: { readonly isLocked?: boolean } = {},
  ): Promise<void> {
    this.#options.events.writeBegins()
    // Each write under way notes itself in a row of its own: another one would hide whether it is stored.
    const row = this.#free.pop() ?? this.#rows++
    const opener = `${this.#options.database.opener} ${row}`
    const commit = isLocked ? this.#commitLocked(decide, opener) : this.#commit(decide, opener)
    this.#underWay.add(commit)
    const ended = () => {
      this.#free.push(row)
      this.#underWay.delete(commit)
      this.#options.events.writeEnds()
    }
    commit.then(ended, ended)
    return commit
  }

  async #commit(decide: (attempt: Attempt) => Promise<Decided>, opener: string): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const decided = await decide({ tries })
      if (decided.write === null) return
      const token = ++lastToken
      const query = decided.write.query(this.#context(decided, opener, token))
      if (await this.#store(decided, opener, token, () => this.#send(query))) return
    }
    await this.#commitLocked(decide, opener)
  }

  #context({ settingsVersion }: Decided, opener: string, token: number): WriteContext {
    const { db, now } = this.#options.database
    return { db, settingsVersion, opener, token, now: now() }
  }

  async #send(query: Query): Promise<number> {
    try {
      return statusOf(await this.#options.database.connections.write(query))
    } catch (error) {
      if (error instanceof CouchError && isConflict(error.cause)) return refusals.stale
      throw error
    }
  }

  /** @returns whether it is stored, and told; false: it must be decided again */
  async #store(
    decided: Decided,
    opener: string,
    token: number,
    send: () => Promise<number>,
  ): Promise<boolean> {
    const started = performance.now()
    let status: number
    try {
      status = await send()
    } catch (error) {
      if (!(error instanceof LostAnswer)) throw error
      const updateSeq = await this.#recover(opener, token)
      if (updateSeq === null) return false
      status = updateSeq
    }
    if (status < 0) return this.#refused(status)
    this.#tell(decided, status, performance.now() - started)
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

  async #commitLocked(decide: (attempt: Attempt) => Promise<Decided>, opener: string): Promise<void> {
    const { database } = this.#options
    for (let tries = MAX_TRIES; tries < 2 * MAX_TRIES; tries++) {
      const token = ++lastToken
      let decided: Decided | undefined
      const send = () =>
        database.connections.transaction(async (run) => {
          const [row] = await run({ ...LOCK, values: [database.db] })
          if (row === undefined) return refusals.gone
          decided = await decide({ tries, run })
          if (decided.write === null) return row[0] as number
          return statusOf(await run(decided.write.query(this.#context(decided, opener, token))))
        })
      if (await this.#storeLocked(opener, token, send, () => decided)) return
    }
    throw new CouchError('store_unavailable')
  }

  async #storeLocked(
    opener: string,
    token: number,
    send: () => Promise<number>,
    decided: () => Decided | undefined,
  ): Promise<boolean> {
    const started = performance.now()
    let status: number | null
    try {
      status = await send()
    } catch (error) {
      if (!(error instanceof LostAnswer)) throw error
      status = decided()?.write == null ? null : await this.#recover(opener, token)
    }
    if (status === null) return false
    if (status < 0) return this.#refused(status)
    const made = decided()
    if (made?.write != null) this.#tell(made, status, performance.now() - started)
    return true
  }

  /**
   * Finds out whether a write is stored whose answer was lost. Its transaction may be still under way, so this waits for it
   * by the lock that it needs. If it begins only later, it finds that what it was decided on has changed, or it stores
   * what nobody was told of.
   * @returns the newest sequence number; null: it is not stored
   * @throws no_database; store_unavailable if it cannot be found out
   */
  async #recover(opener: string, token: number): Promise<number | null> {
    const { connections, db } = this.#options.database
    const deadline = performance.now() + RECOVERY_MS
    for (;;) {
      try {
        const found = await connections.transaction(async (run) => {
          const [row] = await run({ ...LOCK, values: [db] })
          const isStored = (await run({ ...READ_WRITTEN, values: [db, opener, token] })).length > 0
          return { isGone: row === undefined, updateSeq: isStored ? (row?.[0] as number) : null }
        })
        if (!found.isGone) return found.updateSeq
      } catch (error) {
        if (performance.now() > deadline)
          throw new CouchError('store_unavailable', undefined, { cause: error })
        await sleep(RECOVERY_PAUSE_MS)
        continue
      }
      this.#options.events.end()
      throw new CouchError('no_database')
    }
  }
}

/** The number that a function of write-functions.ts has returned. */
function statusOf(rows: readonly (readonly unknown[])[]): number {
  return rows[0]?.[0] as number
}
