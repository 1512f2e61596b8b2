/**
 * Which databases were written to and are still to be noted for `_db_updates`. A note is a commit of its own, so
 * many writes become one, about every second.
 */
import type { DatabaseSequence } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'

/** Names in one note: a few milliseconds of the catalog's thread. */
const BATCH = 500

interface UpdateNotesOptions {
  /** Makes a note durable: which databases were written to, and how far those are of which that is known. */
  note(names: readonly string[], sequences: readonly DatabaseSequence[]): Promise<unknown>
  /** Milliseconds from a write to its note. */
  readonly delay?: number
}

export class UpdateNotes {
  readonly #note: UpdateNotesOptions['note']
  readonly #delay: number
  /** Never more than there are databases. */
  readonly #names = new Map<string, LastKnownSequence | undefined>()
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor({ note, delay = 1000 }: UpdateNotesOptions) {
    this.#note = note
    this.#delay = delay
  }

  /** A database was written to. @param lastKnown how far it is, if that is known */
  add(name: string, lastKnown?: LastKnownSequence): void {
    this.#names.set(name, lastKnown ?? this.#names.get(name))
    if (this.#timer !== undefined || this.#isClosed) return
    this.#timer = setTimeout(() => {
      this.#flushing = this.#flush()
    }, this.#delay)
  }

  /** A database is no more. */
  remove(name: string): void {
    this.#names.delete(name)
  }

  /** What cannot be noted now is tried again with the next; never rejects. */
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

  /** Notes what is left, once. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#flushing
    await this.#flush()
  }
}
