/**
 * Requests and answers over HTTP/2 that behave as those of HTTP/1. Node's own (its "compatibility API") differ where it
 * matters: a cancelled stream looks like an answer that was sent, or like a complete body; and once the connection has
 * closed, a request no longer knows its client's address.
 */
import {
  constants,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Socket } from 'node:net'
import type { Readable, ReadableOptions, Stream } from 'node:stream'
import { Connection, type Http2State } from './connection.ts'
import { guardHeaders, needsNoSandbox } from './page-policy.ts'

/** The flow-control window of a stream, in bytes. A smaller one makes uploads over mobile networks wait for each round trip. */
export const STREAM_WINDOW = 256 * 1024
/** How long a stream's reset may take to be sent before the stream is destroyed without it, in milliseconds. */
const RESET_MS = 1000

/** Takes the place of a request's socket: it counts the bytes of the stream, and ends with the stream. */
class StreamSocket {
  readonly encrypted = true
  readonly remoteAddress: string | undefined
  /** Bytes of the body that were read from the connection. */
  bytesRead = 0
  /** Bytes of the answer's body. */
  bytesWritten = 0
  readonly #stream: ServerHttp2Stream

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream
    stream.once('aborted', () => destroyAborted(stream))
    const socket = stream.session?.socket
    this.remoteAddress = socket?.remoteAddress
    if (socket !== undefined) Connection.of(socket)?.attachTo(this)
  }

  get destroyed(): boolean {
    return this.#stream.destroyed || this.#stream.closed
  }

  /** Cancels the stream, which the client takes for a failure. The connection stays open. */
  destroy(): void {
    cancelStream(this.#stream)
  }

  once(event: 'close', listener: () => void): this {
    this.#stream.once(event, listener)
    return this
  }
}

/** Ends a stream whose answer is incomplete. Clients take NO_ERROR and CANCEL for an orderly end. */
export function cancelStream(stream: ServerHttp2Stream): void {
  if (stream.destroyed) return
  stream.close(constants.NGHTTP2_INTERNAL_ERROR)
  // A connection that is not read does not send the reset, either.
  const giveUp = setTimeout(() => stream.destroy(), RESET_MS)
  stream.once('close', () => clearTimeout(giveUp))
}

/** When a client cancels with NO_ERROR, Node waits until the client takes what was sent before. */
function destroyAborted(stream: ServerHttp2Stream): void {
  if (stream.rstCode === constants.NGHTTP2_NO_ERROR) setImmediate(() => stream.destroy())
}

/** A stream's request and answer share one. */
const sockets = new WeakMap<ServerHttp2Stream, StreamSocket>()

function socketOf(stream: ServerHttp2Stream): StreamSocket {
  let socket = sockets.get(stream)
  if (socket === undefined) {
    socket = new StreamSocket(stream)
    sockets.set(stream, socket)
  }
  return socket
}

/** The used part of Node's classes. Their own types declare accessors as fields, which cannot be overridden. */
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
    // After the answer, up to a window of the body may still arrive, and nothing counts it.
    stream.once('close', () => stream.endAfterHeaders || this.readableEnded || this.#count(STREAM_WINDOW))
    // As over HTTP/1: an error without a listener is not a failure: `close` follows.
    this.on('error', () => undefined)
  }

  /** @returns whether there is a body, which needs no header over HTTP/2 */
  get hasBody(): boolean {
    return !this.stream.endAfterHeaders
  }

  #count(bytes: number): void {
    const http2 = Connection.of(this.#socket)?.http2
    if (http2) http2.usefulBytes += bytes
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

  /** Node's own fails on a destroyed stream. */
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
    // Asks the client to stop sending the rest of its body; the other streams go on (RFC 9113 8.1).
    stream.once('finish', () => setImmediate(() => this.#stopBody()))
    // Node emits no `close` for a HEAD whose client leaves before the answer has begun.
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

  /** Whether nothing more can be sent: the client has left, or {@link answerInstead} was called. */
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

  /** Node counts a cancelled answer as finished, too. */
  get writableFinished(): boolean {
    return this.writableEnded && !this.stream.aborted && this.stream.writableFinished
  }

  /**
   * Answers in place of the request's own handler, with settee's own JSON. What the handler sends from now on is discarded, as if the client had
   * left.
   */
  answerInstead(status: number, headers: OutgoingHttpHeaders, body: Buffer): void {
    if (this.destroyed || this.headersSent) return
    needsNoSandbox(this)
    this.writeHead(status, headers)
    if (this.req.method === 'HEAD') super.end()
    else super.end(body)
    this.#isAnswered = true
  }

  override setHeader(name: string, value: number | string | readonly string[]): void {
    if (!this.#isAnswered && !CONNECTION_HEADER.test(name)) super.setHeader(name, value)
  }

  override writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    if (this.#isAnswered) return this
    guardHeaders(this, headers)
    return super.writeHead(status, withoutConnection(headers))
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

  /** Ends the stream with a failure, which no client takes for the end of the answer. */
  destroy(): void {
    if (!this.#isAnswered) this.#socket.destroy()
  }
}

/** HTTP/2 forbids headers about the connection: RFC 9113 8.2.2. */
const CONNECTION_HEADER = /^(?:connection|keep-alive)$/i

function withoutConnection(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  if (!Object.keys(headers).some((name) => CONNECTION_HEADER.test(name))) return headers
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !CONNECTION_HEADER.test(name)))
}

// Frames of HTTP/2 that carry nothing useful: RFC 9113 10.5. Node ends connections that flood it with SETTINGS, PING,
// CONTINUATION and reset streams, but accepts any number of WINDOW_UPDATE and empty DATA, and reports no frames. Their
// sign is bytes that arrive and belong neither to a head nor to a body.

/** The interval of the checks, in milliseconds. */
const CHECK_MS = 1000
/** Useless bytes that a connection may send at once, and in a second: 160,000 frames take 15 ms. */
const BURST = 2 * 1024 * 1024
const BYTES_PER_SECOND = 64 * 1024
/** Bytes allowed for each useful one: heads of frames, padding. */
const PER_USEFUL_BYTE = 1.25
/** Bytes allowed for each byte that is sent. An acknowledgement has about 26 bytes; a sent frame may hold one line of a feed. */
const PER_SENT_BYTE = 0.5

/**
 * Cuts the connection off (ENHANCE_YOUR_CALM) when it has sent too many useless bytes.
 * @param socket the socket that the session reads
 */
export function limitUselessFrames(http2: Http2State, socket: Socket): void {
  const { session } = http2
  const counts = () => ({ read: socket.bytesRead, sent: socket.bytesWritten, useful: http2.usefulBytes })
  let left = BURST
  let before = counts()
  const checks = setInterval(() => {
    const now = counts()
    const allowed = (now.useful - before.useful) * PER_USEFUL_BYTE + (now.sent - before.sent) * PER_SENT_BYTE
    left = Math.min(BURST, left + BYTES_PER_SECOND + allowed - (now.read - before.read))
    before = now
    if (left >= 0 || session.destroyed) return
    clearInterval(checks)
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM)
    setImmediate(() => socket.destroy())
  }, CHECK_MS)
  checks.unref()
  session.once('close', () => clearInterval(checks))
}
