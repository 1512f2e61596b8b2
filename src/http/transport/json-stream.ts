/** Streamed answers. They hold no more in memory than the client's connection accepts. */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { addOutgoing, type ByteText, byteText, discard, removeOutgoing } from '../../core/bytes.ts'
import { asCouchError } from '../../core/errors.ts'
import { JSONP_TYPE, jsonpFrame, reduceHeaders } from '../plugins/couch-headers.ts'
import { causeOf, factsOf, levelOf } from '../plugins/request-log.ts'
import { COMPRESSED_BYTES, chooseEncoding, type Encoder, makeEncoder } from './compression.ts'
import { needsNoSandbox, type OwnType } from './page-policy.ts'
import { breakOff } from './raw-answer.ts'
import { isSentUnchanged, sendAtOnce } from './short-answer.ts'

/** A client that reads nothing for so long, in milliseconds, counts as gone; its answer would be held forever. */
const STALLED_MS = 300_000

export interface StreamHead {
  readonly status: number
  /** Of an answer whose bytes settee itself has made; absent: the type is in `headers`. */
  readonly type?: OwnType
  readonly headers?: Readonly<Record<string, string>>
  /** The answer stays open for a long time, so that no large memory may be held for it. */
  readonly waits?: boolean
  /** The answer is never compressed: its bytes are the resource itself. */
  readonly asIs?: boolean
  /** The memory of its long pieces is released when they are sent (core/bytes.ts). */
  readonly isOwn?: boolean
  /** An answer of one short chunk is sent with its length, in one write, if its end has arrived with the chunk. */
  readonly isOftenShort?: boolean
  /** Also a short answer is sent in chunks, as CouchDB does. */
  readonly isInChunks?: boolean
  /** Bytes of the whole answer, if they are known. */
  readonly length?: number | undefined
}

export interface ResponseStream {
  /** Aborted if the client leaves before the end. */
  readonly signal: AbortSignal
  /**
   * Sends a piece at once and whole, compressed or not. Resolves when the connection takes more or has closed; never
   * rejects. Wait for a long piece before you write the next.
   */
  write(bytes: Uint8Array): Promise<void>
  /** Ends the answer; resolves when all of it was passed to the connection. */
  end(): Promise<void>
  /** Breaks the connection, so that the client sees a failure. */
  fail(cause: unknown): void
}

/**
 * Sends the head, with the headers that hooks and plugins have set on the reply, and takes the answer over from Fastify.
 * The answer is compressed if the client accepts that. A HEAD gets the head only.
 */
export function openStream(request: FastifyRequest, reply: FastifyReply, head: StreamHead): ResponseStream {
  const callback = head.type === 'application/json' ? request.jsonp : null
  const isTooShort = head.length !== undefined && head.length < COMPRESSED_BYTES
  const isPlain = head.asIs || isTooShort
  const encoding = isPlain ? null : chooseEncoding(request.headers['accept-encoding'], head.waits ?? false)
  reply.headers(head.headers ?? {})
  if (callback !== null) reply.header('Content-Type', JSONP_TYPE).removeHeader('Content-Length')
  else if (head.type !== undefined) {
    reply.header('Content-Type', head.type)
    needsNoSandbox(reply.raw)
  }
  if (!head.asIs) addVary(reply, 'Accept-Encoding')
  if (encoding !== null) {
    reply.header('Content-Encoding', encoding)
    reply.removeHeader('Content-Length')
    weakenEtag(reply)
  } else if (head.length !== undefined && callback === null && request.method !== 'HEAD') {
    reply.header('Content-Length', String(head.length))
  }
  reduceHeaders(request, reply)
  reply.hijack()
  const encoder = encoding === null ? null : makeEncoder(encoding)
  const stream = new HttpStream(request, reply, encoder, head.isOwn ?? false)
  stream.open(head.status, reply.getHeaders() as Record<string, string>)
  return callback === null || request.method === 'HEAD' ? stream : new ScriptStream(stream, callback)
}

/** Adds a header of the request, on which the answer depends, to Vary. */
export function addVary(reply: FastifyReply, name: string): void {
  const vary = reply.getHeader('vary')
  reply.header('Vary', vary === undefined ? name : `${vary}, ${name}`)
}

/** A strong validator promises equal bytes, which a compressed answer is not: RFC 9110 8.8.1. */
function weakenEtag(reply: FastifyReply): void {
  const etag = reply.getHeader('etag')
  if (typeof etag === 'string' && !etag.startsWith('W/')) reply.header('ETag', `W/${etag}`)
}

/** The chunks of an answer. */
interface Chunks extends AsyncIterator<Uint8Array> {
  /** Whether the last chunk was read; undefined if that is not known before the next read. */
  readonly isAtEnd?: boolean
}

