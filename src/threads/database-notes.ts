/** What the HTTP thread records about databases: which ones were written to, and which ones have a fault. */
import type { CouchError } from '../core/errors.ts'
import type { DatabaseEntry, DatabaseSequence } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'
import type { DatabaseFault, Faults, ThreadDeaths } from './databases.ts'

/** Names per note. A note takes the catalog's thread a few milliseconds. */
const BATCH = 500

interface UpdateNotesOptions {
  /** Durably notes the databases that were written to, and their last sequences where known. */
  note(names: readonly string[], sequences: readonly DatabaseSequence[]): Promise<unknown>
  /** Milliseconds from a write to its note. */
  readonly delay?: number
}

/**
 * Notes for `_db_updates` which databases were written to. A note is a commit of its own, so all writes of about a
 * second share one.
 */
export class UpdateNotes {
  readonly #note: UpdateNotesOptions['note']
  readonly #delay: number
  /** At most one per database. */
  readonly #names = new Map<string, LastKnownSequence | undefined>()
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor({ note, delay = 1000 }: UpdateNotesOptions) {
    this.#note = note
    this.#delay = delay
  }

  /** Adds a database that was written to. @param lastKnown its last sequence, if known */
  add(name: string, lastKnown?: LastKnownSequence): void {
    this.#names.set(name, lastKnown ?? this.#names.get(name))
    if (this.#timer !== undefined || this.#isClosed) return
    this.#timer = setTimeout(() => {
      this.#flushing = this.#flush()
    }, this.#delay)
  }

  /** Removes a deleted database. */
  remove(name: string): void {
    this.#names.delete(name)
  }

  /** Names that cannot be noted now are noted with the next ones. Never rejects. */
  async #flush(): Promise<void> {
    const noted = [...this.#names]
    this.#names.clear()
    for (let at = 0; at < noted.length; at += BATCH) {
      const batch = noted.slice(at, at + BATCH)
      const names = batch.map(([name]) => name)
      const sequences = batch.flatMap(([name, lastKnown]) =>
        lastKnown === undefined ? [] : [{ name, ...lastKnown }],
      )
      await this.#note(names, sequences).catch(() => {
        for (const [name, lastKnown] of batch) this.#names.set(name, this.#names.get(name) ?? lastKnown)
      })
    }
    this.#timer = undefined
    const [left] = this.#names.keys()
    if (left !== undefined) this.add(left)
  }

  /** Notes the remaining names, once. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#flushing
    await this.#flush()
  }
}

/** The faults of database files, and the deaths of threads, for `GET /_up` and the metrics. */
export class FaultRecord {
  /** By incarnation: never more than there are databases. */
  readonly #databases = new Map<number, DatabaseFault>()
  #deaths: ThreadDeaths = { count: 0, last: null }

  /** Notes a fault. @returns whether it is new, and must be logged */
  note({ name, incarnation }: DatabaseEntry, { code, message }: CouchError): boolean {
    const known = this.#databases.get(incarnation)
    const isNew = known?.code !== code
    const last = now()
    const since = isNew ? last : known.since
    this.#databases.set(incarnation, { database: name, code, reason: message, since, last })
    return isNew
  }

  /** Notes a successful write: the disk works again. */
  noteWrite(incarnation: number): void {
    if (this.#databases.get(incarnation)?.code === 'disk_fault') this.#databases.delete(incarnation)
  }

  /** Notes that no document is known to be damaged any more. */
  noteRestored(incarnation: number): void {
    if (this.#databases.get(incarnation)?.code === 'damaged_document') this.#databases.delete(incarnation)
  }

  /** Removes the fault of a deleted database. */
  forget(incarnation: number): void {
    this.#databases.delete(incarnation)
  }

  noteDeath(): void {
    this.#deaths = { count: this.#deaths.count + 1, last: now() }
  }

  list(): Faults {
    return { databases: [...this.#databases.values()], threads: this.#deaths }
  }
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
