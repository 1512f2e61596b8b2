import { randomUUID } from 'node:crypto'
import { read } from 'node:fs'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { discard } from '../../core/bytes.ts'
import { CouchError } from '../../core/errors.ts'
import type { Body } from '../../documents/database.ts'
import { MAX_IN_MEMORY, type MemoryShare } from './body-limits.ts'

/**
 * Collects one body: in memory while it is small and the budget has room, else in an unlinked file, which is gone when
 * the server dies. Its creator calls {@link close} in the end.
 */
export class BodyCollector {
  readonly #memory: MemoryShare
  readonly #tmpDir: string | null
  readonly #resizeFile: (bytes: number) => void
  /** The body will be in a file in the end, and goes there at once. */
  readonly #isLarge: boolean
  #chunks: Uint8Array[] = []
  #length = 0
  #reserved = 0
  #file: FileHandle | null = null

  /**
   * @param tmpDir the folder for the file; null: the body holds passwords, and must not reach the disk
   * @param resizeFile called with the next length of the file before it is written; throws the refusal if there is no room
   * @param announced the body's length by its header; NaN: there is none
   */
  constructor(
    memory: MemoryShare,
    tmpDir: string | null,
    resizeFile: (bytes: number) => void = () => {},
    announced = Number.NaN,
  ) {
    this.#memory = memory
    this.#tmpDir = tmpDir
    this.#resizeFile = resizeFile
    this.#isLarge = announced > MAX_IN_MEMORY && tmpDir !== null
  }

  get length(): number {
    return this.#length
  }

  /**
   * Adds the next chunk, which belongs to the collector from now on.
   * @returns a promise if the chunk goes to a file; the next one must wait for it
   * @throws insufficient_storage; too_large, unavailable for a body that must not go to a file
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

  /** Left to the garbage collector, the chunks of eleven refused bodies at once took 47 MB. */
  #discardChunks(): void {
    const chunks = this.#chunks
    this.#chunks = []
    for (const chunk of chunks) discard(chunk)
  }

  /** Releases the memory and closes the file. Idempotent. */
  async close(): Promise<void> {
    this.#discardChunks()
    this.#releaseMemory()
    const file = this.#file
    this.#file = null
    await file?.close()
  }

  async #spool(chunk: Uint8Array): Promise<void> {
    if (this.#tmpDir === null) throw this.#refusal()
    this.#resizeFile(this.#length)
    try {
      if (this.#file === null) {
        this.#file = await openUnnamed(this.#tmpDir)
        // `close` gives back the memory of the chunks that it finds, and a write may still be reading these.
        const earlier = this.#chunks
        this.#chunks = []
        for (const one of earlier) await this.#append(this.#file, one)
        this.#releaseMemory()
      }
      await this.#append(this.#file, chunk)
    } catch (error) {
      throw spoolFailure(error)
    }
  }

  #refusal(): CouchError {
    if (this.#length <= MAX_IN_MEMORY) return new CouchError('unavailable')
    const reason = `the request entity is too large: the limit for _users is ${MAX_IN_MEMORY} bytes`
    return new CouchError('too_large', reason)
  }

  async #append(file: FileHandle, chunk: Uint8Array): Promise<void> {
    await file.appendFile(chunk)
    discard(chunk)
  }

  #releaseMemory(): void {
    this.#memory.release(this.#reserved)
    this.#reserved = 0
  }
}

const readAt = promisify(read)

/** Reads a whole body, from memory or its file; for small ones. */
export async function bytesOf(body: Body): Promise<Uint8Array> {
  if ('bytes' in body) return body.bytes
  const bytes = new Uint8Array(body.length)
  let at = 0
  while (at < bytes.length) {
    const { bytesRead } = await readAt(body.file, bytes, at, bytes.length - at, at)
    if (bytesRead === 0) throw new Error('The file of a body is shorter than it was written.')
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

/** The least rate of a body, in bytes a second. The slowest mobile networks reach ten times as many. */
const MIN_RATE = 100
/**
 * The least rate of the inflated body itself, in bytes a second. The framing of chunks and gzip does not count, so that an
 * upload of empty blocks ends. Half the rate, since incompressible bytes take a few more as gzip.
 */
const MIN_BODY_RATE = MIN_RATE / 2

/**
 * Watches a body that is still arriving: in every window it must reach {@link MIN_RATE}, and {@link MIN_BODY_RATE} once it
 * is inflated. A paused request is not slow.
 * @param windowMs the length of a window, in milliseconds
 * @param onSlow called after each window that was too slow
 * @param bodyBytes how many bytes of the body itself have arrived so far; absent: nobody reads it
 * @returns ends the watch
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
    const received = socket.bytesRead - before
    before += received
    const receivedBody = (bodyBytes?.() ?? Infinity) - bodyBefore
    bodyBefore += receivedBody
    const isSlow = isBelow(MIN_RATE, received, windowMs) || isBelow(MIN_BODY_RATE, receivedBody, windowMs)
    if (isSlow && !request.isPaused()) onSlow()
  }, windowMs)
  return () => clearInterval(timer)
}

function isBelow(rate: number, bytes: number, windowMs: number): boolean {
  return bytes < (rate * windowMs) / 1000
}

// `Expect: 100-continue` (RFC 9110 10.1.1): the client sends its body after an interim answer, which it gets when the body
// is about to be read. A refused upload is never sent. (Node closes the connection after a final answer.)

const expecting = new WeakMap<IncomingMessage, ServerResponse>()

/** Replaces Node's handling, which would ask every client for its body before the request is checked. */
export function deferContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    expecting.set(request, response)
    server.emit('request', request, response)
  })
  // Other expectations may be ignored; Node's refusal of them has no body.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response)
  })
}

/**
 * Asks the client for its body, if it waits for that. If an earlier request of the connection has no answer yet, this
 * comes after it: Node would send the interim answer after the head of the final one.
 */
export function sendContinue(request: IncomingMessage): void {
  const response = expecting.get(request)
  expecting.delete(request)
  if (response === undefined) return
  if (response.socket !== null) response.writeContinue()
  else response.once('socket', () => response.headersSent || response.writeContinue())
}