/**
 * Streams an answer.
 *
 * @param answer.chunks the first chunk is awaited before the head is sent, so that its error becomes a proper answer. A
 * later error breaks the connection. If the client leaves, the iterator's `return` is called.
 */
export async function sendStream(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: StreamHead & { readonly chunks: AsyncIterable<Uint8Array> },
): Promise<void> {
  const iterator: Chunks = answer.chunks[Symbol.asyncIterator]()
  const giveUp = () => void Promise.resolve(iterator.return?.()).catch(() => {})
  const goneEarly = () => !reply.raw.headersSent && giveUp()
  reply.raw.once('close', goneEarly)
  const first = await iterator.next()
  reply.raw.off('close', goneEarly)
  const length = answer.isOftenShort ? wholeLength(first, iterator) : undefined
  if (length !== undefined && sendShort(request, reply, answer, first.value as Uint8Array)) return
  const stream = openStream(request, reply, { ...answer, isOwn: true, length })
  stream.signal.addEventListener('abort', giveUp, { once: true })
  if (request.method === 'HEAD' || stream.signal.aborted) giveUp()
  else await sendAll(stream, iterator, first)
}

/**
 * Sends a whole answer in one write.
 * @returns false if nothing was sent: it is not sent as it is
 */
export function sendShort(
  request: FastifyRequest,
  reply: FastifyReply,
  { status, type, headers = {}, isInChunks = false }: StreamHead,
  bytes: Uint8Array,
): boolean {
  const text = byteText(bytes)
  if (type === undefined || request.jsonp !== null || !isSentUnchanged(request, text)) return false
  reply.headers(headers).header('Content-Type', type)
  needsNoSandbox(reply.raw)
  addVary(reply, 'Accept-Encoding')
  sendAtOnce(reply, status, text, !isInChunks)
  return true
}

/** @returns undefined if the answer is longer than its first chunk, or may be */
function wholeLength(first: IteratorResult<Uint8Array>, { isAtEnd }: Chunks): number | undefined {
  const isWhole = !first.done && isAtEnd === true && first.value.length <= SHORT_BYTES
  return isWhole ? first.value.length : undefined
}

async function sendAll(
  stream: ResponseStream,
  iterator: AsyncIterator<Uint8Array>,
  first: IteratorResult<Uint8Array>,
): Promise<void> {
  try {
    let next = first
    while (!next.done && !stream.signal.aborted) {
      await stream.write(next.value)
      next = await iterator.next()
    }
    await stream.end()
  } catch (thrown) {
    stream.fail(thrown)
  }
}

class HttpStream implements ResponseStream {
  readonly #request: FastifyRequest
  readonly #reply: FastifyReply
  readonly #raw: ServerResponse
  readonly #encoder: Encoder | null
  readonly #isOwn: boolean
  readonly #gone = new AbortController()

  constructor(request: FastifyRequest, reply: FastifyReply, encoder: Encoder | null, isOwn: boolean) {
    this.#request = request
    this.#reply = reply
    this.#raw = reply.raw
    this.#encoder = encoder
    this.#isOwn = isOwn
  }

  get signal(): AbortSignal {
    return this.#gone.signal
  }

