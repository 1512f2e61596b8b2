import { randomUUID } from 'node:crypto'
import { read } from 'node:fs'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { CouchError } from '../../core/errors.ts'
import { discard } from '../../core/outgoing.ts'
import type { Body } from '../../documents/database.ts'
import type { BodyRoom } from './body-memory.ts'

/** A body larger than this goes to a file however much memory is free (architecture.md, "How a save travels"). */
export const MAX_IN_MEMORY = 8 * 1024 * 1024

/**
 * Gathers one body: in memory while it is small and the budget has room, else in a file that has no name any
 * more, so that it is gone when the server dies. Whoever makes one calls {@link close} in the end.
 */
export class BodyCollector {
  readonly #memory: BodyRoom
  readonly #tmpDir: string | null
  readonly #takeRoom: (bytes: number) => void
  /** Whether it will be in a file in the end: then it goes there at once, and leaves the memory to others. */
  readonly #isLarge: boolean
  #chunks: Uint8Array[] = []
  #length = 0
  #reserved = 0
  #file: FileHandle | null = null

  /**
   * @param tmpDir where the file is made; null: a body that holds passwords, of which nothing must reach the disk
   * @param takeRoom called with the length that the file will have, before it is written to; throws what the body is
   *   refused with where there is no room
   * @param announced how long it is said to be; NaN: that is not said
   */
  constructor(
    memory: BodyRoom,
    tmpDir: string | null,
    takeRoom: (bytes: number) => void = () => {},
    announced = Number.NaN,
  ) {
    this.#memory = memory
    this.#tmpDir = tmpDir
    this.#takeRoom = takeRoom
    this.#isLarge = announced > MAX_IN_MEMORY && tmpDir !== null
  }

  get length(): number {
    return this.#length
  }

  /**
   * Takes the next piece, which is the collector's own from now on.
   * @returns a promise when it goes to a file; the next piece must wait for it
   * @throws insufficient_storage; too_large, unavailable for what must not go to a file
   */
  add(chunk: Uint8Array): undefined | Promise<void> {
    this.#length += chunk.length
    const mayStay = this.#file === null && !this.#isLarge && this.#length <= MAX_IN_MEMORY
    if (mayStay && this.#memory.reserve(chunk.length)) {
      this.#reserved += chunk.length
      this.#chunks.push(chunk)
      return undefined
    }
    return this.#spool(chunk)
  }

  /** The whole body. */
  finish(): Body {
    if (this.#file !== null) return { file: this.#file.fd, length: this.#length }
    const [first] = this.#chunks
    if (first !== undefined && this.#chunks.length === 1) {
      this.#chunks = []
      return { bytes: first }
    }
    const bytes = new Uint8Array(this.#length)
    let at = 0
    for (const chunk of this.#chunks) {
      bytes.set(chunk, at)
      at += chunk.length
    }
    this.#discardChunks()
    return { bytes }
  }

  /** Left to the collector, the chunks of eleven refused bodies at once took 47 MB. */
  #discardChunks(): void {
    const chunks = this.#chunks
    this.#chunks = []
    for (const chunk of chunks) discard(chunk)
  }

  /** Gives the memory back and closes the file. Idempotent. */
  async close(): Promise<void> {
    this.#discardChunks()
    this.#giveBack()
    const file = this.#file
    this.#file = null
    await file?.close()
  }

  async #spool(chunk: Uint8Array): Promise<void> {
    if (this.#tmpDir === null) throw this.#refusal()
    this.#takeRoom(this.#length)
    try {
      if (this.#file === null) {
        this.#file = await openUnnamed(this.#tmpDir)
        // `close` gives back the memory of the chunks that it finds, and a write may still be reading these.
        const earlier = this.#chunks
        this.#chunks = []
        for (const one of earlier) await this.#append(this.#file, one)
        this.#giveBack()
      }
      await this.#append(this.#file, chunk)
    } catch (error) {
      throw spoolFailure(error)
    }
  }

  #refusal(): CouchError {
    if (this.#length <= MAX_IN_MEMORY) return new CouchError('unavailable')
    const said = `the request entity is too large: the limit for _users is ${MAX_IN_MEMORY} bytes`
    return new CouchError('too_large', said)
  }

  async #append(file: FileHandle, chunk: Uint8Array): Promise<void> {
    await file.appendFile(chunk)
    discard(chunk)
  }

