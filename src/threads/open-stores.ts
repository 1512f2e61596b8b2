/** The databases that a thread has open: opened when first asked for, closed when others need the room. */
import { CouchError } from '../core/errors.ts'

/** What is kept open, and how it is closed. */
export interface Closable {
  close(): Promise<void>
}

interface Entry<T> {
  readonly incarnation: number
  readonly opened: Promise<T>
  /** Requests that are being served by it. */
  users: number
}

export class OpenStores<T extends Closable> {
  readonly #open: (name: string, incarnation: number) => Promise<T>
  readonly #max: number
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<T>>()
  /** Databases that are being closed: nobody opens one anew before its file is let go. */
  readonly #closing = new Map<string, Promise<void>>()

  /** @param max databases kept open beside those in use */
  constructor(max: number, open: (name: string, incarnation: number) => Promise<T>) {
    this.#open = open
    this.#max = max
  }

  /**
   * Runs a piece of work with a database, which stays open until it is done.
   * @throws no_database when the database is not of that incarnation any more
   */
  async use<R>(name: string, incarnation: number, work: (opened: T) => Promise<R>): Promise<R> {
    const entry = this.#entry(name, incarnation)
    entry.users += 1
    try {
      return await work(await entry.opened)
    } finally {
      entry.users -= 1
      this.#closeSpare()
    }
  }

  #entry(name: string, incarnation: number): Entry<T> {
    const known = this.#entries.get(name)
    if (known !== undefined) {
      if (known.incarnation !== incarnation) throw new CouchError('no_database')
      this.#entries.delete(name)
      this.#entries.set(name, known)
      return known
    }
    const closed = this.#closing.get(name) ?? Promise.resolve()
    const opened = closed.then(() => this.#open(name, incarnation))
    const entry = { incarnation, opened, users: 0 }
    this.#entries.set(name, entry)
    opened.catch(() => {
      if (this.#entries.get(name) === entry) this.#entries.delete(name)
    })
    return entry
  }

  #closeSpare(): void {
    let spare = this.#entries.size - this.#max
    for (const [name, entry] of this.#entries) {
      if (spare <= 0) return
      if (entry.users > 0) continue
      spare -= 1
      this.#close(name, entry).catch(() => undefined)
    }
  }

  async #close(name: string, entry: Entry<T>): Promise<void> {
    this.#entries.delete(name)
    const closing = entry.opened
      .then((opened) => opened.close())
      .finally(() => {
        if (this.#closing.get(name) === closing) this.#closing.delete(name)
      })
    this.#closing.set(name, closing)
    await closing
  }

  /** Closes a database once its writes are done; resolves when its file is let go. */
  async drop(name: string): Promise<void> {
    const entry = this.#entries.get(name)
    if (entry !== undefined) await this.#close(name, entry)
    else await this.#closing.get(name)
  }

  async closeAll(): Promise<void> {
    await Promise.allSettled([...this.#entries].map(([name, entry]) => this.#close(name, entry)))
    await Promise.allSettled(this.#closing.values())
  }
}
