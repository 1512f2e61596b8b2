/**
 * Short answers that several clients want at once. A commit wakes every device that follows the database, and all of
 * them then send the same `_bulk_get` within a few ms (clients.md 1.1). The first request asks the database's thread; the
 * others take its answer.
 */
import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import type { Body } from '../documents/database.ts'

/** Longer answers are not shared: they hold 16 kB × 256 answers = 4 MB at most. */
const MAX_BYTES = 16 * 1024
const MAX_ANSWERS = 256
/** Devices ask for the documents of one commit, which are few. */
const MAX_BODY_BYTES = 1024
/**
 * Devices on one network are within about 100 ms of one another. What changes an answer without an event, such as a
 * compaction that drops old revisions, shows after this time at the latest. In ms.
 */
const MAX_AGE = 1000

/** The chunks of an answer. */
export interface Chunks extends AsyncIterableIterator<Uint8Array> {
  /** Whether the last chunk was read, as far as known. */
  readonly isAtEnd: boolean
  return(): Promise<IteratorResult<Uint8Array, undefined>>
}

/** The bytes of an answer that is short and complete; otherwise null. */
type Answer = Promise<Uint8Array | null>

/**
 * The text of a request body that may be shared; null if it is long, or if it may name local documents, which change
 * without an event.
 */
export function sharedBodyText(body: Body): string | null {
  if (!('bytes' in body) || body.bytes.length > MAX_BODY_BYTES) return null
  const { buffer, byteOffset, length } = body.bytes
  const text = Buffer.from(buffer, byteOffset, length).toString('latin1')
  return text.includes('_local') || text.includes('\\') ? null : text
}

export class SharedAnswers {
  readonly #answers = new LRUCache<string, Answer>({
    ...atMost(MAX_ANSWERS),
    ttl: MAX_AGE,
    ttlResolution: 100,
  })

  /**
   * Reads the answer to a request.
   * @param key all that the answer depends on: the database and its state, the user, the request
   * @param ask sends the request; called if no equal request is under way, or was answered just now
   */
  read(key: string, ask: () => Chunks): AsyncIterableIterator<Uint8Array> {
    const answer = this.#answers.get(key)
    if (answer !== undefined) return new SharedReader(answer, ask)
    const reader = new FirstReader(ask())
    this.#answers.set(key, reader.answer)
    return reader
  }
}

/** Reads a stream whose first chunk others may want. */
class FirstReader implements Chunks {
  readonly #reader: Chunks
  #first: Promise<IteratorResult<Uint8Array, undefined>> | undefined
  readonly answer: Answer

  constructor(reader: Chunks) {
    this.#reader = reader
    this.#first = reader.next()
    this.answer = this.#first.then(
      ({ value }) => (value !== undefined && reader.isAtEnd && value.length <= MAX_BYTES ? value : null),
      () => null,
    )
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  get isAtEnd(): boolean {
    return this.#first === undefined && this.#reader.isAtEnd
  }

  next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const first = this.#first
    this.#first = undefined
    return first ?? this.#reader.next()
  }

  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    return this.#reader.return()
  }
}

/** Reads an answer that another request has, or that is known otherwise; sends the request itself if there is none. */
export class SharedReader implements Chunks {
  readonly #answer: Answer
  readonly #ask: () => Chunks
  #own: Chunks | undefined
  #isOver = false

  constructor(answer: Answer, ask: () => Chunks) {
    this.#answer = answer
    this.#ask = ask
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  get isAtEnd(): boolean {
    return this.#own?.isAtEnd ?? this.#isOver
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#own !== undefined) return this.#own.next()
    const value = this.#isOver ? undefined : await this.#answer
    if (this.#isOver || value === undefined) return { done: true, value: undefined }
    if (value !== null) {
      this.#isOver = true
      return { done: false, value }
    }
    this.#own = this.#ask()
    return this.#own.next()
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#isOver = true
    await this.#own?.return()
    return { done: true, value: undefined }
  }
}
