/**
 * Requests and answers over HTTP/2 as the house knows them from HTTP/1. Node's own (its "compatibility API") differ where
 * it matters: a stream that its client has cancelled looks like an answer that was sent, or like a body that came whole;
 * and with its connection a request forgets whose it was.
 */
import {
  constants,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Readable, ReadableOptions, Stream } from 'node:stream'
import { Link } from './link.ts'

/** Bytes of a body that may be under way; with fewer an upload over a mobile network would wait for each other packet. */
export const STREAM_WINDOW = 256 * 1024
/** How long the word that an answer has failed may take to leave, before its stream is let go without it. */
const TELLING_MS = 1000

/** What stands for the socket of a request: what it has of its connection to itself, and its end is the stream's. */
class StreamSocket {
  readonly encrypted = true
  readonly remoteAddress: string | undefined
  /** Of the body, as far as it was taken from the connection. */
  bytesRead = 0
  /** Of the answer's body. */
  bytesWritten = 0
  readonly #stream: ServerHttp2Stream

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream
    stream.once('aborted', () => release(stream))
    const socket = stream.session?.socket
    this.remoteAddress = socket?.remoteAddress
    if (socket !== undefined) Link.of(socket)?.nameIn(this)
  }

  get destroyed(): boolean {
    return this.#stream.destroyed || this.#stream.closed
  }

  /** Cancels the stream; its client takes what it has for a failure. The connection stays. */
  destroy(): void {
    cancelStream(this.#stream)
  }

  once(event: 'close', listener: () => void): this {
    this.#stream.once(event, listener)
    return this
  }
}

/** Ends a stream of which there is no more to be sent. Not by NO_ERROR nor CANCEL: clients take these for its end in order. */
export function cancelStream(stream: ServerHttp2Stream): void {
  if (stream.destroyed) return
  stream.close(constants.NGHTTP2_INTERNAL_ERROR)
  // A connection that takes nothing takes no word of the end either.
  const giveUp = setTimeout(() => stream.destroy(), TELLING_MS)
  stream.once('close', () => clearTimeout(giveUp))
}

/** Of a client that cancels a stream in these words Node waits until it takes what it was sent before. */
function release(stream: ServerHttp2Stream): void {
  if (stream.rstCode === constants.NGHTTP2_NO_ERROR) setImmediate(() => stream.destroy())
}

/** One for each stream: its request and its answer have the same. */
const sockets = new WeakMap<ServerHttp2Stream, StreamSocket>()

function socketOf(stream: ServerHttp2Stream): StreamSocket {
  let socket = sockets.get(stream)
  if (socket === undefined) {
    socket = new StreamSocket(stream)
    sockets.set(stream, socket)
  }
  return socket
}

/** As much of Node's classes as is made use of; their types take accessors for fields, which nobody could override. */
interface NodeRequest extends Omit<Readable, 'destroyed' | 'push'> {
  destroyed: boolean
  readonly stream: ServerHttp2Stream
  readonly aborted: boolean
  readonly method: string
  _read(size: number): void
  push(chunk: Buffer | null): boolean
}
interface NodeResponse extends Stream {
  readonly stream: ServerHttp2Stream
  readonly req: NodeRequest
  readonly headersSent: boolean
  setHeader(name: string, value: number | string | readonly string[]): void
  writeHead(status: number, headers?: OutgoingHttpHeaders): this
  flushHeaders(): void
  write(...args: WriteArguments): boolean
  end(...args: [] | [data: string | Uint8Array, encoding?: BufferEncoding]): this
}
type WriteArguments = [
  data: string | Uint8Array,
  encoding?: BufferEncoding | ((error?: Error) => void),
  callback?: (error?: Error) => void,
]
const NodeRequest = Http2ServerRequest as unknown as new (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  options: ReadableOptions,
  rawHeaders: readonly string[],
) => NodeRequest
const NodeResponse = Http2ServerResponse as unknown as new (stream: ServerHttp2Stream) => NodeResponse

export class StreamRequest extends NodeRequest {
  readonly #socket: StreamSocket

