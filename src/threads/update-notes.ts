/**
 * Notes for `_db_updates` which databases were written to. A note is a commit of its own, so all writes of about a
 * second share one.
 */
import type { DatabaseSequence } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'

/** Names per note, which takes the catalog's thread a few milliseconds. */
const BATCH = 500

interface UpdateNotesOptions {
  /** Makes a note durable: the databases that were written to, and their last sequences as far as known. */
  note(names: readonly string[], sequences: readonly DatabaseSequence[]): Promise<unknown>
  /** Milliseconds from a write to its note. */
  readonly delay?: number
}

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
