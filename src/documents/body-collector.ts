import { discard } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import type { Body } from './database.ts'
import { AMPLE_ROOM, type FileRoom, fileBytes, TemporaryFile } from './temporary-file.ts'

/** A larger body, in bytes, goes to a file even if memory is free (architecture.md, "The path of a save"). */
export const MAX_IN_MEMORY = 8 * 1024 * 1024

/** One caller's share of the memory. */
export interface MemoryShare {
  /** Takes `bytes` of the budget if they are free. @returns whether they were */
  reserve(bytes: number): boolean
  release(bytes: number): void
}

/**
 * Collects one body: in memory while it is small and the budget has room, else in an unlinked file, which is gone when
 * the server dies. Its creator calls {@link close} in the end.
 */
export class BodyCollector {
  readonly #memory: MemoryShare
  readonly #tmpDir: string | null
  readonly #room: FileRoom
  /** The body will be in a file in the end, and goes there at once. */
  readonly #isLarge: boolean
  #chunks: Uint8Array[] = []
  #length = 0
  #reserved = 0
  #file: TemporaryFile | null = null

  /**
   * @param tmpDir the folder for the file; null: the body holds passwords, and must not reach the disk
   * @param room for the file
   * @param announced the body's length by its header; NaN: there is none
   */
  constructor(
    memory: MemoryShare,
    tmpDir: string | null,
    room: FileRoom = AMPLE_ROOM,
    announced = Number.NaN,
  ) {
    this.#memory = memory
    this.#tmpDir = tmpDir
    this.#room = room
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
    if (this.#file !== null) return this.#file.body
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
    this.#room.release()
  }

  async #spool(chunk: Uint8Array): Promise<void> {
    if (this.#tmpDir === null) throw this.#refusal()
    if (this.#file === null) {
      // Of a body without room nothing is written.
      this.#room.resize(this.#length)
      this.#file = await TemporaryFile.open(this.#tmpDir, this.#room)
      // `close` gives back the memory of the chunks that it finds, and a write may still be reading these.
      const earlier = this.#chunks
      this.#chunks = []
      for (const one of earlier) await this.#append(this.#file, one)
      this.#releaseMemory()
    }
    await this.#append(this.#file, chunk)
  }

  #refusal(): CouchError {
    if (this.#length <= MAX_IN_MEMORY) return new CouchError('unavailable')
    const reason = `the request entity is too large: the limit for _users is ${MAX_IN_MEMORY} bytes`
    return new CouchError('too_large', reason)
  }

  async #append(file: TemporaryFile, chunk: Uint8Array): Promise<void> {
    await file.append(chunk)
    discard(chunk)
  }

  #releaseMemory(): void {
    this.#memory.release(this.#reserved)
    this.#reserved = 0
  }
}

/** Reads a body, or a range of it, from memory or its file; for small ones. */
export async function bytesOf(
  body: Body,
  start = 0,
  end = 'bytes' in body ? body.bytes.length : body.length,
): Promise<Uint8Array> {
  if ('bytes' in body) return body.bytes.subarray(start, end)
  return fileBytes(body, start, end)
}
