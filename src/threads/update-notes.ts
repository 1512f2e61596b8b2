/**
 * Which databases were written to and are still to be noted for `_db_updates`. A note is a commit of its own, so
 * many writes become one, about every second.
 */

/** Names in one note: a few milliseconds of the catalog's thread. */
const BATCH = 500

export interface UpdateNotesOptions {
  /** Makes a note durable. */
  note(names: readonly string[]): Promise<unknown>
  /** Milliseconds from a write to its note. */
  readonly delay?: number
}

export class UpdateNotes {
  readonly #note: UpdateNotesOptions['note']
  readonly #delay: number
  /** Never more than there are databases. */
  readonly #names = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor({ note, delay = 1000 }: UpdateNotesOptions) {
    this.#note = note
    this.#delay = delay
  }

  /** A database was written to. */
  add(name: string): void {
    this.#names.add(name)
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
    const names = [...this.#names]
    this.#names.clear()
    for (let at = 0; at < names.length; at += BATCH) {
      const batch = names.slice(at, at + BATCH)
      await this.#note(batch).catch(() => {
        for (const name of batch) this.#names.add(name)
      })
    }
    this.#timer = undefined
    const [left] = this.#names
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
