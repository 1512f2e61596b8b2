/** How far databases were before the server was started, until they are opened. */
import type { Mark } from '../storage/sequence.ts'

export class Marks {
  readonly #marks = new Map<string, Mark>()
  /** Databases that were opened with theirs, or had none. */
  readonly #opened = new Set<string>()

  /** What a request brings counts only until the database was opened: it has gone on since. */
  note({ database, mark }: { readonly database: string; readonly mark?: Mark | undefined }): void {
    if (mark !== undefined && !this.#opened.has(database)) this.#marks.set(database, mark)
  }

  /** @returns what the database is to be opened with, once */
  take(database: string): Mark | undefined {
    const mark = this.#marks.get(database)
    this.#marks.delete(database)
    this.#opened.add(database)
    return mark
  }
}