  open(status: number, headers: Record<string, string>): void {
    const raw = this.#raw
    // A pipelined answer that waits for its turn gets no event when its connection closes.
    if (raw.socket === null) onRequestEnd(this.#request, this.#reply, () => this.#closed())
    else raw.once('close', () => this.#closed())
    if (raw.destroyed || raw.closed) {
      this.#closed()
      return
    }
    raw.writeHead(status, headers)
    if (this.#request.method === 'HEAD') raw.end()
    else if (this.#encoder !== null && this.#encoder.head.length > 0) raw.write(this.#encoder.head)
    // Chunks of this turn are sent together with the head.
    else process.nextTick(() => raw.destroyed || raw.flushHeaders())
  }

  #closed(): void {
    this.#encoder?.close()
    if (!this.#raw.writableFinished) this.#gone.abort()
  }

  async write(bytes: Uint8Array): Promise<void> {
    try {
      if (this.#encoder === null) await this.#put(bytes, this.#isOwn)
      else await this.#put(await this.#encoded(this.#encoder, bytes))
    } catch (thrown) {
      this.fail(thrown)
    }
  }

  async #encoded(encoder: Encoder, bytes: Uint8Array): Promise<Uint8Array> {
    const made = encoder.encode(bytes)
    const encoded = made instanceof Promise ? await made : made
    if (this.#isOwn && bytes.length > SHORT_BYTES) discard(bytes)
    return encoded
  }

  async end(): Promise<void> {
    if (this.signal.aborted || this.#raw.writableEnded) return
    try {
      if (this.#encoder !== null) await this.#put(await this.#encoder.finish())
      this.#raw.end()
    } catch (thrown) {
      this.fail(thrown)
    }
  }

  fail(cause: unknown): void {
    if (this.signal.aborted) return
    const error = asCouchError(cause)
    // A database that was deleted, or a revoked right, is no fault.
    const level = error.status < 500 ? 'warn' : levelOf(error)
    const facts = { ...causeOf(error), ...factsOf(this.#request) }
    this.#request.log[level](facts, 'an answer broke off while it was sent')
    breakOff(this.#raw)
  }

  #put(bytes: Uint8Array, isOwn = false): Promise<void> | undefined {
    const raw = this.#raw
    if (bytes.length === 0 || this.signal.aborted || raw.writableEnded) return undefined
    // Their buffer may be detached once they are sent.
    const { length } = bytes
    if (this.#writeRaw(bytes, isOwn)) return undefined
    addOutgoing(length)
    return new Promise((resolve) => {
      let isOver = false
      const stalled = setTimeout(() => breakOff(raw), STALLED_MS)
      const onTaken = () => {
        if (isOver) return
        isOver = true
        clearTimeout(stalled)
        raw.off('drain', onTaken)
        raw.off('close', onTaken)
        this.signal.removeEventListener('abort', onTaken)
        removeOutgoing(length)
        resolve()
      }
      raw.on('drain', onTaken)
      raw.on('close', onTaken)
      this.signal.addEventListener('abort', onTaken)
    })
  }

  /** @returns whether the connection takes more */
  #writeRaw(bytes: Uint8Array, isOwn: boolean): boolean {
    const raw = this.#raw
    // `drain` does not mean that they are written: Node emits it also when another answer of the connection grows.
    if (isOwn && bytes.length > SHORT_BYTES) return raw.write(bytes, () => discard(bytes))
    if (bytes.length > SHORT_BYTES) return raw.write(bytes)
    // Node writes a text together with the head.
    if (!raw.chunkedEncoding) return raw.write(byteText(bytes), 'latin1')
    raw.chunkedEncoding = false
    const takesMore = raw.write(chunkOf(bytes), 'latin1')
    raw.chunkedEncoding = true
    return takesMore
  }
}

/** JSONP: JSON inside the call of a function. */
class ScriptStream implements ResponseStream {
  readonly #inner: ResponseStream
  readonly #begun: Promise<void>
  readonly #after: Buffer

  constructor(inner: ResponseStream, callback: string) {
    const [before, after] = jsonpFrame(callback)
    this.#inner = inner
    this.#begun = inner.write(before)
    this.#after = after
  }

  get signal(): AbortSignal {
    return this.#inner.signal
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#begun
    return this.#inner.write(bytes)
  }

  async end(): Promise<void> {
    await this.#begun
    await this.#inner.write(this.#after)
    return this.#inner.end()
  }

  fail(cause: unknown): void {
    this.#inner.fail(cause)
  }
}

/** In bytes; copying a longer piece would cost more than it saves. */
const SHORT_BYTES = 16 * 1024

const chunks = new WeakMap<Uint8Array, ByteText>()

/**
 * A piece as a chunk (RFC 9112 7.1), made once for all feeds that send it. Node would write four buffers for each feed; a
 * line to 100 feeds takes 0.8 ms less this way.
 */
function chunkOf(bytes: Uint8Array): ByteText {
  let chunk = chunks.get(bytes)
  if (chunk === undefined) {
    chunk = `${bytes.length.toString(16)}\r\n${byteText(bytes)}\r\n`
    chunks.set(bytes, chunk)
  }
  return chunk
}

/** One listener for each connection, however many requests it has. */
const ends = new WeakMap<Socket, Set<() => void>>()

/**
 * Calls `end` once, when the answer is sent or the connection has closed. For a pipelined request whose answer waits for
 * its turn, Node itself emits neither.
 * @param end not called if the connection is closed already
 * @returns cancels the call
 */
export function onRequestEnd(request: FastifyRequest, reply: FastifyReply, end: () => void): () => void {
  const calls = endsOf(request.raw.socket)
  const forget = () => {
    calls.delete(call)
    reply.raw.off('close', call)
  }
  const call = () => {
    forget()
    end()
  }
  calls.add(call)
  reply.raw.once('close', call)
  return forget
}

function endsOf(socket: Socket): Set<() => void> {
  const known = ends.get(socket)
  if (known !== undefined) return known
  const calls = new Set<() => void>()
  ends.set(socket, calls)
  socket.once('close', () => {
    for (const call of [...calls]) call()
  })
  return calls
}
