/**
 * Calls from one thread to another over a MessagePort. A call gets one answer or a stream of chunks; the server also
 * sends events. Short bytes are sent as texts, longer ones by transferring their memory. Messages of one turn of the
 * event loop are posted in batches, because a post costs more than its contents (docs/decisions/0006).
 */
import type { MessagePort, TransferListItem, Worker } from 'node:worker_threads'
import { BytesInTransit, byteText, type Sendable } from '../core/bytes.ts'
import { CouchError, type PackedError, packError, unpackError } from '../core/errors.ts'
import { bodyBytes, MAX_TEXT_BYTES, ownBytes } from './message-bytes.ts'
import { Flow, RemoteStream, type StreamControl } from './rpc-stream.ts'

type Port = Pick<MessagePort | Worker, 'postMessage'>

/** What the server sends for one call. Events have no `call`. */
type Reply =
  | { readonly type: 'answer'; readonly call: number; readonly value: unknown }
  | { readonly type: 'chunk'; readonly call: number; readonly chunk: Sendable }
  | { readonly type: 'end'; readonly call: number }
  | { readonly type: 'failed'; readonly call: number; readonly error: PackedError }

interface Message {
  readonly type: string
}

/** A call. The client sets its number, so each call needs an object of its own. */
interface CallRequest extends Message {
  call?: number
  /** The database that the call is for, if any. */
  readonly database?: string
}

/**
 * The messages of a batch. With larger ones, the two threads wait for each other in turn under load: with 16, GET and PUT
 * on 32 connections are a quarter faster.
 */
const MAX_MESSAGES = 16

const NO_TRANSFERS: readonly TransferListItem[] = []

/** Collects messages of one turn of the event loop, and posts them together. */
export class Batch {
  readonly #port: Port
  #messages: object[] = []
  #transfers: TransferListItem[] = []
  #isScheduled = false

  constructor(port: Port) {
    this.#port = port
  }

  /** @param transfers ports, and memory to transfer instead of copying: {@link ownBytes} */
  post(message: object, transfers: readonly TransferListItem[] = NO_TRANSFERS): void {
    if (this.#messages.length === 0) this.#schedule()
    for (const transfer of transfers) this.#transfers.push(transfer)
    if (this.#messages.push(message) >= MAX_MESSAGES) this.flush()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.flush()
    })
  }

  /** Posts the messages collected so far. */
  flush(): void {
    if (this.#messages.length === 0) return
    const messages = this.#messages
    // Two messages may share memory, but it must be listed once.
    const transfers = this.#transfers.length > 0 ? [...new Set(this.#transfers)] : undefined
    this.#messages = []
    this.#transfers = []
    this.#port.postMessage(messages, transfers)
  }
}

/** The calling side. */
export class RpcClient<Event extends Message> {
  readonly #batch: Batch
  readonly #onEvent: (event: Event) => void
  readonly #transit: BytesInTransit
  readonly #pending = new Map<number, Pending>()
  #calls = 0
  /** Set when no more calls are possible. */
  #isClosed = false
  /** Since when calls wait for the server's next message, in ms of `performance.now`; of no meaning while none is under way. */
  waitingSince = 0

  /** @param transit counts bytes between the threads; shared with the server */
  constructor(port: Port, onEvent: (event: Event) => void, transit: BytesInTransit = new BytesInTransit()) {
    this.#batch = new Batch(port)
    this.#onEvent = onEvent
    this.#transit = transit
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Calls and streams under way. */
  get callsUnderWay(): number {
    return this.#pending.size
  }

  /** The databases of the calls under way that match. @param matches by the number of a call */
  databasesUnderWay(matches: (call: number) => boolean): string[] {
    const found = new Set<string>()
    for (const [call, { database }] of this.#pending) {
      if (database !== undefined && matches(call)) found.add(database)
    }
    return [...found]
  }

  /** Handles a batch of messages from the server. */
  receive(messages: readonly (Reply | Event)[]): void {
    this.waitingSince = performance.now()
    for (const message of messages) {
      if ('call' in message) this.#receiveReply(message as Reply)
      else this.#onEvent(message)
    }
  }

  #receiveReply(reply: Reply): void {
    this.#transit.arrive(bytesIn(reply))
    const pending = this.#pending.get(reply.call)
    if (pending === undefined) return
    if (reply.type !== 'chunk') this.#pending.delete(reply.call)
    if (reply.type === 'answer') pending.answer(reply.value)
    else if (reply.type === 'chunk') pending.chunk(reply.chunk)
    else if (reply.type === 'end') pending.end()
    else pending.fail(unpackError(reply.error))
  }

  /** Sends a message that has no answer; does nothing when no more calls are possible. */
  send(message: object, transfers?: readonly TransferListItem[]): void {
    if (!this.#isClosed) this.#batch.post(message, transfers)
  }

  /**
   * Calls the server.
   * @returns the answer
   * @throws the server's error; unavailable when the server has ended
   */
  call(request: CallRequest, transfers?: readonly TransferListItem[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#call(request, transfers, new PendingAnswer(request.database, resolve, reject))
    })
  }