  constructor(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    options: ReadableOptions,
    rawHeaders: readonly string[],
  ) {
    // Browsers name the host in `:authority` alone.
    headers.host ??= headers[':authority']
    super(stream, headers, options, rawHeaders)
    this.#socket = socketOf(stream)
    for (const text of rawHeaders) this.#count(text.length)
    // Once it was answered, as much of its body may still be on its way, and goes past everybody.
    stream.once('close', () => stream.endAfterHeaders || this.readableEnded || this.#count(STREAM_WINDOW))
    // As over HTTP/1: who does not listen for it learns of the end by `close`.
    this.on('error', () => undefined)
  }

  /** @returns whether there is a body, of which no header need tell */
  get hasBody(): boolean {
    return !this.stream.endAfterHeaders
  }

  #count(bytes: number): void {
    const http2 = Link.of(this.#socket)?.http2
    if (http2) http2.useful += bytes
  }

  get complete(): boolean {
    return !this.hasBody || this.readableEnded || this.#socket.destroyed
  }

  get socket(): StreamSocket {
    return this.#socket
  }

  override get destroyed(): boolean {
    return this.#socket?.destroyed ?? false
  }

  override set destroyed(_) {
    // Node's streams set it in their constructor.
  }

  /** Node's would fail where the stream has gone. */
  override _read(size: number): void {
    if (!this.destroyed) super._read(size)
  }

  /** A body that was cut off does not end: it closes, as over HTTP/1. */
  override push(chunk: Buffer | null): boolean {
    if (chunk === null) return this.aborted ? false : super.push(null)
    this.#socket.bytesRead += chunk.length
    this.#count(chunk.length)
    return super.push(chunk)
  }
}

export class StreamResponse extends NodeResponse {
  readonly #socket: StreamSocket
  #isAnswered = false
  #isEnded = false
  #isClosed = false

  constructor(stream: ServerHttp2Stream) {
    super(stream)
    this.#socket = socketOf(stream)
    // Nobody reads what of the body is still to come: the client is told, and the other streams go on (RFC 9113 8.1).
    stream.once('finish', () => setImmediate(() => this.#stopBody()))
    // Node says nothing of a HEAD whose client goes before the answer has begun.
    this.once('close', () => {
      this.#isClosed = true
    })
    stream.once('close', () => this.#isClosed || this.emit('close'))
  }

  #stopBody(): void {
    const { stream, req } = this
    if (stream.destroyed || stream.closed || req.readableEnded || stream.endAfterHeaders) return
    stream.close(constants.NGHTTP2_NO_ERROR)
  }

  /** Whether the client can be sent nothing more: it has gone, or {@link answerInstead} was called. */
  get destroyed(): boolean {
    return this.#isAnswered || this.#socket.destroyed
  }

  get closed(): boolean {
    return this.destroyed
  }

  get socket(): StreamSocket {
    return this.#socket
  }

  get writableEnded(): boolean {
    return this.#isEnded
  }

  /** Node calls an answer finished, too, that its client has cancelled. */
  get writableFinished(): boolean {
    return this.writableEnded && !this.stream.aborted && this.stream.writableFinished
  }

  /**
   * Answers in place of the request's own code, which may not have come to an answer: what that sends from now on goes
   * nowhere, as if the client had gone.
   */
  answerInstead(status: number, headers: OutgoingHttpHeaders, body: Buffer): void {
    if (this.destroyed || this.headersSent) return
    super.writeHead(status, withoutConnection(headers))
    if (this.req.method === 'HEAD') super.end()
    else super.end(body)
    this.#isAnswered = true
  }

  override setHeader(name: string, value: number | string | readonly string[]): void {
    if (!this.#isAnswered && !CONNECTION.test(name)) super.setHeader(name, value)
  }

  override writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    return this.#isAnswered ? this : super.writeHead(status, withoutConnection(headers))
  }

  override flushHeaders(): void {
    if (!this.#isAnswered) super.flushHeaders()
  }

  override write(...args: WriteArguments): boolean {
    if (this.destroyed) return false
    const [data, encoding] = args
    const isText = typeof data === 'string' && typeof encoding === 'string'
    this.#socket.bytesWritten += isText ? Buffer.byteLength(data, encoding) : Buffer.byteLength(data)
    return super.write(...args)
  }

  override end(...args: [] | [data: string | Uint8Array, encoding?: BufferEncoding]): this {
    if (this.#isAnswered || this.#isClosed) return this
    this.#isEnded = true
    return super.end(...args)
  }

  /** Ends the stream in a way that no client takes for the end of the answer. */
  destroy(): void {
    if (!this.#isAnswered) this.#socket.destroy()
  }
}

/** What is said of a connection has no place in HTTP/2: RFC 9113 8.2.2. */
const CONNECTION = /^(?:connection|keep-alive)$/i

function withoutConnection(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  if (!Object.keys(headers).some((name) => CONNECTION.test(name))) return headers
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !CONNECTION.test(name)))
}