  #giveBack(): void {
    this.#memory.release(this.#reserved)
    this.#reserved = 0
  }
}

const readAt = promisify(read)

/** All bytes of a body, wherever it stands; for small ones. */
export async function bytesOf(body: Body): Promise<Uint8Array> {
  if ('bytes' in body) return body.bytes
  const bytes = new Uint8Array(body.length)
  let at = 0
  while (at < bytes.length) {
    const { bytesRead } = await readAt(body.file, bytes, at, bytes.length - at, at)
    if (bytesRead === 0) throw new Error('A spooled body is shorter than it was.')
    at += bytesRead
  }
  return bytes
}

async function openUnnamed(folder: string): Promise<FileHandle> {
  const path = join(folder, `body-${randomUUID()}`)
  const file = await open(path, 'wx+', 0o600)
  await unlink(path)
  return file
}

function spoolFailure(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  return code === 'ENOSPC' || code === 'EDQUOT'
    ? new CouchError('insufficient_storage', undefined, { cause: error })
    : error
}

/** Bytes a second; the slowest of mobile networks brings ten times as many, and who sends fewer holds what others need. */
const MIN_RATE = 100
/**
 * Bytes of the body itself, inflated, a second. Frames of chunks and of gzip are none, so that an upload of nothing but
 * empty blocks ends; what does not compress takes a few bytes more as gzip than it has.
 */
const MIN_BODY_RATE = MIN_RATE / 2

/**
 * Watches over a body that is still coming: for each second of every window it must bring {@link MIN_RATE} bytes, and
 * {@link MIN_BODY_RATE} of what it is inflated to. What waits because it is not taken off the socket is not counted.
 * @param windowMs how long one is, in milliseconds
 * @param onSlow called after each window that brought less
 * @param bodyBytes how many bytes of the body itself have come so far; absent: nobody reads it
 * @returns what ends the watch
 */
export function watchProgress(
  request: IncomingMessage,
  windowMs: number,
  onSlow: () => void,
  bodyBytes?: () => number,
): () => void {
  const { socket } = request
  let before = socket.bytesRead
  let bodyBefore = 0
  const timer = setInterval(() => {
    const brought = socket.bytesRead - before
    before += brought
    const ofBody = (bodyBytes?.() ?? Infinity) - bodyBefore
    bodyBefore += ofBody
    const isSlow = isBelow(MIN_RATE, brought, windowMs) || isBelow(MIN_BODY_RATE, ofBody, windowMs)
    if (isSlow && !request.isPaused()) onSlow()
  }, windowMs)
  return () => clearInterval(timer)
}

function isBelow(rate: number, bytes: number, windowMs: number): boolean {
  return bytes < (rate * windowMs) / 1000
}

// `Expect: 100-continue` (RFC 9110 10.1.1): the client holds its body back until it is told to go on. It is told
// when the body is about to be read, so a refused upload costs nobody anything. (Node closes the connection by
// itself after an answer that came instead.)

const waiting = new WeakMap<IncomingMessage, ServerResponse>()

/** Takes over from Node, which would tell every client to go on before anything has looked at the request. */
export function holdContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response)
    server.emit('request', request, response)
  })
  // Other expectations may be passed over; Node's answer to them has no body.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response)
  })
}

/**
 * Tells the client to send its body, if it waits for that. Where an earlier request of the connection is not answered
 * yet it is told after that: Node would keep the line for then, but send it behind the head of the answer.
 */
export function sendContinue(request: IncomingMessage): void {
  const response = waiting.get(request)
  waiting.delete(request)
  if (response === undefined) return
  if (response.socket !== null) response.writeContinue()
  else response.once('socket', () => response.headersSent || response.writeContinue())
}