  /**
   * As {@link call}, for a call that a later message refers to.
   * @param onNumber receives the number of the call at once
   */
  numberedCall(request: CallRequest, onNumber: (call: number) => void): Promise<unknown> {
    return new Promise((resolve, reject) => {
      onNumber(this.#call(request, undefined, new PendingAnswer(request.database, resolve, reject)))
    })
  }

  /** Asks the server for a stream of chunks, at once; see StreamReader in rpc-stream.ts. */
  stream(request: CallRequest, transfers?: readonly TransferListItem[]): RemoteStream {
    const stream = new RemoteStream(request.database, (type) =>
      this.send({ type, call } satisfies StreamControl),
    )
    const call = this.#call(request, transfers, stream)
    return stream
  }

  #call(request: CallRequest, transfers: readonly TransferListItem[] | undefined, pending: Pending): number {
    this.#calls += 1
    const call = this.#calls
    if (this.#isClosed) {
      pending.fail(new CouchError('unavailable'))
      return call
    }
    request.call = call
    if (this.#pending.size === 0) this.waitingSince = performance.now()
    this.#batch.post(request, transfers)
    this.#pending.set(call, pending)
    return call
  }

  /** Posts the collected messages now instead of at the end of this turn. */
  flush(): void {
    this.#batch.flush()
  }

  /** Fails all calls under way, and all later ones. @param cause why, for the log */
  close(cause: unknown): void {
    this.#isClosed = true
    const error = new CouchError('unavailable', undefined, { cause })
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    for (const each of pending) each.fail(error)
  }
}

/** A call under way. */
interface Pending {
  readonly database: string | undefined
  answer(value: unknown): void
  chunk(chunk: Sendable): void
  end(): void
  fail(error: unknown): void
}

class PendingAnswer implements Pending {
  readonly database: string | undefined
  readonly answer: (value: unknown) => void
  readonly fail: (error: unknown) => void

  constructor(
    database: string | undefined,
    resolve: (value: unknown) => void,
    reject: (error: unknown) => void,
  ) {
    this.database = database
    this.answer = resolve
    this.fail = reject
  }

  chunk(): void {
    this.fail(new Error('a stream answered a call'))
  }

  end(): void {
    this.chunk()
  }
}

/** The answering side. */
export class RpcServer<Event extends Message> {
  readonly #batch: Batch
  readonly #transit: BytesInTransit
  /** Streams by call, entered with the request: a reader may cancel before the stream begins. */
  readonly #streams = new Map<number, { readonly database: string; readonly flow: Flow }>()

  /** @param transit counts bytes between the threads; shared with the client */
  constructor(port: Port, transit: BytesInTransit = new BytesInTransit()) {
    this.#batch = new Batch(port)
    this.#transit = transit
  }

  sendEvent(event: Event): void {
    this.#batch.post(event)
  }

  /** Posts the collected messages now instead of at the end of this turn. */
  flush(): void {
    this.#batch.flush()
  }

  /** Sends the result of a call once it is known. */
  answer(call: number, result: Promise<unknown>): void {
    result.then(
      (value) => {
        const transfers: TransferListItem[] = []
        this.#post({ type: 'answer', call, value: ownBytes(value, transfers) }, transfers)
      },
      (error: unknown) => this.#fail(call, error),
    )
  }

  /** Notes that the answer of a call will be a stream, for {@link control} and {@link failStreams}. */
  expectStream(call: number, database: string): void {
    this.#streams.set(call, { database, flow: new Flow() })
  }

  isStream(call: number): boolean {
    return this.#streams.has(call)
  }

  /** Handles a message from the reader of a stream. */
  control({ type, call }: StreamControl): void {
    const flow = this.#streams.get(call)?.flow
    if (type === 'next') flow?.pull()
    else flow?.cancel()
  }

  /**
   * Sends the chunks of an expected stream, each when the reader asks for it. Call {@link endStream} afterwards.
   * @param start not called when the reader has cancelled
   */
  async sendChunks(call: number, start: () => AsyncIterable<Uint8Array>): Promise<void> {
    const flow = this.#streams.get(call)?.flow
    if (!flow?.isWanted()) return
    const chunks = start()[Symbol.asyncIterator]()
    try {
      for (let made = await flow.take(chunks); made !== null; made = await flow.take(chunks)) {
        const transfers: TransferListItem[] = []
        const chunk = made.length > MAX_TEXT_BYTES ? ownBytes(made, transfers) : byteText(made)
        this.#post({ type: 'chunk', call, chunk: chunk as Sendable }, transfers)
      }
    } finally {
      await chunks.return?.()
    }
  }

  /** Ends an expected stream when its work has ended. */
  endStream(call: number, work: Promise<void>): void {
    work.then(
      () => {
        this.#streams.delete(call)
        this.#batch.post({ type: 'end', call })
      },
      (error: unknown) => this.#fail(call, error),
    )
  }

  /** Fails all streams, or those of one database. */
  failStreams(error: CouchError, database?: string): void {
    for (const stream of this.#streams.values()) {
      if (database === undefined || stream.database === database) stream.flow.fail(error)
    }
  }

  #post(reply: Reply, transfers: readonly TransferListItem[]): void {
    this.#transit.send(bytesIn(reply))
    this.#batch.post(reply, transfers)
  }

  #fail(call: number, error: unknown): void {
    this.#streams.delete(call)
    this.#batch.post({ type: 'failed', call, error: packError(error) })
  }
}

/** The bytes of a reply that count as unsent until they are read (core/bytes.ts). */
function bytesIn(reply: Reply): number {
  if (reply.type === 'chunk') return reply.chunk.length
  return reply.type === 'answer' ? (bodyBytes(reply.value)?.length ?? 0) : 0
}
