/** Streams over rpc.ts: the reader's end, and the flow control at the server's end. */
import { addOutgoing, isCrowded, removeOutgoing } from '../core/bytes.ts'

/** The reader's messages: `next` asks for one more chunk, `cancel` ends the stream. */
export interface StreamControl {
  readonly type: 'next' | 'cancel'
  readonly call: number
}

/** The reader's end of a stream, with the chunks that have arrived and were not read yet. */
export class RemoteStream {
  readonly database: string | undefined
  readonly #send: (type: 'next' | 'cancel') => void
  readonly #arrived: (Uint8Array | { readonly error: unknown } | null)[] = []
  #wake: () => void = () => undefined
  #hasEnded: boolean = false

  constructor(database: string | undefined, send: (type: 'next' | 'cancel') => void) {
    this.database = database
    this.#send = send
  }

  chunk(chunk: Uint8Array): void {
    addOutgoing(chunk.length)
    this.#arrived.push(chunk)
    this.#wake()
  }

  answer(): void {
    this.end()
  }

  end(): void {
    this.#finish(null)
  }

  fail(error: unknown): void {
    this.#finish({ error })
  }

  #finish(item: { readonly error: unknown } | null): void {
    this.#arrived.push(item)
    this.#hasEnded = true
    this.#wake()
  }

  /** The next chunk; null at the end. @throws the error that ended the stream */
  async next(): Promise<Uint8Array | null> {
    while (this.#arrived.length === 0) await this.#arrival()
    const item = this.#arrived.shift()
    if (item instanceof Uint8Array) {
      removeOutgoing(item.length)
      return item
    }
    if (item) throw item.error
    return null
  }

  /** Asks the server for one more chunk, because the last one is used up. */
  acknowledge(): void {
    this.#send('next')
  }

  /**
   * Ends the stream, and drops unread chunks. Resolves when the server has ended the stream too: until then the server
   * may still read the request, such as a body in a file.
   */
  async close(): Promise<void> {
    if (!this.#hasEnded) this.#send('cancel')
    while (!this.#hasEnded) await this.#arrival()
    for (const item of this.#arrived.splice(0)) if (item instanceof Uint8Array) removeOutgoing(item.length)
  }

  #arrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}

/**
 * Reads a stream. The server makes one chunk ahead ({@link Flow}).
 * @param open sends the request; called before the first read
 */
export async function* readStream(open: () => RemoteStream): AsyncGenerator<Uint8Array> {
  const stream = open()
  try {
    for (let chunk = await stream.next(); chunk !== null; chunk = await stream.next()) {
      yield chunk
      stream.acknowledge()
    }
  } finally {
    await stream.close()
  }
}

/** Chunks that a reader may have at once: one in use, and one ahead. */
const WINDOW = 2

/**
 * Flow control of a stream on the server. A chunk is made only when the reader asks for it, so that no chunks pile up
 * for a reader that has stopped.
 */
export class Flow {
  /** The first chunks are sent without a request. */
  #credit = WINDOW
  #isCancelled = false
  #failure: { readonly error: unknown } | undefined
  #wake: () => void = () => undefined

  /** The reader has used up one chunk. */
  pull(): void {
    this.#credit += 1
    this.#wake()
  }

  /** The reader has cancelled the stream. */
  cancel(): void {
    this.#isCancelled = true
    this.#wake()
  }

  /** Ends the stream with an error, so that the reader does not mistake a part for the whole. */
  fail(error: unknown): void {
    this.#failure ??= { error }
    this.#wake()
  }

  /** Whether the reader still reads. @throws the error given to {@link fail} */
  isWanted(): boolean {
    if (this.#failure !== undefined) throw this.#failure.error
    return !this.#isCancelled
  }

  /**
   * Makes the next chunk once the reader asks for it; null at the end, or after a cancellation. Empty chunks are not
   * sent:
   * a search that has found nothing yet yields them to learn whether to go on.
   */
  async take(chunks: AsyncIterator<Uint8Array>): Promise<Uint8Array | null> {
    if (!(await this.next())) return null
    let made = await chunks.next()
    while (!made.done && made.value.length === 0 && this.isWanted()) made = await chunks.next()
    return made.done || !this.isWanted() ? null : made.value
  }

  /** Waits until the reader asks for one more chunk, and counts it as sent; false after a cancellation. */
  async next(): Promise<boolean> {
    while (this.isWanted() && this.#credit < minCredit()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    this.#credit -= 1
    return this.isWanted()
  }
}

/** When many bytes wait for readers that have stopped, no chunk is made ahead. */
function minCredit(): number {
  return isCrowded() ? WINDOW : 1
}
