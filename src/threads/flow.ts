import { isCrowded } from '../core/outgoing.ts'
import type { Mark } from '../storage/sequence.ts'

/** Chunks that a reader may have: one that it is at work with, and one ahead. */
const WINDOW = 2

/**
 * A stream's pace on a database thread: its reader pulls chunk by chunk, and may want no more. A chunk is made only
 * when it is wanted, so that nothing lies here for a reader who has stopped reading.
 */
export class Flow {
  /** The first chunks go out unasked. */
  #credit = WINDOW
  #isCancelled = false
  #failure: { readonly error: unknown } | undefined
  #wake: () => void = () => undefined

  /** The reader is done with one chunk. */
  pull(): void {
    this.#credit += 1
    this.#wake()
  }

  /** The reader wants nothing more. */
  cancel(): void {
    this.#isCancelled = true
    this.#wake()
  }

  /** The stream must not go on: its reader is told why, so that what it has is not taken for the whole. */
  fail(error: unknown): void {
    this.#failure ??= { error }
    this.#wake()
  }

  /** Whether the reader still reads. @throws what the stream was made to fail with */
  isWanted(): boolean {
    if (this.#failure !== undefined) throw this.#failure.error
    return !this.#isCancelled
  }

  /** Where much waits for readers who have stopped, none is made ahead. */
  #least(): number {
    return isCrowded() ? WINDOW : 1
  }

  /**
   * The next chunk, made when it is wanted; null: there is none, or none is wanted. An empty one is not sent: a search
   * that has found nothing yet asks by it whether to go on.
   */
  async take(chunks: AsyncIterator<Uint8Array>): Promise<Uint8Array | null> {
    if (!(await this.next())) return null
    let made = await chunks.next()
    while (!made.done && made.value.length === 0 && this.isWanted()) made = await chunks.next()
    return made.done || !this.isWanted() ? null : made.value
  }

  /** Waits until a chunk more is wanted, and counts it as sent; false when none will be. */
  async next(): Promise<boolean> {
    while (this.isWanted() && this.#credit < this.#least()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    this.#credit -= 1
    return this.isWanted()
  }
}

// How far databases were before the server was started, until they are opened.

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
