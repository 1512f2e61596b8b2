/** Streams over rpc.ts: the reader's end, and the flow control at the server's end. */
import { addOutgoing, bytesOfText, isCrowded, removeOutgoing, type Sendable } from '../core/bytes.ts'

/** The reader's messages: `next` asks for one more chunk, `cancel` ends the stream. */
export interface StreamControl {
  readonly type: 'next' | 'cancel'
  readonly call: number
}

/** The reader's end of a stream, with the chunks that have arrived and were not read yet. */
export class RemoteStream {
  readonly database: string | undefined
  readonly #send: (type: 'next' | 'cancel') => void
  readonly #arrived: (Sendable | { readonly error: unknown } | null)[] = []
  #arrival: PromiseWithResolvers<void> | undefined
  #hasEnded: boolean = false

  constructor(database: string | undefined, send: (type: 'next' | 'cancel') => void) {
    this.database = database
    this.#send = send
  }

  chunk(chunk: Sendable): void {
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

  #wake(): void {
    this.#arrival?.resolve()
    this.#arrival = undefined
  }

  #nextArrival(): Promise<void> {
    this.#arrival ??= Promise.withResolvers()
    return this.#arrival.promise
  }

  /** Whether no chunk and no error follows those that were read. */
  get isAtEnd(): boolean {
    return this.#hasEnded && (this.#arrived.length === 0 || this.#arrived[0] === null)
  }

  /** The next chunk; null at the end. @throws the error that ended the stream */
  async next(): Promise<Uint8Array | null> {
    while (this.#arrived.length === 0) {
      if (this.#hasEnded) return null
      await this.#nextArrival()
    }
    const item = this.#arrived.shift() ?? null
    if (isChunk(item)) {
      removeOutgoing(item.length)
      return typeof item === 'string' ? bytesOfText(item) : item
    }
    if (item !== null) throw item.error
    return null
  }

  /** Asks the server for one more chunk, because the last one is used up. Most streams have ended with it. */
  acknowledge(): void {
    if (!this.#hasEnded) this.#send('next')
  }

  /**
   * Ends the stream, and drops unread chunks. Resolves when the server has ended the stream too: until then the server
   * may still read the request, such as a body in a file.
   */
  async close(): Promise<void> {
    if (!this.#hasEnded) this.#send('cancel')
    while (!this.#hasEnded) await this.#nextArrival()
    for (const item of this.#arrived.splice(0)) if (isChunk(item)) removeOutgoing(item.length)
  }
}

function isChunk(item: Sendable | { readonly error: unknown } | null): item is Sendable {
  return typeof item === 'string' || item instanceof Uint8Array
}

/** The chunks of a stream. The server makes one ahead ({@link Flow}). */
export class StreamReader implements AsyncIterableIterator<Uint8Array> {
  readonly #open: () => RemoteStream | Promise<RemoteStream>
  #stream: RemoteStream | undefined
  #opening: Promise<RemoteStream> | undefined
  #isOver = false

  /** @param open sends the request; called by the first read */
  constructor(open: () => RemoteStream | Promise<RemoteStream>) {
    this.#open = open
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Whether the last chunk was read. Known as soon as the server's last message has arrived, before the next read. */
  get isAtEnd(): boolean {
    return this.#stream?.isAtEnd ?? this.#isOver
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#isOver) return { done: true, value: undefined }
    try {
      const chunk = await this.#nextChunk()
      if (chunk !== null) return { done: false, value: chunk }
    } catch (error) {
      this.#isOver = true
      throw error
    }
    this.#isOver = true
    return { done: true, value: undefined }
  }

  #nextChunk(): Promise<Uint8Array | null> {
    if (this.#stream !== undefined) {
      this.#stream.acknowledge()
      return this.#stream.next()
    }
    const opened = this.#open()
    if (!(opened instanceof Promise)) {
      this.#stream = opened
      return opened.next()
    }
    this.#opening = opened
    return opened.then((stream) => {
      this.#stream = stream
      return stream.next()
    })
  }

  /** Ends the stream. Resolves when the server has ended it too. */
  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#isOver = true
    const stream = this.#stream ?? (await this.#opening?.catch(() => undefined))
    await stream?.close()
    return { done: true, value: undefined }
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
